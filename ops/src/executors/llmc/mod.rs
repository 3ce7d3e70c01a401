//! `llmc`: the operations of GPT-2 by one hand-written kernel each, as llm.c has them.
//!
//! Every number is computed in an order that depends on the shapes alone, so that two runs give the same bits. Statistics are
//! f32 for elements of 16 bits too. What a checker refuses, the next executor of the list takes.

mod activations;
mod cross_entropy;
mod heads;
mod layer_norm;
mod probabilities;
mod rows;

pub use activations::{gelu, gelu_backward};
pub use cross_entropy::{crossentropy, crossentropy_softmax_backward};
pub use heads::{permute, permute_backward, unpermute, unpermute_backward};
pub use layer_norm::{layernorm, layernorm_backward};
pub use probabilities::{softmax, softmax_backward};

use fulgurite::executor::Claim;
use fulgurite::rules::{DeviceTensor, Plan};
use fulgurite::{DType, TensorMeta, refuse_unless};
use fulgurite_ops_macros::executor;

use crate::executors::cuda::support::{THREADS, WIDEST, type_of};

/// The operations of GPT-2, one kernel each.
#[executor(device = "cuda")]
pub mod llmc {}

/// Whether the kernels are written for elements of this type.
pub(in crate::executors) fn has_kernels_for(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
}

/// What every checker asks first.
fn takes(input: &TensorMeta) -> Claim {
    refuse_unless!(input.device().is_cuda(), "input is on {}, the kernels run on cuda", input.device());
    refuse_unless!(has_kernels_for(input.dtype()), "input is {}, takes f32, bf16 and f16", input.dtype());
    Ok(())
}

/// How many neighbouring elements of rows of `columns` elements can be read and written at once in all of `tensors`, the
/// smallest of which are `size` bytes large.
pub(in crate::executors) fn pack_of(columns: usize, size: usize, tensors: &[&DeviceTensor]) -> usize {
    let mut pack = pack_anywhere(columns, size);
    while pack > 1 && !are_aligned(pack, tensors) {
        pack /= 2;
    }
    pack
}

/// How many neighbouring elements of rows of `columns` elements of `size` bytes a thread of a reduction handles
/// together, wherever the rows are: the order of sums depends on the number, so it must not depend on addresses. Rows
/// that are not aligned for so many (`ALIGNED` of the sources) are read and written by element.
pub(in crate::executors) fn pack_anywhere(columns: usize, size: usize) -> usize {
    let mut pack = WIDEST / size;
    while !columns.is_multiple_of(pack) {
        pack /= 2;
    }
    pack
}

/// Whether `pack` elements of each of `tensors` can be read and written at once where rows start at multiples of as
/// many.
pub(in crate::executors) fn are_aligned(pack: usize, tensors: &[&DeviceTensor]) -> bool {
    tensors.iter().all(|tensor| tensor.alignment.is_multiple_of((pack * tensor.dtype().size()).min(WIDEST)))
}

/// Takes the following kernels from these files, the last of which names them; `ELEMENT` is the element type.
macro_rules! source {
    ($plan:expr, $dtype:expr, [$($shared:literal),*], $file:literal) => {
        $plan.source(
            $file,
            concat!(
                $("#line 1 \"", $shared, "\"\n", include_str!($shared),)*
                "#line 1 \"", $file, "\"\n", include_str!($file)
            ),
        );
        $plan.define("ELEMENT", crate::executors::cuda::support::type_of($dtype));
    };
}
pub(in crate::executors) use source;

/// Tells the kernels how many threads a block has.
fn define_threads(plan: &mut Plan) {
    plan.define("THREADS", THREADS);
}

/// The name of the type of indices of classes.
fn index_type_of(target: &DeviceTensor) -> &'static str {
    type_of(target.dtype())
}
