//! RMSprop, Adagrad and Adadelta.

use fulgurite_ops_macros::operator;

use super::updates::{self, Step, applied, mean_of, mean_of_squares};
use crate::prims;

/// One step of RMSprop: the new parameter and the new states, in the order of the arguments. With `g = grad +
/// weight_decay · param`: `s = α s + (1 - α) g²`, of which with `grad_avg` (centred) the square of its new running mean
/// is subtracted; `u = g / (√s + ε)`, and with `momentum_buffer` `b = momentum · b + u` takes the place of `u`; `param
/// -= lr · u`. As torch.optim.RMSprop computes it. The number of the step has no effect; numbers, types and `apply` are
/// those of [`mod@crate::optim::sgd`]. Tieleman & Hinton, 2012; Graves, 2013.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod rmsprop {
    fn rmsprop(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        square_avg: Tensor<Floating>,
        grad_avg: Option<Tensor<Floating>>,
        momentum_buffer: Option<Tensor<Floating>>,
        lr: Tensor<Floating>,
        #[default(0.99)] alpha: f64,
        #[default(1e-8)] eps: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(0.0)] momentum: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> Vec<Tensor>;

    fn meta(args: Args<&TensorMeta>) -> Result<Vec<TensorMeta>> {
        let Args { param, grad, square_avg, grad_avg, momentum_buffer, lr, .. } = args;
        let Args { alpha, eps, weight_decay, momentum, apply, .. } = args;
        let states = [("square_avg", Some(square_avg)), ("grad_avg", grad_avg), ("momentum_buffer", momentum_buffer)];
        let numbers = [("lr", Some(lr)), ("apply", apply), ("step", None)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &states, numbers, codes)?;
        updates::below_one(&[("alpha", alpha)], Code::Alpha)?;
        updates::not_negative(&[("eps", eps), ("weight_decay", weight_decay), ("momentum", momentum)], Code::Settings)?;
        require!(
            (momentum > 0.0) == momentum_buffer.is_some(),
            Buffer,
            "momentum is {momentum} and momentum_buffer is {}, expected a buffer where there is momentum",
            if momentum_buffer.is_some() { "given" } else { "absent" }
        );
        Ok([param, square_avg].into_iter().chain(grad_avg).chain(momentum_buffer).cloned().collect())
    }

    fn decomposition(args: Args<Tensor>) -> Vec<Tensor> {
        let Args { param, grad, square_avg, grad_avg, momentum_buffer, lr, .. } = args;
        let Args { alpha, eps, weight_decay, momentum, apply, .. } = args;
        let own = Step::new([param, grad], [lr, lr]);
        let grad = own.decayed_grad(weight_decay);
        let square = mean_of_squares(own.state(square_avg), grad, alpha);
        let mean = grad_avg.map(|mean| (mean_of(own.state(mean), grad, alpha), mean));
        let spread = mean.map_or(square, |(mean, _)| prims::sub(square, prims::mul(mean, mean)));
        let scaled = prims::div(grad, prims::add(prims::sqrt(spread), eps));
        let buffer = momentum_buffer.map(|buffer| {
            let kept = prims::mul(own.state(buffer), momentum);
            (prims::add(kept, scaled), buffer)
        });
        let change = buffer.map_or(scaled, |(buffer, _)| buffer);
        let next = own.moved(own.param, own.lr, change);
        let pairs = [(next, param), (square, square_avg)].into_iter().chain(mean).chain(buffer);
        pairs.flat_map(|pair| applied([pair], apply)).collect()
    }

    fn reference(args: Args<&ReferenceTensor>) -> Vec<ArrayD<f64>> {
        let Args { param, grad, square_avg, grad_avg, momentum_buffer, lr, .. } = args;
        let Args { alpha, eps, weight_decay, momentum, apply, .. } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            let states = [param, square_avg].into_iter().chain(grad_avg).chain(momentum_buffer);
            return states.cloned().collect();
        }
        let grad = grad + &(param * weight_decay);
        let square = square_avg * alpha + &(&grad * &grad * (1.0 - alpha));
        let mean = grad_avg.map(|mean| mean * alpha + &(&grad * (1.0 - alpha)));
        let spread = mean.as_ref().map_or(square.clone(), |mean| &square - &(mean * mean));
        let scaled = &grad / &(spread.mapv(f64::sqrt) + eps);
        let buffer = momentum_buffer.map(|buffer| buffer * momentum + &scaled);
        let next = param - &(buffer.as_ref().unwrap_or(&scaled) * lr.sum());
        [next, square].into_iter().chain(mean).chain(buffer).collect()
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize], centred: bool, momentum: f64| {
            // The square of a mean is below the mean of squares.
            let mean = centred.then(|| s.uniform(-0.5, 0.5, shape).cast(wide));
            let buffer = (momentum > 0.0).then(|| s.normal(shape).cast(wide));
            let square = s.uniform(0.5, 1.0, shape).cast(wide);
            with(s.normal(shape), s.normal(shape), square, mean, buffer, number(0.01)).momentum(momentum)
        };
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            update(&[4, 8], false, 0.0),
            update(&[7], true, 0.0).alpha(0.75).weight_decay(0.25),
            update(&[33, 5], true, 0.9).apply(always),
            update(&[], false, 0.25).eps(0.25),
            update(&[0, 3], false, 0.0),
            update(&[3, 5], true, 0.9).apply(never),
            update(&[5], false, 0.125),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let wide = || e.normal([2]).cast(e.dtype().accumulator());
        let good = || with(e.normal([2]), e.normal([2]), wide(), None, None, number());
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
        let narrow = ARGUMENTS.square_avg.set(good(), e.of(DType::F16, [2]));
        e.case(StateDType, narrow, "square_avg is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        e.case(Alpha, good().alpha(1.0), "alpha is 1, expected 0 to below 1");
        e.case(Settings, good().eps(-1.0), "eps is -1, expected at least 0");
        e.case(Buffer, good().momentum(0.5), "momentum is 0.5 and momentum_buffer is absent");
    }
}

