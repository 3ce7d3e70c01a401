use fulgurite_ops_macros::rewrite;

use super::{fused_add_rms_norm, rms_norm};
use crate::core::add;

/// A sum and its `rms_norm`, with any `eps` and `offset`, become one `fused_add_rms_norm`, where an executor has a
/// kernel for it.
#[rewrite(default, claimed)]
pub mod merge_add_rms_norm {
    fn pattern(input: Tensor, residual: Tensor, weight: Tensor, eps: Option<f64>, offset: f64) -> (Tensor, Tensor) {
        let sum = add(input, residual);
        let columns = weight.shape().to_vec();
        (rms_norm::with(sum, columns).weight(weight).eps(eps).offset(offset).call(), sum)
    }

    fn replacement(input: Tensor, residual: Tensor, weight: Tensor, eps: Option<f64>, offset: f64) -> (Tensor, Tensor) {
        let columns = weight.shape().to_vec();
        fused_add_rms_norm::with(input, residual, columns).weight(weight).eps(eps).offset(offset).call()
    }

    fn condition(input: &TensorMeta, residual: &TensorMeta) -> Claim {
        // Nothing is broadcast or converted.
        refuse_unless!(input == residual, "input is {input}, residual {residual}");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        // As in Llama, and as in Gemma.
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), s.normal([8]), 1e-5, 0.0));
        s.case(with(s.normal([2, 3, 5]), s.normal([2, 3, 5]), s.normal([3, 5]), 1e-6, 1.0));
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), s.normal([8]), None, 0.0));
        s.case(with(s.normal([4, 8]), s.normal([8]), s.normal([8]), 1e-5, 0.0));
    }
}
