//! Adam and those that have its states and settings.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::Tensor;

use super::updates::{self, Step, applied, mean_of, mean_of_squares};
use crate::core::promotion::broadcast;
use crate::prims;

operators! {
    #[operator(no_grad = "an optimizer's update is not differentiated")]
    pub mod $name {
        #[results(out, mean, second)]
        fn $name(
            param: Tensor<Floating>,
            grad: Tensor<Floating>,
            exp_avg: Tensor<Floating>,
            $state: Tensor<Floating>,
            lr: Tensor<Floating>,
            step: Tensor<Floating>,
            #[default(0.9)] beta1: f64,
            #[default(0.999)] beta2: f64,
            #[default($default_eps)] eps: f64,
            #[default(0.0)] weight_decay: f64,
            #[default(None)] apply: Option<Tensor<Boolean>>,
        ) -> (Tensor, Tensor, Tensor);

        fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
            let Args { param, grad, exp_avg, $state, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
            let states = [("exp_avg", Some(exp_avg)), (stringify!($state), Some($state))];
            let numbers = [("lr", Some(lr)), ("step", Some(step)), ("apply", apply)];
            let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
            updates::check(param, grad, &states, numbers, codes)?;
            updates::below_one(&[("beta1", beta1), ("beta2", beta2)], Code::Beta)?;
            updates::not_negative(&[("eps", eps), ("weight_decay", weight_decay)], Code::Settings)?;
            Ok((param.clone(), exp_avg.clone(), $state.clone()))
        }

        fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
            let Args { param, grad, exp_avg, $state, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
            let own = Step::new([param, grad], [lr, step]);
            let states = [own.state(exp_avg), own.state($state)];
            let (next, [mean, second]) = super::$update(&own, states, [beta1, beta2, eps, weight_decay]);
            let pairs = [(next, param), (mean, exp_avg), (second, $state)];
            let [next, mean, second] = applied(pairs, apply);
            (next, mean, second)
        }

        fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
            let Args { param, grad, exp_avg, $state, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
            if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
                return (param.clone(), exp_avg.clone(), $state.clone());
            }
            let (lr, t) = (lr.sum(), step.sum());
            let coupled = $coupled;
            let grad = grad + &(param * if coupled { weight_decay } else { 0.0 });
            let mean = exp_avg * beta1 + &(&grad * (1.0 - beta1));
            let second = ndarray::Zip::from($state).and(&grad).map_collect(|s, g| $second(*s, *g, beta2, eps));
            let corrected = |x: f64, beta: f64| x / (1.0 - beta.powf(t));
            let change = ndarray::Zip::from(&mean).and(&second).map_collect(|m, s| {
                corrected(*m, beta1) / $below(*s, corrected(*s, beta2), eps)
            });
            let change = change + &(param * if coupled { 0.0 } else { weight_decay });
            let norm = |x: &ArrayD<f64>| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let norms = (norm(param), norm(&change));
            let trust = if coupled || norms.0 == 0.0 || norms.1 == 0.0 { 1.0 } else { norms.0 / norms.1 };
            (param - &(change * (lr * trust)), mean, second)
        }

        fn samples(s: &mut Samples) {
            let wide = s.dtype().accumulator();
            let number = |value: f64| s.values([], [value]).cast(DType::F32);
            let update = |shape: &[usize], lr: f64, step: f64| {
                let second = s.uniform(0.5, 1.0, shape).cast(wide);
                with(s.normal(shape), s.normal(shape), s.normal(shape).cast(wide), second, number(lr), number(step))
            };
            let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
            let cases = [
                update(&[4, 8], 1e-2, 1.0),
                update(&[7], 1e-1, 10.0).weight_decay(0.25).apply(always),
                update(&[], 1e-2, 3.0).beta1(0.8).beta2(0.95).eps(0.5),
                update(&[0, 3], 1e-2, 1.0),
                update(&[33, 65], 1e-2, 2.0).weight_decay(0.1),
                update(&[3, 5], 1e-2, 4.0).apply(never),
            ];
            let zeros = with(
                s.values([3], [0.0]),
                s.normal([3]),
                s.normal([3]).cast(wide),
                s.uniform(0.5, 1.0, [3]).cast(wide),
                number(1e-2),
                number(2.0),
            );
            for case in cases {
                s.case(case);
            }
            s.case(zeros);
            // With numbers of the step as a host has them.
            if s.dtype() == DType::F32 {
                let exact = |value: f64| s.values([], [value]).cast(DType::F64);
                let [param, grad, mean] = [s.normal([9]), s.normal([9]), s.normal([9])];
                s.case(with(param, grad, mean, s.uniform(0.5, 1.0, [9]), exact(0.1), exact(3.0)));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let good = || {
                let number = e.values([], [1.0]).cast(DType::F32);
                let state = || e.normal([2]).cast(e.dtype().accumulator());
                with(e.normal([2]), e.normal([2]), state(), state(), number.clone(), number)
            };
            e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
            let narrow = ARGUMENTS.exp_avg.set(good(), e.of(DType::F16, [2]));
            e.case(StateDType, narrow, "exp_avg is f16, expected f32");
            e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
            e.case(Beta, ARGUMENTS.beta2.set(good(), 1.0), "beta2 is 1, expected 0 to below 1");
            e.case(Settings, ARGUMENTS.eps.set(good(), -1.0), "eps is -1, expected at least 0");
        }
    }

    table($name, $state, $default_eps, $update, $coupled, $second, $below) {
        /// One step of Adam with the gradient of `weight_decay / 2 · param²` added to `grad`: the new parameter, and
        /// the new running means of the gradient and of its square. `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`,
        /// `p -= lr · (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)`, as torch.optim.Adam computes it. With a decay that
        /// does not pass through the means it is [`mod@crate::optim::adamw`]. Numbers, types and `apply` are those of
        /// [`mod@crate::optim::sgd`]. Kingma & Ba, 2014.
        adam, exp_avg_sq, 1e-8, adam_update, true,
            super::square_after, super::root_below;
        /// One step of AdaMax: as [`mod@adam`] with the largest magnitude instead of the root of the mean of squares,
        /// `u = max(β₂ u, |g| + ε)`, `p -= lr / (1 - β₁ᵗ) · m / u`, as torch.optim.Adamax computes it. Kingma & Ba,
        /// 2014.
        adamax, exp_inf, 1e-8, adamax_update, true,
            super::most_after, super::most_below;
        /// One step of LAMB: the change of [`mod@adam`], `u = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε) + weight_decay ·
        /// p`, times the quotient of the norms of the parameter and of the change, `p -= lr · ‖p‖ / ‖u‖ · u`; the
        /// quotient is 1 if a norm is 0. You et al., "Large Batch Optimization for Deep Learning", 2019.
        lamb, exp_avg_sq, 1e-6, lamb_update, false,
            super::square_after, super::root_below;
    }
}

