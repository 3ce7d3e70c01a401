use fulgurite_ops_macros::operator;

use super::checks::dimension;
use super::support::{check_indices, rearranged, zeros};
use crate::prims::scatter_add;

/// `out[i][j][k] = input[i][index[i][j][k]][k]` for `dim = 1`, likewise for others. `index` has the rank of `input`,
/// and no extent above `input`'s but in dimension `dim`. An index out of range is an error when the program runs.
#[operator(prim, exact, torch = "gather", overload = Gather, elements = select)]
pub mod gather {
    fn gather(input: Tensor, dim: usize, index: Tensor<Integer>) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize, index: &TensorMeta) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(
            index.rank() == input.rank() && (0..input.rank()).all(|i| i == dim || index.shape()[i] <= input.shape()[i]),
            IndexShape,
            "index has shape {:?}, expected the rank of input and no extent above {:?} but in dimension {dim}",
            index.shape(),
            input.shape()
        );
        Ok(input.with_shape(index.shape()))
    }

    fn grad(input: Tensor, dim: usize, index: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (gather(input, dim, index), move |d_out: Tensor| Grads {
            input: scatter_add(zeros(&input.meta()), dim, index, d_out),
        })
    }

    fn reference(input: &ReferenceTensor, dim: usize, index: &ReferenceTensor) -> Result<ReferenceTensor> {
        check_indices(index, dim, input.shape()[dim])?;
        Ok(rearranged(input, index.shape(), Scalar::Int(0), |at| {
            let mut source = at.to_vec();
            source[dim] = index.integers()[at] as usize;
            Some(source)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [3])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [5, 6])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [3, 9])));
        s.case(with(s.normal([3, 1, 5]), 2, s.integers(0, 5, [3, 1, 2]).cast(DType::I32)));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [4, 0])));
        s.case(with(s.normal([0, 6]), 1, s.integers(0, 6, [0, 2])));
        s.case(with(s.normal([65, 50]), 1, s.integers(0, 50, [65, 67])));
        s.case(with(s.normal([5, 5]), 1, s.integers(0, 5, [5, 5])));
    }

    fn errors(e: &mut ErrorSamples) {
        for index in [4.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([4]), 0, index), "for dimension 0 of size 4");
        }
        e.case(DimensionRange, with(e.normal([2]), 1, e.integers(0, 2, [2])), "dim is 1");
        e.case(IndexShape, with(e.normal([2, 3]), 1, e.integers(0, 2, [3, 3])), "index has shape [3, 3]");
        e.case(IndexShape, with(e.normal([2, 3]), 1, e.integers(0, 2, [2])), "index has shape [2]");
    }
}
