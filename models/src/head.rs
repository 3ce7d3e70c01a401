//! The layer that makes logits of hidden states, and the loss of these logits.

use std::cell::Cell;
use std::fmt;

use fulgurite_ops::nn::fused_linear_cross_entropy;
use fulgurite_ops::prelude::*;

use crate::held::with_held;
use crate::layer_weight::LayerWeight;

thread_local! {
    static LOGITS: Cell<Logits> = const { Cell::new(Logits::Whole) };
}

/// What of the logits exists at a time where a loss is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Logits {
    /// Those of all positions.
    #[default]
    Whole,
    /// Those of a chunk of positions: [`mod@fused_linear_cross_entropy`] computes losses and gradients of a chunk
    /// before the next one. The loss is the same but for rounding. It takes less memory where there are many positions
    /// and classes, and more time.
    Chunked,
}

impl Logits {
    /// Both forms of logits.
    pub const ALL: [Logits; 2] = [Logits::Whole, Logits::Chunked];

    /// Traces `f` with the losses of the models in it as this says. It holds for what `f` traces on this thread.
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        with_held(&LOGITS, self, f)
    }

    /// The name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Logits::Whole => "whole",
            Logits::Chunked => "chunked",
        }
    }
}

impl fmt::Display for Logits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The last layer of a model: logits of hidden states.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// [V, C].
    pub weight: LayerWeight,
    /// `[V]`.
    pub bias: Option<Tensor>,
    /// The layer's results are divided by it.
    pub divisor: Option<f64>,
    /// Logits are `cap · tanh(x / cap)` of these results.
    pub softcap: Option<f64>,
}

impl Head {
    /// Hidden states [.., C] to logits [.., V].
    #[track_caller]
    pub fn logits(self, hidden: Tensor) -> Tensor {
        scope("lm_head", || {
            let logits = self.weight.of_input(hidden, self.bias);
            let logits = self.divisor.map_or(logits, |divisor| logits / divisor);
            self.softcap.map_or(logits, |cap| tanh(logits / cap) * cap)
        })
    }

    /// Mean cross entropy of the logits of `hidden` [B, T, C] against `targets` i64[B, T], as [`mean_cross_entropy`];
    /// [`Logits::within`] says whether all logits exist.
    #[track_caller]
    pub fn loss(self, hidden: Tensor, targets: Tensor) -> Tensor {
        // Chunks multiply by the weight itself, which integers are not.
        if LOGITS.get() == Logits::Whole || self.weight.scales.is_some() {
            return mean_cross_entropy(self.logits(hidden), targets);
        }
        let count = (targets.size(0) * targets.size(1)) as i64;
        scope("loss", || {
            let (hidden, targets) = (reshape(hidden, [count, hidden.size(-1) as i64]), reshape(targets, [count]));
            // The layer of divided numbers gives the divided results.
            let divided = |x: Tensor| self.divisor.map_or(x, |divisor| x / divisor);
            // With autocast the layer is computed in 16 bits. A gradient that is added up in 16 bits would be rounded
            // once a chunk, and that of whole logits is rounded once.
            fused_linear_cross_entropy::with(divided(hidden), self.weight.weight, targets)
                .bias(self.bias.map(divided))
                .softcap(self.softcap)
                .accum_dtype(self.weight.weight.dtype().accumulator())
                .call()
        })
    }
}

/// Mean cross entropy of logits [B, T, V] against `targets` i64[B, T], in f32 (f64 of f64); targets of -100 do not
/// count.
#[track_caller]
pub(crate) fn mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor {
    let rows = (targets.size(0) * targets.size(1)) as i64;
    scope("loss", || {
        let (logits, targets) = (reshape(logits, [rows, logits.size(-1) as i64]), reshape(targets, [rows]));
        // `cross_entropy` has its input's type, and bf16 has two decimal digits.
        match logits.dtype() == logits.dtype().accumulator() {
            true => cross_entropy(logits, targets),
            false => regularized_cross_entropy(logits, targets),
        }
    })
}