/// The new parameter and states of [`mod@adam`], of β₁, β₂, ε and the decay.
#[track_caller]
fn adam_update(own: &Step, [mean, square]: [Tensor; 2], rates: [f64; 4]) -> (Tensor, [Tensor; 2]) {
    let [beta1, beta2, eps, decay] = rates;
    let grad = own.decayed_grad(decay);
    let (mean, square) = (mean_of(mean, grad, beta1), mean_of_squares(square, grad, beta2));
    let root = own.number(prims::sqrt(own.correction(beta2)));
    let below = prims::add(prims::div(prims::sqrt(square), root), eps);
    let rate = own.number(prims::div(own.lr, own.correction(beta1)));
    (prims::sub(own.param, prims::div(prims::mul(mean, rate), below)), [mean, square])
}

/// As [`adam_update`] of [`mod@adamax`].
#[track_caller]
fn adamax_update(own: &Step, [mean, most]: [Tensor; 2], rates: [f64; 4]) -> (Tensor, [Tensor; 2]) {
    let [beta1, beta2, eps, decay] = rates;
    let grad = own.decayed_grad(decay);
    let mean = mean_of(mean, grad, beta1);
    let most = prims::maximum(prims::mul(most, beta2), prims::add(prims::abs(grad), eps));
    let rate = own.number(prims::div(own.lr, own.correction(beta1)));
    (prims::sub(own.param, prims::div(prims::mul(mean, rate), most)), [mean, most])
}

/// As [`adam_update`] of [`mod@lamb`].
#[track_caller]
fn lamb_update(own: &Step, [mean, square]: [Tensor; 2], rates: [f64; 4]) -> (Tensor, [Tensor; 2]) {
    let [beta1, beta2, eps, decay] = rates;
    let (mean, square) = (mean_of(mean, own.grad, beta1), mean_of_squares(square, own.grad, beta2));
    let root = own.number(prims::sqrt(own.correction(beta2)));
    let below = prims::add(prims::div(prims::sqrt(square), root), eps);
    let first = own.number(own.correction(beta1));
    let mut change = prims::div(prims::div(mean, first), below);
    if decay != 0.0 {
        change = prims::add(change, prims::mul(own.param, decay));
    }
    let norms = [own.param, change].map(norm);
    let known = prims::logical_and(prims::gt(norms[0], 0.0), prims::gt(norms[1], 0.0));
    let trust = prims::select(known, prims::div(norms[0], norms[1]), 1.0);
    let scaled = prims::mul(change, broadcast(trust, &change.shape()));
    (own.moved(own.param, own.lr, scaled), [mean, square])
}

/// For references: the running mean of squares.
fn square_after(v: f64, g: f64, beta2: f64, _eps: f64) -> f64 {
    beta2 * v + (1.0 - beta2) * g * g
}

/// For references: the divisor of [`mod@adam`], of the mean of squares as it is and corrected.
fn root_below(_v: f64, corrected: f64, eps: f64) -> f64 {
    corrected.sqrt() + eps
}

/// For references: the largest magnitude.
fn most_after(u: f64, g: f64, beta2: f64, eps: f64) -> f64 {
    (beta2 * u).max(g.abs() + eps)
}

/// For references: the divisor of [`mod@adamax`].
fn most_below(u: f64, _corrected: f64, _eps: f64) -> f64 {
    u
}

/// The root of the sum of squares of all elements.
#[track_caller]
pub(super) fn norm(x: Tensor) -> Tensor {
    let all: Vec<usize> = (0..x.rank()).collect();
    let squares = prims::mul(x, x);
    prims::sqrt(if all.is_empty() { squares } else { prims::sum(squares, all) })
}
