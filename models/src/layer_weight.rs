//! What a layer multiplies by: a weight as it is, or integers with their scales.

use fulgurite_ops::nn::linear_quantized;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::DType;

use crate::parameter_list::Parameters;

/// The name of what is beside a weight: `scales` or `offsets`.
pub(crate) fn beside(weight: &str, name: &str) -> String {
    format!("{}.{name}", weight.strip_suffix(".weight").unwrap_or(weight))
}

/// The weight of the layer that makes logits.
pub(crate) const HEAD: &str = "lm_head.weight";

/// What a layer multiplies by.
#[derive(Debug, Clone, Copy)]
pub struct LayerWeight {
    /// [out, in]; quantized, where there are scales.
    pub weight: Tensor,
    /// [out, in / group].
    pub scales: Option<Tensor>,
    /// As the scales.
    pub offsets: Option<Tensor>,
}

impl LayerWeight {
    /// A weight that is not quantized.
    pub fn plain(weight: Tensor) -> LayerWeight {
        LayerWeight { weight, scales: None, offsets: None }
    }

    /// The parameter of this name, with what is beside it.
    #[track_caller]
    pub(crate) fn of(params: &Parameters<Tensor>, name: &str) -> LayerWeight {
        let figures = |kind: &str| params.get(&beside(name, kind)).copied();
        LayerWeight { weight: params.tensor(name), scales: figures("scales"), offsets: figures("offsets") }
    }

    /// `input` [..., in] times it, plus `bias`: [..., out].
    #[track_caller]
    pub fn of_input(self, input: Tensor, bias: Option<Tensor>) -> Tensor {
        let Some(scales) = self.scales else { return linear::with(input, self.weight).bias(bias).call() };
        let bits = if self.weight.dtype() == DType::I8 { 8 } else { 4 };
        let group_size = input.size(-1) / scales.size(-1).max(1);
        linear_quantized::with(input, self.weight, scales, group_size, bits).offsets(self.offsets).bias(bias).call()
    }
}
