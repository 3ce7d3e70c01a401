//! A batched matrix product as extents and strides.

use crate::view::{TensorMut, TensorRef};
use crate::walk::Walk;

/// Extents and strides of one product, and the walk over the batch.
pub(crate) struct Product {
    pub(crate) batch: Walk<3>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) inner: usize,
    /// Row and column strides of the operands and the target.
    pub(crate) left: (isize, isize),
    pub(crate) right: (isize, isize),
    pub(crate) target: (isize, isize),
}

impl Product {
    pub(crate) fn new(left: &TensorRef<'_>, right: &TensorRef<'_>, target: &TensorMut<'_>) -> Product {
        let rank = target.shape().len();
        let batch = (0..rank - 2)
            .map(|axis| (target.shape()[axis], [left.strides()[axis], right.strides()[axis], target.strides()[axis]]));
        let matrix = |strides: &[isize]| (strides[rank - 2], strides[rank - 1]);
        Product {
            batch: Walk::new(batch),
            rows: target.shape()[rank - 2],
            columns: target.shape()[rank - 1],
            inner: left.shape()[rank - 1],
            left: matrix(left.strides()),
            right: matrix(right.strides()),
            target: matrix(target.strides()),
        }
    }
}
