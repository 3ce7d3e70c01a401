use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::{DType, Tensor};

use super::arrays::zip;
use super::promotion::{
    broadcast, cast, common_shape, describe_shapes, elementwise_meta, nearest_number, result_type, sum_to,
};
use crate::prims;

/// Each element, but at least `min` and at most `max`, numbers or tensors, with broadcasting and type promotion; where
/// `min` is above `max` it is `max`. NaN of any of the three gives NaN. A bound is absent if it is an infinite number,
/// as it is by default: it does not take part in type promotion then. An element at a bound has the gradient, beyond it
/// the bound has. Booleans have one bound, a tensor, as in PyTorch.
#[operator(torch = "clamp")]
pub mod clamp {
    fn clamp(
        input: Tensor,
        #[default(f64::NEG_INFINITY)] min: Operand,
        #[default(f64::INFINITY)] max: Operand,
    ) -> Tensor;

    fn meta(input: &TensorMeta, min: Operand<&TensorMeta>, max: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let all = super::present([Operand::Tensor(input), min, max]);
        require!(common_shape(&all).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&all));
        let dtype = result_type(&all);
        require!(
            dtype != DType::Bool || (all.len() == 2 && all[1].tensor().is_some()),
            Booleans,
            "input and its bounds are booleans, expected one bound, a tensor"
        );
        Ok(elementwise_meta(&all, dtype))
    }

    fn decomposition(input: Tensor, min: Operand<Tensor>, max: Operand<Tensor>) -> Tensor {
        let (input, [min, max]) = super::met(input, [min, max]);
        if input.dtype() == DType::Bool {
            return if super::is_absent(min) { prims::logical_and(input, max) } else { prims::logical_or(input, min) };
        }
        let raised = if super::is_absent(min) { input } else { prims::maximum(input, min) };
        if super::is_absent(max) { raised } else { prims::minimum(raised, max) }
    }

    fn grad(input: Tensor, min: Operand<Tensor>, max: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input).min(min).max(max).call();
        (out, move |d_out: Tensor| {
            let (x, [low, high]) = super::met(input, [min, max]);
            let of = |kept: Tensor, like: Tensor| {
                let chosen = prims::select(kept, d_out, 0.0);
                cast(sum_to(chosen, &like.shape()), like.dtype())
            };
            let inside = prims::logical_and(prims::ge(x, low), prims::le(x, high));
            Grads {
                input: of(inside, input),
                min: min.tensor().map(|min| of(prims::logical_and(prims::lt(x, low), prims::lt(low, high)), *min)),
                max: max.tensor().map(|max| of(prims::logical_or(prims::gt(x, high), prims::gt(low, high)), *max)),
            }
        })
    }

    fn reference(input: &ArrayD<f64>, min: ArrayD<f64>, max: ArrayD<f64>) -> ArrayD<f64> {
        let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        let smaller = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) };
        zip(&zip(input, &min, larger), &max, smaller)
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([3, 4])).min(s.normal([4])));
            s.case(with(s.normal([])).max(s.normal([5])));
            s.case(with(s.normal([5])).min(0).max(2));
            return;
        }
        s.case(with(s.normal([4, 8])).min(-1).max(1));
        s.case(with(s.normal([5])).min(0));
        s.case(with(s.normal([2, 3])).max(1));
        s.case(with(s.normal([])).min(s.normal([])));
        s.case(with(s.normal([0, 3])).min(1).max(2));
        s.case(with(s.normal([3, 1, 5])).min(s.uniform(-6.0, 0.0, [4, 1])).max(s.uniform(1.0, 6.0, [5])));
        s.case(with(s.normal([3, 4])).max(s.normal([4])));
        s.case(with(s.normal([4])).min(0.5));
        s.case(with(s.normal([3])).max(s.of(DType::I32, [2, 3])));
        let edges = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0];
        s.case(with(s.values([6], edges)).min(-1).max(1))
            .forward_only("elements at bounds")
            .gradients([&[0.0, 2.0, 3.0, 4.0, 0.0, 0.0]]);
        s.case(with(s.values([6], edges)).min(2).max(1)).forward_only("min above max");
        if s.dtype().is_floating() {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.0];
            let (low, high) = (s.values([6], [0.0, 0.0, 0.0, 0.0, -0.0, f64::NAN]), s.values([6], [5.0; 6]));
            s.case(with(s.values([6], special)).min(low).max(high)).forward_only("special values");
            let (low, high) = (s.values([2], [1.0, 1.0]), s.values([2], [1.0, 1.0]));
            s.case(with(s.values([2], [0.0, 3.0])).min(low).max(high)).forward_only("equal bounds").gradients([
                &[0.0, 0.0],
                &[0.0, 0.0],
                &[0.0, 2.0],
            ]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3])).min(e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        let both = with(e.booleans([2])).min(e.booleans([2])).max(e.booleans([2]));
        e.case(Booleans, both, "expected one bound, a tensor");
        e.case(Booleans, with(e.booleans([2])).min(false), "expected one bound, a tensor");
    }
}

/// Whether an operand is an infinite number, which bounds nothing.
fn is_absent<V>(bound: Operand<V>) -> bool {
    matches!(bound, Operand::Scalar(number) if number.to_f64().is_infinite())
}

/// The operands but the infinite numbers.
fn present<V: Copy, const N: usize>(operands: [Operand<V>; N]) -> Vec<Operand<V>> {
    operands.into_iter().filter(|operand| !is_absent(*operand)).collect()
}

/// The operands, of one shape and in the type they meet in; infinite numbers as they are.
#[track_caller]
fn met(input: Tensor, bounds: [Operand<Tensor>; 2]) -> (Tensor, [Operand<Tensor>; 2]) {
    let all = [Operand::Tensor(input), bounds[0], bounds[1]];
    let dtype = result_type(&present(all));
    let shape = common_shape(&all).unwrap_or_default();
    let spread = |tensor: Tensor| broadcast(cast(tensor, dtype), &shape);
    let of = |bound: Operand<Tensor>| match bound {
        Operand::Tensor(tensor) => Operand::Tensor(spread(tensor)),
        Operand::Scalar(_) if is_absent(bound) => bound,
        Operand::Scalar(number) => Operand::Scalar(nearest_number(number, dtype)),
    };
    (spread(input), bounds.map(of))
}
