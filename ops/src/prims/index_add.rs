use fulgurite_ops_macros::operator;

use super::checks::{dimension, same_dtype};
use super::support::{accumulated, another, check_indices, with_extent};
use crate::prims::index_select;

/// `input` with the parts of `src` along dimension `dim` added to those that the one-dimensional `index` names, in
/// order. An index out of range is an error when the program runs.
#[operator(prim, torch = "index_add")]
pub mod index_add {
    fn index_add(input: Tensor<Number>, dim: usize, index: Tensor<Integer>, src: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize, index: &TensorMeta, src: &TensorMeta) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(index.rank() == 1, IndexRank, "index has shape {:?}, expected one dimension", index.shape());
        let expected = with_extent(input.shape(), dim, index.len());
        require!(
            src.shape() == expected,
            SourceShape,
            "src has shape {:?}, expected {expected:?}: input's, with an index for each part",
            src.shape()
        );
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        Ok(input.clone())
    }

    /// An addition for each element of `src`.
    fn flops(src: &TensorMeta) -> u64 {
        src.len() as u64
    }

    fn grad(input: Tensor, dim: usize, index: Tensor, src: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (index_add(input, dim, index, src), move |d_out: Tensor| Grads {
            input: d_out,
            src: index_select(d_out, dim, index),
        })
    }

    fn reference(
        input: &ReferenceTensor,
        dim: usize,
        index: &ReferenceTensor,
        src: &ReferenceTensor,
    ) -> Result<ReferenceTensor> {
        check_indices(index, dim, input.shape()[dim])?;
        Ok(accumulated(input, src, |at| {
            let mut target = at.to_vec();
            target[dim] = index.integers()[[at[dim]]] as usize;
            target
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [12]), s.normal([12])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [9]), s.normal([9, 6])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [5]).cast(DType::I32), s.normal([4, 5])));
        s.case(with(s.normal([3, 2, 5]), 1, s.integers(0, 2, [3]), s.normal([3, 3, 5])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [0]), s.normal([0, 6])));
        s.case(with(s.normal([50, 65]), 0, s.integers(0, 50, [67]), s.normal([67, 65])));
        // Hundreds of updates of one element.
        s.case(with(s.normal([3, 5]), 0, s.integers(0, 3, [1400]), s.normal([1400, 5]))).forward_only("large");
        // So many updates that kernels sort them, more of a row than are added at a time.
        s.case(with(s.normal([3, 33]), 0, s.integers(0, 3, [1100]), s.normal([1100, 33])));
        s.case(with(s.normal([2, 4]), 1, s.integers(0, 4, [600]), s.normal([2, 600])));
    }

    fn errors(e: &mut ErrorSamples) {
        for index in [4.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            let call = with(e.normal([4, 3]), 0, index, e.normal([2, 3]));
            e.when_run("IndexOutOfRange", call, "for dimension 0 of size 4");
        }
        e.case(DimensionRange, with(e.normal([2]), 1, e.integers(0, 2, [2]), e.normal([2])), "dim is 1");
        e.case(
            IndexRank,
            with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3]), e.normal([2, 3])),
            "index has shape [2, 3]",
        );
        e.case(
            SourceShape,
            with(e.normal([2, 3]), 0, e.integers(0, 2, [4]), e.normal([3, 3])),
            "src has shape [3, 3], expected [4, 3]",
        );
        let other = e.of(another(e.dtype()), [2]);
        e.case(SameDType, with(e.normal([2]), 0, e.integers(0, 2, [2]), other), "expected equal dtypes");
    }
}
