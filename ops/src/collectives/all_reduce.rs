use fulgurite_ops_macros::operator;

use super::among::{self, Reduce};
use crate::prims::{broadcast_in_dim, convert_element_type, div, eq, mul};

/// What `input` of the ranks along `axis` is together, on each of them: by `op` the sum, the mean, the largest or the
/// smallest, elementwise. Sums of types of 16 bits are f32 until the end; integers wrap. The executor chooses
/// the order in which ranks are added.
#[operator(prim, effects(collective), overload = AllReduce)]
pub mod all_reduce {
    fn all_reduce(input: Tensor<Number>, axis: String, op: Reduce) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, op: Reduce) -> Result<TensorMeta> {
        among::extent(axis, Code::Axis)?;
        require!(
            op != Reduce::Mean || input.dtype().is_floating(),
            FloatingDType,
            "input is {}, expected a floating-point dtype, which a mean has",
            input.dtype()
        );
        Ok(input.clone())
    }

    fn grad(input: Tensor, axis: String, op: Reduce) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = all_reduce(input, &axis, op);
        (out, move |d_out: Tensor| match op {
            Reduce::Sum | Reduce::Mean => Grads { input: all_reduce(d_out, axis, op) },
            // Ranks that share the extremum share the cotangent.
            Reduce::Max | Reduce::Min => {
                let best = convert_element_type(eq(input, out), input.dtype());
                let each = div(all_reduce(d_out, &axis, Reduce::Sum), all_reduce(best, &axis, Reduce::Sum));
                Grads { input: mul(best, broadcast_in_dim(each, input.shape(), (0..input.rank()).collect::<Vec<_>>())) }
            }
        })
    }

    fn reference(input: &ReferenceTensor, axis: &str, op: Reduce) -> Result<ReferenceTensor> {
        let (all, _) = among::all_ranks(&format!("all_reduce by {op:?}"), axis, input)?;
        Ok(among::reduced(&all, op))
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 6], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape), "data=1", Reduce::Sum));
        }
        for op in [Reduce::Mean, Reduce::Max, Reduce::Min] {
            if op != Reduce::Mean || s.dtype().is_floating() {
                s.case(with(s.normal([8, 3]), "data=1", op));
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data", Reduce::Sum), "'data' is not an axis of a mesh");
        e.case(FloatingDType, with(e.of(DType::I64, [2]), "data=1", Reduce::Mean), "input is i64");
    }
}