/// One step of Adagrad: the new parameter, and the new sum of squares. With `g = grad + weight_decay · param`: `s = s +
/// g²`, `param -= lr / (1 + (t - 1) lr_decay) · g / (√s + ε)`, as torch.optim.Adagrad computes it. Numbers, types and
/// `apply` are those of [`mod@crate::optim::sgd`]. Duchi, Hazan & Singer, 2011.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod adagrad {
    #[results(out, squares)]
    fn adagrad(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        sum: Tensor<Floating>,
        lr: Tensor<Floating>,
        step: Tensor<Floating>,
        #[default(0.0)] lr_decay: f64,
        #[default(1e-10)] eps: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { param, grad, sum, lr, step, lr_decay, eps, weight_decay, apply } = args;
        let numbers = [("lr", Some(lr)), ("step", Some(step)), ("apply", apply)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &[("sum", Some(sum))], numbers, codes)?;
        updates::not_negative(&[("lr_decay", lr_decay), ("eps", eps), ("weight_decay", weight_decay)], Code::Settings)?;
        Ok((param.clone(), sum.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { param, grad, sum, lr, step, lr_decay, eps, weight_decay, apply } = args;
        let own = Step::new([param, grad], [lr, step]);
        let grad = own.decayed_grad(weight_decay);
        let squares = prims::add(own.state(sum), prims::mul(grad, grad));
        let slower = prims::add(prims::mul(prims::sub(own.step, 1.0), lr_decay), 1.0);
        let scaled = prims::div(grad, prims::add(prims::sqrt(squares), eps));
        let next = own.moved(own.param, prims::div(own.lr, slower), scaled);
        let [next, squares] = applied([(next, param), (squares, sum)], apply);
        (next, squares)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, sum, lr, step, lr_decay, eps, weight_decay, apply } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return (param.clone(), sum.clone());
        }
        let grad = grad + &(param * weight_decay);
        let squares = sum + &(&grad * &grad);
        let rate = lr.sum() / (1.0 + (step.sum() - 1.0) * lr_decay);
        (param - &(grad / &(squares.mapv(f64::sqrt) + eps) * rate), squares)
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize], step: f64| {
            let sum = s.uniform(0.5, 1.0, shape).cast(wide);
            with(s.normal(shape), s.normal(shape), sum, number(0.1), number(step))
        };
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            update(&[4, 8], 1.0),
            update(&[7], 10.0).lr_decay(0.5).weight_decay(0.25).apply(always),
            update(&[], 3.0).eps(0.5),
            update(&[0, 3], 1.0),
            update(&[3, 5], 1.0).apply(never),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let wide = || e.normal([2]).cast(e.dtype().accumulator());
        let good = || with(e.normal([2]), e.normal([2]), wide(), number(), number());
        e.case(SameShape, ARGUMENTS.sum.set(good(), e.normal([3])), "sum has shape [3], param [2]");
        e.case(StateDType, ARGUMENTS.sum.set(good(), e.of(DType::F16, [2])), "sum is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.step.set(good(), e.normal([1])), "step has shape [1], expected []");
        e.case(Settings, good().lr_decay(-1.0), "lr_decay is -1, expected at least 0");
    }
}

