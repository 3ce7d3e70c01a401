//! `flash`: scaled dot-product attention as one kernel forward and one backward. Scores are never written: memory grows
//! with the length, not with its square (Dao et al., "FlashAttention", 2022).
//!
//! Sums are f32. `flash` takes elements of bf16 and f16. Those of bf16 are multiplied as they are; those of f16 as they
//! are by the forward kernel for sm_90a, and otherwise as numbers of TF32 (10 bits of fraction, the range of f32). What
//! is computed on the way and multiplied again, weights and gradients of scores, is rounded to the same. Elements of
//! f32 are rounded to TF32, so that `flash_tf32` must be asked for by name. What a checker refuses, the next executor
//! of the list takes.

mod cached;
mod groups;
mod heads;
mod launch;
mod problem;
mod symbols;

pub use cached::attention_after;
pub use symbols::{attention, attention_backward};

use fulgurite_ops_macros::executor;

/// Attention as one kernel, in the precision of bf16 and f16.
#[executor(device = "cuda", priority = 5)]
pub mod flash {}

/// Attention of f32 as one kernel, with operands rounded to TF32 (10 bits of fraction).
#[executor(device = "cuda", precision = tf32)]
pub mod flash_tf32 {}

/// What `flash` takes.
mod exact {
    use fulgurite_runtime::executor::Claim;
    use fulgurite_runtime::{DType, TensorMeta};

    pub(super) fn takes(input: &TensorMeta) -> Claim {
        let exact = matches!(input.dtype(), DType::BF16 | DType::F16);
        fulgurite_runtime::refuse_unless!(
            exact,
            "takes bf16 and f16, not {}{}",
            input.dtype(),
            if input.dtype() == DType::F32 { "; flash_tf32 rounds it" } else { "" }
        );
        Ok(())
    }
}

/// What `flash_tf32` takes.
mod rounded {
    use fulgurite_runtime::executor::Claim;
    use fulgurite_runtime::{DType, TensorMeta};

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
