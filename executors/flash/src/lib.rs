//! `flash`: scaled dot-product attention as one kernel forward and one backward. Scores are never written: memory grows
//! with the length, not with its square (Dao et al., "FlashAttention", 2022).
//!
//! Sums are f32. Elements of f32 and bf16 are multiplied as they are, the former without tensor cores; those of f16 as
//! they are by the forward kernel for sm_90a, and otherwise as numbers of TF32 (10 bits of fraction, the range of f32).
//! What is computed on the way and multiplied again, weights and gradients of scores, is rounded to the same.
//! `flash_tf32`, which must be asked for by name, rounds elements of f32 to TF32. What a checker refuses, the next
//! executor of the list takes.

mod cached;
mod changes;
mod claims;
mod groups;
mod heads;
mod launch;
mod mask_bases;
mod mask_bits;
mod problem;
mod symbols;

pub use cached::attention_after;
pub use symbols::{attention, attention_backward};

use fulgurite_ops_macros::executor;

/// Attention as one kernel, in the precision of f32, bf16 and f16.
#[executor(device = "cuda", priority = 5)]
pub mod flash {}

/// Attention of f32 as one kernel, with operands rounded to TF32 (10 bits of fraction).
#[executor(device = "cuda", precision = tf32)]
pub mod flash_tf32 {}

/// The calls that `flash` accepts.
mod exact {
    use fulgurite_runtime::executor::Claim;
    use fulgurite_runtime::{DType, TensorMeta};

    /// Whether operands of f32 are rounded.
    pub(super) const TF32: bool = false;

    pub(super) fn takes(input: &TensorMeta) -> Claim {
        let exact = matches!(input.dtype(), DType::F32 | DType::BF16 | DType::F16);
        fulgurite_runtime::refuse_unless!(exact, "takes f32, bf16 and f16, not {}", input.dtype());
        Ok(())
    }

    /// What the kernels of many new tokens take.
    pub(super) fn takes_half(input: &TensorMeta) -> Claim {
        let half = matches!(input.dtype(), DType::BF16 | DType::F16);
        fulgurite_runtime::refuse_unless!(half, "takes bf16 and f16, not {}", input.dtype());
        Ok(())
    }
}

/// The calls that `flash_tf32` accepts.
mod rounded {
    use fulgurite_runtime::executor::Claim;
    use fulgurite_runtime::{DType, TensorMeta};

    /// Whether operands of f32 are rounded.
    pub(super) const TF32: bool = true;

    pub(super) fn takes(input: &TensorMeta) -> Claim {
        fulgurite_runtime::refuse_unless!(
            input.dtype() == DType::F32,
            "rounds operands of f32, not of {}",
            input.dtype()
        );
        Ok(())
    }
}

/// Declares how both executors run an operator; in the rules `precision` is what the executor takes.
macro_rules! by_both {
    ($of:path, $exact:ident, $rounded:ident, { $($rules:tt)* }) => {
        #[fulgurite_ops_macros::implementation(of = $of, by = crate::flash)]
        mod $exact {
            use crate::exact as precision;
            $($rules)*
        }

        #[fulgurite_ops_macros::implementation(of = $of, by = crate::flash_tf32)]
        mod $rounded {
            use crate::rounded as precision;
            $($rules)*
        }
    };
}
use by_both;
