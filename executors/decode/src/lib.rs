//! `decode`: what a model computes of one token of each sequence, with a cache of keys and values. Such a program is
//! bound by reading weights and the cache: products of few rows read each weight once, by the tensor cores, and
//! attention reads the filled part of the cache alone. Norms, rotations, residuals and what is written to the cache are
//! part of these kernels, and each begins to fetch its weights while the one before it still runs.
//!
//! Weights may be integers of 8 and 4 bits, which are widened in registers. Where a step of the kernel is of one group
//! of inputs, its sum of products with integers is multiplied by the scale: the weights themselves are then not rounded
//! to the input's type, as the definition of `linear_quantized` has it.
//!
//! Elements are bf16 or f16, sums are f32, and every sum is added up in an order that shapes and positions decide: two
//! runs give the same bits. What a checker refuses, the next executor of the list takes.

fulgurite_ops_macros::operator_files! {
    attention,
    norm_product,
    product,
    quantized_gates,
    quantized_product,
    residual_product,
    swiglu_product,
}

use fulgurite_ops_macros::executor;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use fulgurite_executor_cuda::elementwise::contiguous_copy;

/// One token at a time: products of few rows, attention to a cache.
#[executor(device = "cuda", strided)]
pub mod decode {}

/// What every checker asks first: whether the kernels are written for elements of this type.
fn takes(name: &str, tensor: &TensorMeta) -> Claim {
    refuse_unless!(
        matches!(tensor.dtype(), DType::BF16 | DType::F16),
        "{name} is {}, takes bf16 and f16",
        tensor.dtype()
    );
    Ok(())
}

/// The bytes that kernels read at once.
const AT_ONCE: usize = 16;

/// The tensor, or a copy whose rows can be read by [`AT_ONCE`] bytes.
fn readable(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    match tensor.is_contiguous() && tensor.alignment.is_multiple_of(AT_ONCE) {
        true => Ok(tensor.clone()),
        false => contiguous_copy(plan, tensor),
    }
}

/// The launch of a kernel that waits for the one before by itself (`overlap.cuh`), where the device can do that. Of the
/// present source, which is told.
fn overlapping(plan: &mut Plan, shape: LaunchShape) -> LaunchShape {
    // Clusters are of the same generation.
    let overlaps_previous = plan.properties().clusters;
    plan.define("OVERLAPS", u8::from(overlaps_previous));
    LaunchShape { overlaps_previous, ..shape }
}
