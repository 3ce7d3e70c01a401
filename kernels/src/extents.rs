//! What safe functions check of their operands before anything is read or written, once a call: the layouts that views
//! promise are those of their own shapes, and a kernel that goes by another tensor's shape would leave them; and
//! operands that share memory with a result are read before that memory is written, or refused.

use crate::dtype::DType;
use crate::view::{TensorMut, TensorRef};

/// Fails unless an operand has the shape that it must have.
#[track_caller]
pub(crate) fn shape(function: &str, operand: &str, shape: &[usize], expected: &[usize]) {
    assert!(shape == expected, "{function}: {operand} has shape {shape:?}, expected {expected:?}");
}

/// Fails unless an operand has as many dimensions as it must have.
#[track_caller]
pub(crate) fn rank(function: &str, operand: &str, shape: &[usize], expected: usize) {
    assert!(shape.len() == expected, "{function}: {operand} has shape {shape:?}, expected {expected} dimensions");
}

/// Fails unless a dimension is one of a tensor's; a tensor without dimensions counts as one with one.
#[track_caller]
pub(crate) fn dimension(function: &str, dim: usize, of: &[usize]) {
    assert!(dim < of.len().max(1), "{function}: dim is {dim}, the operand has shape {of:?}");
}

/// Fails unless two element types are one.
#[track_caller]
pub(crate) fn dtype(function: &str, operand: &str, dtype: DType, expected: DType) {
    assert!(dtype == expected, "{function}: {operand} is {dtype}, expected {expected}");
}

/// Fails if an operand shares memory with a result: what a kernel checks that reads elements after it has written
/// others.
#[track_caller]
pub(crate) fn apart(function: &str, operand: &str, tensor: &TensorRef<'_>, result: &TensorMut<'_>) {
    assert!(
        !tensor.shares_memory_with(result),
        "{function}: {operand} shares memory with a result, and this kernel reads elements after it has written others"
    );
}

/// Fails if an operand shares memory with a result, unless it is exactly the view of that result: what a kernel checks
/// that reads each element before it writes the same one.
#[track_caller]
pub(crate) fn apart_or_same(function: &str, operand: &str, tensor: &TensorRef<'_>, results: &[TensorMut<'_>]) {
    assert!(
        results.iter().all(|result| !tensor.shares_memory_with(result) || tensor.is_view_of(result)),
        "{function}: {operand} shares memory with a result of another layout, and this kernel would read elements after it has \
         written them"
    );
}

/// `shape` with another extent in the place of `dim`; unchanged if it has no such dimension.
pub(crate) fn with_extent(shape: &[usize], dim: usize, extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(place) = shape.get_mut(dim) {
        *place = extent;
    }
    shape
}