/// One step of Adadelta: the new parameter, and the new running means of the squares of the gradient and of the change.
/// With `g = grad + weight_decay · param`: `s = ρ s + (1 - ρ) g²`, `u = √(a + ε) / √(s + ε) · g`, `a = ρ a + (1 - ρ)
/// u²`, `param -= lr · u`, as torch.optim.Adadelta computes it. The number of the step has no effect; numbers, types
/// and `apply` are those of [`mod@crate::optim::sgd`]. Zeiler, 2012.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod adadelta {
    #[results(out, square, change)]
    fn adadelta(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        square_avg: Tensor<Floating>,
        acc_delta: Tensor<Floating>,
        lr: Tensor<Floating>,
        #[default(0.9)] rho: f64,
        #[default(1e-6)] eps: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { param, grad, square_avg, acc_delta, lr, rho, eps, weight_decay, apply } = args;
        let states = [("square_avg", Some(square_avg)), ("acc_delta", Some(acc_delta))];
        let numbers = [("lr", Some(lr)), ("apply", apply), ("step", None)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &states, numbers, codes)?;
        updates::below_one(&[("rho", rho)], Code::Rho)?;
        updates::not_negative(&[("eps", eps), ("weight_decay", weight_decay)], Code::Settings)?;
        Ok((param.clone(), square_avg.clone(), acc_delta.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { param, grad, square_avg, acc_delta, lr, rho, eps, weight_decay, apply } = args;
        let own = Step::new([param, grad], [lr, lr]);
        let grad = own.decayed_grad(weight_decay);
        let square = mean_of_squares(own.state(square_avg), grad, rho);
        let before = own.state(acc_delta);
        let root = |x: Tensor| prims::sqrt(prims::add(x, eps));
        let change = prims::mul(prims::div(root(before), root(square)), grad);
        let next = own.moved(own.param, own.lr, change);
        let changes = mean_of_squares(before, change, rho);
        let [next, square, changes] = applied([(next, param), (square, square_avg), (changes, acc_delta)], apply);
        (next, square, changes)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, square_avg, acc_delta, lr, rho, eps, weight_decay, apply } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return (param.clone(), square_avg.clone(), acc_delta.clone());
        }
        let grad = grad + &(param * weight_decay);
        let mixed = |old: &ArrayD<f64>, new: &ArrayD<f64>| old * rho + &(new * new * (1.0 - rho));
        let square = mixed(square_avg, &grad);
        let change = ((acc_delta + eps) / &(&square + eps)).mapv(f64::sqrt) * &grad;
        (param - &(&change * lr.sum()), square, mixed(acc_delta, &change))
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize]| {
            let [square, change] = [0.5, 0.25].map(|low| s.uniform(low, 1.0, shape).cast(wide));
            with(s.normal(shape), s.normal(shape), square, change, number(0.5))
        };
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            update(&[4, 8]),
            update(&[7]).rho(0.5).weight_decay(0.25).apply(always),
            update(&[]).eps(0.5),
            update(&[0, 3]),
            update(&[3, 5]).apply(never),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let wide = || e.normal([2]).cast(e.dtype().accumulator());
        let good = || with(e.normal([2]), e.normal([2]), wide(), wide(), number());
        e.case(SameShape, ARGUMENTS.acc_delta.set(good(), e.normal([3])), "acc_delta has shape [3], param [2]");
        e.case(StateDType, ARGUMENTS.square_avg.set(good(), e.of(DType::F16, [2])), "square_avg is f16");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        e.case(Rho, good().rho(1.0), "rho is 1, expected 0 to below 1");
        e.case(Settings, good().eps(-1.0), "eps is -1, expected at least 0");
    }
}
