use fulgurite_ops_macros::operator;

use super::checks::{dimension, same_dtype};
use super::support::{another, check_indices, constant, replaced};
use crate::prims;

/// `input` with the elements that `index` names replaced by those of `src`: `out[i][index[i][j][k]][k] = src[i][j][k]`
/// for `dim = 1`, likewise for others. Of several for one place the last in row-major order is kept, and it alone gets
/// a gradient. `index` and `src` have one shape, with no extent above `input`'s but in dimension `dim`. An index out of
/// range is an error when the program runs. Over an `input` that nothing reads later, executors write in place: only
/// the named elements are touched.
#[operator(prim, exact, overload = Scatter, autocast = widest)]
pub mod scatter {
    fn scatter(input: Tensor, dim: usize, index: Tensor<Integer>, src: Tensor) -> Tensor;

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

    fn grad(input: Tensor, dim: usize, index: Tensor, src: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (scatter(input, dim, index, src), move |d_out: Tensor| Grads {
            input: scatter(d_out, dim, index, constant(src, 0.0)),
            src: prims::select(is_kept(&input.shape(), dim, index), prims::gather(d_out, dim, index), 0.0),
        })
    }

    /// Which elements of the source are in the result: those whose number is found where they were written.
    fn is_kept(shape: &[usize], dim: usize, index: Tensor) -> Tensor {
        let (extents, device) = (index.shape().to_vec(), index.device());
        let count = extents.iter().product();
        let numbers = prims::iota(count, Scalar::Int(0), Scalar::Int(1), DType::I64, device);
        let numbers = prims::reshape(numbers, extents);
        let written = scatter(prims::full(shape, -1, DType::I64, device), dim, index, numbers);
        prims::eq(prims::gather(written, dim, index), numbers)
    }

    fn reference(
        input: &ReferenceTensor,
        dim: usize,
        index: &ReferenceTensor,
        src: &ReferenceTensor,
    ) -> Result<ReferenceTensor> {
        check_indices(index, dim, input.shape()[dim])?;
        Ok(replaced(input, src, |at| {
            let mut target = at.to_vec();
            target[dim] = index.integers()[at] as usize;
            target
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [3]), s.normal([3])));
        // Several elements for one place.
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [12]), s.normal([12])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [5, 6]), s.normal([5, 6])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [3, 9]).cast(DType::I32), s.normal([3, 9])));
        s.case(with(s.normal([3, 1, 5]), 2, s.integers(0, 5, [3, 1, 2]), s.normal([3, 1, 2])));
        s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [4, 0]), s.normal([4, 0])));
        s.case(with(s.normal([5, 5]), 1, s.integers(0, 5, [5, 5]), s.normal([5, 5])));
        s.case(with(s.normal([2, 3, 40, 8]), 2, s.integers(0, 40, [2, 3, 5, 8]), s.normal([2, 3, 5, 8])));
        s.case(with(s.normal([65, 50]), 1, s.integers(0, 50, [65, 67]), s.normal([65, 67])));
        s.case(with(s.normal([2]), 0, s.integers(0, 2, [1100]), s.normal([1100])));
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
