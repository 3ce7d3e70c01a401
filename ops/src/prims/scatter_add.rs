use fulgurite_ops_macros::operator;

use super::checks::{dimension, same_dtype};
use super::support::{accumulated, another, check_indices};
use crate::prims::gather;

/// `input` with every element of `src` added where `index` says: `out[i][index[i][j][k]][k] += src[i][j][k]` for
/// `dim = 1`, likewise for others, in row-major order. `index` and `src` have one shape, with no extent above `input`'s
/// but in dimension `dim`. An index out of range is an error when the program runs.
#[operator(prim, torch = "scatter_add", autocast = widest)]
pub mod scatter_add {
    fn scatter_add(input: Tensor<Number>, dim: usize, index: Tensor<Integer>, src: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize, index: &TensorMeta, src: &TensorMeta) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(
            index.shape() == src.shape()
                && index.rank() == input.rank()
                && (0..input.rank()).all(|i| i == dim || index.shape()[i] <= input.shape()[i]),
            IndexShape,
            "index has shape {:?}, src {:?}, expected one shape with no extent above {:?} but in dimension {dim}",
            index.shape(),
            src.shape(),
            input.shape()
        );
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        Ok(input.clone())
    }

    /// An addition for each element of `src`.
    fn flops(src: &TensorMeta) -> u64 {
        src.len() as u64
    }

    fn grad(input: Tensor, dim: usize, index: Tensor, src: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (scatter_add(input, dim, index, src), move |d_out: Tensor| Grads {
            input: d_out,
            src: gather(d_out, dim, index),
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
            target[dim] = index.integers()[at] as usize;
            target
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [12]), s.normal([12])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [5, 6]), s.normal([5, 6])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [3, 9]).cast(DType::I32), s.normal([3, 9])));
        s.case(with(s.normal([3, 1, 5]), 2, s.integers(0, 5, [3, 1, 2]), s.normal([3, 1, 2])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [4, 0]), s.normal([4, 0])));
        s.case(with(s.normal([65, 50]), 1, s.integers(0, 50, [65, 67]), s.normal([65, 67])));
        s.case(with(s.normal([5, 5]), 1, s.integers(0, 5, [5, 5]), s.normal([5, 5])));
        // More updates of a line than are searched one by one: they are sorted.
        s.case(with(s.normal([3, 40]), 1, s.integers(0, 40, [3, 300]), s.normal([3, 300]))).forward_only("large");
        // Lines of so many updates that kernels sort them, and elements that get more of them than are added at a time.
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [300]), s.normal([300])));
        s.case(with(s.normal([2]), 0, s.integers(0, 2, [1100]), s.normal([1100])));
        s.case(with(s.normal([3, 4]), 1, s.integers(0, 4, [2, 700]), s.normal([2, 700])));
        s.case(with(s.normal([9, 3]), 0, s.integers(0, 9, [513, 2]), s.normal([513, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1, e.integers(0, 2, [2]), e.normal([2])), "dim is 1");
        e.case(
            IndexShape,
            with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3]), e.normal([2, 2])),
            "index has shape [2, 3], src [2, 2]",
        );
        for shape in [&[2][..], &[3, 3]] {
            let (index, src) = (e.integers(0, 2, shape), e.normal(shape));
            e.case(IndexShape, with(e.normal([2, 3]), 1, index, src), "no extent above [2, 3]");
        }
        for index in [4.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([4]), 0, index, e.normal([2])), "for dimension 0 of size 4");
        }
        let other = e.of(another(e.dtype()), [2]);
        e.case(SameDType, with(e.normal([2]), 0, e.integers(0, 2, [2]), other), "expected equal dtypes");
    }
}
