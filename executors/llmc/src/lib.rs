//! `llmc`: the operations of GPT-2 by one hand-written kernel each, as llm.c has them.
//!
//! Every number is computed in an order that depends on the shapes alone, so that two runs give the same bits.
//! Statistics are f32 for elements of 16 bits too. What a checker refuses, the next executor of the list takes.

mod activations;
mod cross_entropy;
mod heads;
mod layer_norm;
mod probabilities;

pub use activations::{gelu, gelu_backward};
pub use cross_entropy::{crossentropy, crossentropy_softmax_backward};
pub use heads::{permute, permute_backward, unpermute, unpermute_backward};
pub use layer_norm::{layernorm, layernorm_backward, layernorm_fits, layernorm_parameters};
pub use probabilities::{gradient_of_rows, softmax, softmax_backward, softmax_fits};

use fulgurite_ops_macros::executor;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, Plan};
use fulgurite_runtime::{TensorMeta, refuse_unless};

use fulgurite_executor_cuda::support::{THREADS, are_aligned, has_kernels_for, pack_anywhere, pack_of, type_of};

/// The operations of GPT-2, one kernel each.
#[executor(device = "cuda")]
pub mod llmc {}

/// What every checker asks first.
fn takes(input: &TensorMeta) -> Claim {
    refuse_unless!(has_kernels_for(input.dtype()), "input is {}, takes f32, bf16 and f16", input.dtype());
    Ok(())
}

/// Tells the kernels how many threads a block has.
fn define_threads(plan: &mut Plan) {
    plan.define("THREADS", THREADS);
}

/// The name of the type of indices of classes.
fn index_type_of(target: &DeviceTensor) -> &'static str {
    type_of(target.dtype())
}
