use fulgurite_ops_macros::rewrite;

use super::{fused_add_rms_norm, rms_norm};
use crate::core::add;

/// Whether nothing is broadcast or converted.
fn same_form(
    input: &fulgurite_runtime::TensorMeta,
    residual: &fulgurite_runtime::TensorMeta,
) -> fulgurite_runtime::executor::Claim {
    fulgurite_runtime::refuse_unless!(input == residual, "input is {input}, residual {residual}");
    Ok(())
}

/// Declares the rewrite for numbers that occur: a pattern spells out its attributes.
macro_rules! merged {
    ($($(#[$docs:meta])* $name:ident: $eps:literal, $offset:literal;)*) => {$(
        $(#[$docs])*
        #[rewrite(default, claimed)]
        pub mod $name {
            fn pattern(input: Tensor, residual: Tensor, weight: Tensor) -> (Tensor, Tensor) {
                let sum = add(input, residual);
                let columns = weight.shape().to_vec();
                (rms_norm::with(sum, columns).weight(weight).eps($eps).offset($offset).call(), sum)
            }

            fn replacement(input: Tensor, residual: Tensor, weight: Tensor) -> (Tensor, Tensor) {
                let columns = weight.shape().to_vec();
                fused_add_rms_norm::with(input, residual, columns).weight(weight).eps($eps).offset($offset).call()
            }

            fn condition(input: &TensorMeta, residual: &TensorMeta) -> Claim {
                super::same_form(input, residual)
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([4, 8]), s.normal([4, 8]), s.normal([8])));
                s.case(with(s.normal([2, 3, 5]), s.normal([2, 3, 5]), s.normal([3, 5])));
                s.case(with(s.normal([4, 8]), s.normal([8]), s.normal([8])));
            }
        }
    )*};
}

merged! {
    /// A sum and its `rms_norm` with `eps` of 1e-5, as in Llama, become one `fused_add_rms_norm`, where an executor has
    /// a kernel for it.
    merge_add_rms_norm: 1e-5, 0.0;
    /// As [`merge_add_rms_norm`], with `eps` of 1e-6, as in Qwen.
    merge_add_rms_norm_qwen: 1e-6, 0.0;
    /// As [`merge_add_rms_norm`], with `eps` of 1e-6 and an offset of 1, as in Gemma.
    merge_add_rms_norm_gemma: 1e-6, 1.0;
}
