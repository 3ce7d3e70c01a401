use fulgurite_ops_macros::operator;

use super::all_gather;
use super::among::{self, Reduce};
use crate::prims::div;

/// The sum or the mean of `input` over the ranks along `axis`, in equal parts along dimension `dim`: each rank has the
/// part of its place. Sums of types of 16 bits are f32 until the end; integers wrap. The executor chooses the order in
/// which ranks are added.
#[operator(prim, effects(collective))]
pub mod reduce_scatter {
    fn reduce_scatter(input: Tensor<Number>, axis: String, dim: usize, op: Reduce) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, dim: usize, op: Reduce) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        among::divisible(("dim", dim), input.shape(), ranks, [Code::DimensionRange, Code::Divisible])?;
        require!(matches!(op, Reduce::Sum | Reduce::Mean), SumOrMean, "op is {op:?}, expected a sum or a mean");
        require!(
            op != Reduce::Mean || input.dtype().is_floating(),
            FloatingDType,
            "input is {}, expected a floating-point dtype, which a mean has",
            input.dtype()
        );
        let mut shape = input.shape().to_vec();
        shape[dim] /= ranks;
        Ok(input.with_shape(shape))
    }

    fn grad(input: Tensor, axis: String, dim: usize, op: Reduce) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = reduce_scatter(input, &axis, dim, op);
        let ranks = input.shape()[dim].checked_div(out.shape()[dim]).unwrap_or(1);
        (out, move |d_out: Tensor| {
            let gathered = all_gather(d_out, axis, dim);
            Grads { input: if op == Reduce::Mean { div(gathered, ranks as f64) } else { gathered } }
        })
    }

    fn reference(input: &ReferenceTensor, axis: &str, dim: usize, op: Reduce) -> Result<ReferenceTensor> {
        let (all, place) = among::all_ranks(&format!("reduce_scatter of dim {dim} by {op:?}"), axis, input)?;
        Ok(among::part(&among::reduced(&all, op), dim, place, all.len()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([8]), "data=1", 0, Reduce::Sum));
        s.case(with(s.normal([4, 6]), "data=1", 0, Reduce::Sum));
        s.case(with(s.normal([3, 8, 2]), "data=1", 1, Reduce::Sum));
        s.case(with(s.normal([0, 3]), "data=1", 0, Reduce::Sum));
        s.case(with(s.normal([64, 65]), "data=1", 0, Reduce::Sum));
        if s.dtype().is_floating() {
            s.case(with(s.normal([4, 6]), "data=1", 0, Reduce::Mean));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "", 0, Reduce::Sum), "'' is not an axis of a mesh");
        e.case(DimensionRange, with(e.normal([2]), "data=1", 1, Reduce::Sum), "dim is 1");
        e.case(Divisible, with(e.normal([6]), "data=4", 0, Reduce::Sum), "of extent 6, is divided among 4 ranks");
        e.case(SumOrMean, with(e.normal([2]), "data=1", 0, Reduce::Max), "op is Max");
        e.case(FloatingDType, with(e.of(DType::I64, [2]), "data=1", 0, Reduce::Mean), "input is i64");
    }
}
