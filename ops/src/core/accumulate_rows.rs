use fulgurite_ops_macros::rewrite;
use fulgurite_runtime::Tensor;

use super::add;
use crate::prims;

/// Adds rows to what they are added to in the end: the gradient of an embedding whose table has another gradient as
/// well (it is also the output's weight) needs no table of zeros, and no sum of two tables.
#[rewrite(default, late)]
pub mod accumulate_rows {
    fn pattern(total: Tensor, index: Tensor, rows: Tensor) -> Tensor {
        add(total, prims::index_add(zeros_like(total), 0, index, rows))
    }

    fn replacement(total: Tensor, index: Tensor, rows: Tensor) -> Tensor {
        prims::index_add(total, 0, index, rows)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7, 5]), s.integers(0, 7, [4]), s.normal([4, 5])));
        s.case(with(s.normal([3, 2, 4]), s.integers(0, 3, [70]).cast(DType::I32), s.normal([70, 2, 4])));
        s.case(with(s.normal([3]), s.integers(0, 3, [0]), s.normal([0])));
    }
}

#[track_caller]
fn zeros_like(tensor: Tensor) -> Tensor {
    prims::full(&*tensor.shape(), 0.0, tensor.dtype(), tensor.device())
}
