use fulgurite_ops_macros::operator;

use super::checks::{dimension, same_dtype};
use super::support::{same_but, with_extent};
use crate::prims::slice;

/// The tensors one after another along dimension `dim`; all other extents and the element types are equal.
#[operator(prim, exact, overload = Cat, torch = "cat")]
pub mod cat {
    fn cat(tensors: Vec<Tensor>, dim: usize) -> Tensor;

    fn meta(tensors: &[TensorMeta], dim: usize) -> Result<TensorMeta> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        let first = &tensors[0];
        dimension(dim, ("tensors[0]", first), Code::DimensionRange)?;
        for (i, tensor) in tensors.iter().enumerate() {
            require!(
                same_but(first.shape(), tensor.shape(), dim),
                SameShape,
                "tensors[{i}] has shape {:?}, expected {:?} but for dimension {dim}",
                tensor.shape(),
                first.shape()
            );
            same_dtype((&format!("tensors[{i}]"), tensor), ("tensors[0]", first), Code::SameDType)?;
        }
        let total = tensors.iter().map(|tensor| tensor.shape()[dim]).sum();
        Ok(first.with_shape(with_extent(first.shape(), dim, total)))
    }

    fn grad(tensors: Vec<Tensor>, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (cat(&tensors, dim), move |d_out: Tensor| {
            let mut at = 0;
            let part = |tensor: &fulgurite_runtime::Tensor| {
                let (mut ends, rank) = (tensor.shape().to_vec(), tensor.rank());
                let mut starts = vec![0; rank];
                starts[dim] = at;
                at += ends[dim];
                ends[dim] = at;
                slice(d_out, starts, ends, vec![1; rank])
            };
            Grads { tensors: tensors.iter().map(part).collect() }
        })
    }

    fn reference(tensors: &[ReferenceTensor], dim: usize) -> ReferenceTensor {
        let axis = ndarray::Axis(dim);
        if tensors[0].dtype().is_floating() {
            let views: Vec<_> = tensors.iter().map(|tensor| tensor.floats().view()).collect();
            ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("meta checked the shapes")).into()
        } else {
            let views: Vec<_> = tensors.iter().map(|tensor| tensor.integers().view()).collect();
            ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("meta checked the shapes")).into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([7])], 0));
        s.case(with([s.normal([7]), s.normal([1]), s.normal([0])], 0));
        s.case(with([s.normal([2, 6]), s.normal([3, 6])], 0));
        s.case(with([s.normal([4, 2]), s.normal([4, 5]), s.normal([4, 1])], 1));
        s.case(with([s.normal([3, 2, 5]), s.normal([3, 4, 5])], 1));
        s.case(with([s.normal([0, 3]), s.normal([0, 2])], 1));
        s.case(with([s.normal([65, 33]), s.normal([65, 32])], 1));
        // Columns that end a tile's length after its start, with gaps between their elements in the result.
        s.case(with([s.normal([2049, 1]), s.normal([2049, 1])], 1));
        s.case(with([s.normal([4097, 1]), s.normal([4097, 1])], 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([], 0), "tensors is empty");
        e.case(DimensionRange, with([e.normal([2])], 1), "dim is 1");
        e.case(SameShape, with([e.normal([2, 3]), e.normal([2, 4])], 0), "tensors[1] has shape [2, 4]");
        e.case(SameShape, with([e.normal([2, 3]), e.normal([4, 3])], 1), "tensors[1] has shape [4, 3]");
        let other = super::super::support::another(e.dtype());
        e.case(SameDType, with([e.normal([2]), e.of(other, [2])], 0), "expected equal dtypes");
    }
}
