use fulgurite_ops_macros::operator;

use super::updates::{self, Step, applied};
use crate::core::promotion::cast;
use crate::prims;

/// One step of stochastic gradient descent: the new parameter, and the new momentum if there is one. With `g = grad +
/// weight_decay · param`: `b = momentum · b + (1 - dampening) g` (`+ g` in step 1, where `b` is 0), `param -= lr · b`,
/// or with `nesterov` `param -= lr (g + momentum · b)`; without `momentum` `param -= lr · g`. `maximize` turns the sign
/// of `grad`. This is torch.optim.SGD. Sutskever et al., 2013.
///
/// `lr` and `step` (from 1) are zero-dimensional f32 tensors. Everything is computed in f32 (f64 of f64) and rounded
/// once; states have the type of `param` or f32. Where `apply`, a zero-dimensional tensor, is false, the results are
/// `param` and the states as they are. This holds for all optimizers.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod sgd {
    fn sgd(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        momentum_buffer: Option<Tensor<Floating>>,
        lr: Tensor<Floating>,
        step: Tensor<Floating>,
        #[default(0.0)] momentum: f64,
        #[default(0.0)] dampening: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(false)] nesterov: bool,
        #[default(false)] maximize: bool,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> Vec<Tensor>;

    fn meta(args: Args<&TensorMeta>) -> Result<Vec<TensorMeta>> {
        let Args { param, grad, momentum_buffer, lr, step, momentum, dampening, weight_decay, nesterov, apply, .. } =
            args;
        let numbers = [("lr", Some(lr)), ("step", Some(step)), ("apply", apply)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &[("momentum_buffer", momentum_buffer)], numbers, codes)?;
        updates::not_negative(&[("momentum", momentum), ("weight_decay", weight_decay)], Code::Settings)?;
        require!(
            (momentum != 0.0) == momentum_buffer.is_some(),
            Buffer,
            "momentum is {momentum} and momentum_buffer is {}, expected a buffer where there is momentum",
            if momentum_buffer.is_some() { "given" } else { "absent" }
        );
        require!(
            !nesterov || (momentum > 0.0 && dampening == 0.0),
            Nesterov,
            "nesterov is set, momentum is {momentum}, dampening {dampening}, expected momentum and no dampening"
        );
        Ok([param].into_iter().chain(momentum_buffer).cloned().collect())
    }

    fn decomposition(args: Args<Tensor>) -> Vec<Tensor> {
        let Args { param, grad, momentum_buffer, lr, step, momentum, dampening, .. } = args;
        let Args { weight_decay, nesterov, maximize, apply, .. } = args;
        let mut own = Step::new([param, grad], [lr, step]);
        if maximize {
            own.grad = prims::neg(own.grad);
        }
        let grad = own.decayed_grad(weight_decay);
        let Some(buffer) = momentum_buffer else {
            return applied([(own.moved(own.param, own.lr, grad), param)], apply).to_vec();
        };
        let weighted = if dampening == 0.0 {
            grad
        } else {
            let later = cast(prims::ne(own.step, 1.0), DType::F64);
            prims::mul(grad, own.number(prims::sub(1.0, prims::mul(later, dampening))))
        };
        let next = prims::add(prims::mul(own.state(buffer), momentum), weighted);
        let change = if nesterov { prims::add(grad, prims::mul(next, momentum)) } else { next };
        applied([(own.moved(own.param, own.lr, change), param), (next, buffer)], apply).to_vec()
    }

    fn reference(args: Args<&ReferenceTensor>) -> Vec<ArrayD<f64>> {
        let Args { param, grad, momentum_buffer, lr, step, momentum, dampening, .. } = args;
        let Args { weight_decay, nesterov, maximize, apply, .. } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return [param].into_iter().chain(momentum_buffer).cloned().collect();
        }
        let sign = if maximize { -1.0 } else { 1.0 };
        let grad = grad * sign + &(param * weight_decay);
        let Some(buffer) = momentum_buffer else { return vec![param - &(grad * lr.sum())] };
        let share = if step.sum() == 1.0 { 1.0 } else { 1.0 - dampening };
        let next = buffer * momentum + &(&grad * share);
        let change = if nesterov { &grad + &(&next * momentum) } else { next.clone() };
        vec![param - &(change * lr.sum()), next]
    }

    fn samples(s: &mut Samples) {
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let plain = |shape: &[usize]| with(s.normal(shape), s.normal(shape), None, number(0.1), number(3.0));
        let buffered = |shape: &[usize], step: f64| {
            let buffer = s.normal(shape).cast(s.dtype().accumulator());
            with(s.normal(shape), s.normal(shape), Some(buffer), number(0.1), number(step)).momentum(0.9)
        };
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            plain(&[4, 8]),
            plain(&[]).weight_decay(0.25).maximize(true),
            buffered(&[33, 5], 2.0).weight_decay(0.1),
            buffered(&[7], 2.0).nesterov(true),
            buffered(&[5], 2.0).dampening(0.25).apply(always),
            buffered(&[0, 3], 2.0),
            buffered(&[3, 5], 4.0).apply(never),
        ];
        let zeros = s.values([5], [0.0]).cast(s.dtype().accumulator());
        let first = with(s.normal([5]), s.normal([5]), Some(zeros), number(0.1), number(1.0));
        let first = first.momentum(0.9).dampening(0.5);
        let slow = buffered(&[5], 3.0).momentum(0.25).nesterov(true);
        for case in cases {
            s.case(case);
        }
        s.case(first);
        s.case(slow);
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let good = || with(e.normal([2]), e.normal([2]), None, number(), number());
        let wide = || e.normal([2]).cast(e.dtype().accumulator());
        let buffered = || with(e.normal([2]), e.normal([2]), Some(wide()), number(), number()).momentum(0.5);
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
        let wrong = ARGUMENTS.momentum_buffer.set(buffered(), Some(e.of(DType::F16, [2])));
        e.case(StateDType, wrong, "momentum_buffer is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        e.case(Settings, ARGUMENTS.weight_decay.set(good(), -1.0), "weight_decay is -1, expected at least 0");
        e.case(Buffer, good().momentum(0.5), "momentum is 0.5 and momentum_buffer is absent");
        e.case(Nesterov, good().nesterov(true), "nesterov is set, momentum is 0, dampening 0");
        e.case(Nesterov, buffered().nesterov(true).dampening(0.5), "momentum is 0.5, dampening 0.5");
    }
}
