//! `flash`: scaled dot-product attention as one kernel forward and one backward. Scores are never written: memory grows
//! with the length, not with its square (Dao et al., "FlashAttention", 2022).
//!
//! Sums are f32. Elements of f32 and bf16 are multiplied as they are, the former without tensor cores; those of f16 as
//! they are by the forward kernel for sm_90a, and otherwise as numbers of TF32 (10 bits of fraction, the range of f32).
//! What is computed on the way and multiplied again, weights and gradients of scores, is rounded to the same.
//! `flash_tf32`, its other precision, which must be asked for by name, rounds elements of f32 to TF32. What a checker
//! refuses, the next executor of the list takes.

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
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

/// Attention as one kernel, in the precision of f32, bf16 and f16.
#[executor(device = "cuda", priority = 5, precisions(flash_tf32 = tf32))]
pub mod flash {}

/// The calls that are taken: in TF32 those alone whose operands would be rounded.
fn takes(precision: Precision, input: &TensorMeta) -> Claim {
    let dtype = input.dtype();
    match precision {
        Precision::Tf32 => refuse_unless!(dtype == DType::F32, "rounds operands of f32, not of {dtype}"),
        _ => {
            let exact = matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
            refuse_unless!(exact, "takes f32, bf16 and f16, not {dtype}");
        }
    }
    Ok(())
}

/// What the kernels of many new tokens take.
fn takes_half(input: &TensorMeta) -> Claim {
    let half = matches!(input.dtype(), DType::BF16 | DType::F16);
    refuse_unless!(half, "takes bf16 and f16, not {}", input.dtype());
    Ok(())
}
