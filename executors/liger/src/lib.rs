//! `liger`: operators of Llama by one hand-written kernel each, with the options of Liger-Kernel.
//!
//! Every number is computed in an order that depends on the shapes alone, so that two runs give the same bits: no sum
//! is made by floating-point atomics. Statistics are f32 for elements of 16 bits too. Rows may have any length. What a
//! checker refuses, the next executor of the list takes. Softmax and layer normalization are the symbols of `llmc`,
//! whose contracts agree.

mod class_losses;
mod gated;
mod grouped;
mod layers;
mod norm;
mod normalization;
mod projection;
mod residual;
mod rotation;
mod rows;
mod scaling;

pub use gated::{
    Activation, each_element as each_gated_element, geglu, geglu_backward, gelu as plain_gelu, swiglu, swiglu_backward,
};
pub use norm::{Normalized, rms_norm, rms_norm_backward, rms_norm_gradients, rms_norm_input_gradient};
pub use normalization::{eps_or_default, given, kernels_fit as rms_norm_fits};
pub use projection::sparsemax;
pub use residual::{fused_add_rms_norm, fused_add_rms_norm_backward};
pub use rotation::{kernel_fits as rope_fits, rope};
pub use scaling::scaled;

use fulgurite_ops_macros::executor;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{TensorMeta, refuse_unless};

use fulgurite_executor_cuda::support::has_kernels_for;

/// Operators of Llama, one kernel each.
#[executor(device = "cuda")]
pub mod liger {}

/// What every checker asks first: whether the kernels are written for elements of this type.
///
/// # Errors
/// The reason why they are not, with the operand's `name`.
pub fn takes(name: &str, tensor: &TensorMeta) -> Claim {
    refuse_unless!(has_kernels_for(tensor.dtype()), "{name} is {}, takes f32, bf16 and f16", tensor.dtype());
    Ok(())
}
