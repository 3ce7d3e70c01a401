use fulgurite_ops_macros::operator;

use super::among::{self, Reduce};
use super::reduce_scatter;

/// `input` of the ranks along `axis`, one after another along dimension `dim`, on each of them.
#[operator(prim, exact, effects(collective))]
pub mod all_gather {
    fn all_gather(input: Tensor<Number>, axis: String, dim: usize) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, dim: usize) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        crate::prims::checks::dimension(dim, ("input", input), Code::DimensionRange)?;
        let mut shape = input.shape().to_vec();
        shape[dim] = among::joined_extent(shape[dim], ranks, Code::Extent)?;
        Ok(input.with_shape(shape))
    }

    fn grad(input: Tensor, axis: String, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (all_gather(input, &axis, dim), move |d_out: Tensor| Grads {
            input: reduce_scatter(d_out, axis, dim, Reduce::Sum),
        })
    }

    fn reference(input: &ReferenceTensor, axis: &str, dim: usize) -> Result<ReferenceTensor> {
        let (all, _) = among::all_ranks(&format!("all_gather of dim {dim}"), axis, input)?;
        Ok(among::joined(&all, dim))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), "data=1", 0));
        s.case(with(s.normal([4, 6]), "data=1", 0));
        s.case(with(s.normal([3, 5, 2]), "data=1", 1));
        s.case(with(s.normal([0, 3]), "data=1", 0));
        s.case(with(s.normal([67, 65]), "data=1", 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data=0", 0), "'data=0' is not an axis of a mesh");
        e.case(Extent, with(e.normal([0, 1 << 46]), "data=4", 1), "4 tensors of extent 70368744177664 are larger");
        e.case(DimensionRange, with(e.normal([2]), "data=1", 1), "dim is 1");
    }
}
