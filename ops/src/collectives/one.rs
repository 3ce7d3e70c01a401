//! Collectives of one tensor, by the operators that take a list.

use fulgurite_runtime::Tensor;

use super::among::Reduce;
use super::{all_gather, all_reduce, reduce_scatter};

/// [`mod@all_reduce`] of one tensor.
#[track_caller]
pub fn all_reduce_one(input: Tensor, axis: &str, op: Reduce) -> Tensor {
    all_reduce([input], axis, op)[0]
}

/// [`mod@reduce_scatter`] of one tensor.
#[track_caller]
pub fn reduce_scatter_one(input: Tensor, axis: &str, dim: usize, op: Reduce) -> Tensor {
    reduce_scatter([input], axis, dim, op)[0]
}

/// [`mod@all_gather`] of one tensor.
#[track_caller]
pub fn all_gather_one(input: Tensor, axis: &str, dim: usize) -> Tensor {
    all_gather([input], axis, dim)[0]
}
