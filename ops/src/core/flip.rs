use fulgurite_ops_macros::operator;

use super::arrays::rearranged;
use super::parts;
use super::promotion::{checked_dims, named_dims, position};

/// The elements of the dimensions `dims` in reverse order. A tensor without dimensions answers to dimension 0.
#[operator(torch = "flip", complex)]
pub mod flip {
    fn flip(input: Tensor, dims: Vec<i64>) -> Tensor;

    fn requires(input: &TensorMeta, dims: &[i64]) -> Result<()> {
        checked_dims("dims", Some(dims), input, Code::Dims).map(drop)
    }

    fn decomposition(input: Tensor, dims: &[i64]) -> Tensor {
        let dims = named_dims(dims, input.rank()).unwrap_or_default();
        if dims.is_empty() { input } else { parts::flip(input, dims) }
    }

    fn reference(input: &ReferenceTensor, dims: &[i64]) -> ReferenceTensor {
        let rank = input.shape().len();
        let turned: Vec<usize> = dims.iter().map(|dim| position(*dim, rank)).collect();
        rearranged(input, input.shape(), 0.0, |at| {
            let from = |(dim, i): (usize, &usize)| if turned.contains(&dim) { input.shape()[dim] - 1 - i } else { *i };
            Some(at.iter().enumerate().map(from).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [0]));
        s.case(with(s.normal([7]), [-1]));
        s.case(with(s.normal([4, 6]), [1]));
        s.case(with(s.normal([4, 6]), []));
        s.case(with(s.normal([2, 3, 5]), [-1, 0]));
        s.case(with(s.normal([0, 3]), [0, 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3]), [2]), "dims is [2], expected distinct dimensions of a tensor of rank 2");
        e.case(Dims, with(e.normal([2, 3]), [1, -1]), "dims is [1, -1]");
        e.case(Dims, with(e.normal([1; 65]), [0]), "expected at most 64 where some are named");
    }
}
