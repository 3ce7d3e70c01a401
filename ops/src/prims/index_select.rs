use fulgurite_ops_macros::operator;

use super::checks::dimension;
use super::support::{check_indices, rearranged, with_extent, zeros};
use crate::prims::index_add;

/// The parts of `input` along dimension `dim` that the one-dimensional `index` names. An index out of range is an error
/// when the program runs.
#[operator(prim, exact, torch = "index_select", overload = IndexSelect, elements = select)]
pub mod index_select {
    fn index_select(input: Tensor, dim: usize, index: Tensor<Integer>) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize, index: &TensorMeta) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(index.rank() == 1, IndexRank, "index has shape {:?}, expected one dimension", index.shape());
        Ok(input.with_shape(with_extent(input.shape(), dim, index.len())))
    }

    fn grad(input: Tensor, dim: usize, index: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (index_select(input, dim, index), move |d_out: Tensor| Grads {
            input: index_add(zeros(&input.meta()), dim, index, d_out),
        })
    }

    fn reference(input: &ReferenceTensor, dim: usize, index: &ReferenceTensor) -> Result<ReferenceTensor> {
        check_indices(index, dim, input.shape()[dim])?;
        let shape = with_extent(input.shape(), dim, index.shape()[0]);
        Ok(rearranged(input, &shape, Scalar::Int(0), |at| {
            let mut source = at.to_vec();
            source[dim] = index.integers()[[at[dim]]] as usize;
            Some(source)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [3])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [9])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [5]).cast(DType::I32)));
        s.case(with(s.normal([3, 2, 5]), 1, s.integers(0, 2, [3])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [0])));
        s.case(with(s.normal([4, 0]), 0, s.integers(0, 4, [3])));
        s.case(with(s.normal([50, 65]), 0, s.integers(0, 50, [67])));
    }

    fn errors(e: &mut ErrorSamples) {
        for index in [4.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([4, 3]), 0, index), "for dimension 0 of size 4");
        }
        e.case(DimensionRange, with(e.normal([2]), 1, e.integers(0, 2, [2])), "dim is 1");
        e.case(IndexRank, with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3])), "index has shape [2, 3]");
    }
}
