use fulgurite_ops_macros::operator;

use crate::core::promotion::{broadcast, cast};
use crate::prims;

/// One AdamW update: the new parameter, and the new running means of the gradient and of its square.
/// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`,
/// `p = p (1 - lr · wd) - lr · (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)`, as torch.optim.AdamW computes it. `lr` and
/// `step` (t, from 1) are zero-dimensional f32 tensors, since they change from step to step. Loshchilov and Hutter,
/// 2019. Where `apply`, a zero-dimensional tensor, is false, the results are `param`, `exp_avg` and `exp_avg_sq` as
/// they are: a gradient that is not finite need not reach them.
///
/// The means are both of `param`'s type, or both f32 for a parameter of f16 or bf16. Everything is computed in f32 (f64
/// of f64), and each of the three results is rounded once, as PyTorch's fused AdamW does.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod adamw {
    #[results(out, mean, square)]
    fn adamw(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        exp_avg: Tensor<Floating>,
        exp_avg_sq: Tensor<Floating>,
        lr: Tensor<Floating>,
        step: Tensor<Floating>,
        #[default(0.9)] beta1: f64,
        #[default(0.999)] beta2: f64,
        #[default(1e-8)] eps: f64,
        #[default(0.01)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step, beta1, beta2, eps, apply, .. } = args;
        for (name, tensor) in [("grad", grad), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)] {
            require!(
                tensor.shape() == param.shape(),
                SameShape,
                "{name} has shape {:?}, param {:?}",
                tensor.shape(),
                param.shape()
            );
        }
        let (own, wide) = (param.dtype(), param.dtype().accumulator());
        let (mean, square) = (exp_avg.dtype(), exp_avg_sq.dtype());
        require!(
            mean == square && [own, wide].contains(&mean),
            StateDType,
            "exp_avg is {mean}, exp_avg_sq {square}, expected both {own} or both {wide}"
        );
        for (name, scalar) in [("lr", Some(lr)), ("step", Some(step)), ("apply", apply)] {
            let Some(scalar) = scalar else { continue };
            require!(scalar.rank() == 0, ScalarRank, "{name} has shape {:?}, expected []", scalar.shape());
        }
        for (name, beta) in [("beta1", beta1), ("beta2", beta2)] {
            require!((0.0..1.0).contains(&beta), Beta, "{name} is {beta}, expected 0 to below 1");
        }
        require!(eps >= 0.0, Epsilon, "eps is {eps}, expected at least 0");
        Ok((param.clone(), exp_avg.clone(), exp_avg_sq.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
        let (wide, kept) = (param.dtype().accumulator(), exp_avg.dtype());
        let shape = param.shape().to_vec();
        // The few numbers of the step in f64, as PyTorch computes them on the host.
        let (lr, step) = (cast(lr, DType::F64), cast(step, DType::F64));
        let correction = |beta: f64| prims::sub(1.0, prims::pow(beta, step));
        let number = |value: Tensor| broadcast(cast(value, wide), &shape);
        let decay = number(prims::sub(1.0, prims::mul(lr, weight_decay)));
        let rate = number(prims::neg(prims::div(lr, correction(beta1))));
        let root = number(prims::sqrt(correction(beta2)));

        let [grad, before, before_sq] = [grad, exp_avg, exp_avg_sq].map(|tensor| cast(tensor, wide));
        let moved = prims::mul(prims::sub(grad, before), 1.0 - beta1);
        let mean = prims::add(before, moved);
        let squares = prims::mul(prims::mul(grad, grad), 1.0 - beta2);
        let square = prims::add(prims::mul(before_sq, beta2), squares);
        let below = prims::add(prims::div(prims::sqrt(square), root), eps);
        let mut next = cast(param, wide);
        if weight_decay != 0.0 {
            next = prims::mul(next, decay);
        }
        next = prims::add(next, prims::div(prims::mul(mean, rate), below));
        let (next, mean, square) = (cast(next, param.dtype()), cast(mean, kept), cast(square, kept));
        let Some(apply) = apply else { return (next, mean, square) };
        let apply = broadcast(apply, &shape);
        let chosen = |new: Tensor, old: Tensor| prims::select(apply, new, old);
        (chosen(next, param), chosen(mean, exp_avg), chosen(square, exp_avg_sq))
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step, beta1, beta2, eps, weight_decay, apply } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return (param.clone(), exp_avg.clone(), exp_avg_sq.clone());
        }
        let (lr, t) = (lr.sum(), step.sum());
        let mean = exp_avg * beta1 + &(grad * (1.0 - beta1));
        let square = exp_avg_sq * beta2 + &(grad * grad * (1.0 - beta2));
        let first = &mean / (1.0 - beta1.powf(t));
        let second = (&square / (1.0 - beta2.powf(t))).mapv(f64::sqrt) + eps;
        let next = param * (1.0 - lr * weight_decay) - &(first / second * lr);
        (next, mean, square)
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize], lr: f64, step: f64| {
            let square = s.uniform(0.0, 1.0, shape).cast(wide);
            with(s.normal(shape), s.normal(shape), s.normal(shape).cast(wide), square, number(lr), number(step))
        };
        let cases = [
            update(&[4, 8], 1e-3, 1.0),
            update(&[7], 1e-2, 10.0).weight_decay(0.0),
            update(&[], 1e-3, 3.0).beta1(0.8).beta2(0.95),
            update(&[0, 3], 1e-3, 1.0),
            update(&[65, 67], 3e-4, 1000.0).eps(1e-6).weight_decay(0.1),
        ];
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let conditional = [update(&[33, 5], 1e-2, 2.0).apply(always), update(&[33, 5], 1e-2, 5.0).apply(never.clone())];
        // Nothing of a gradient that is no number reaches what it does not update.
        let gradient = s.values([3, 5], [f64::NAN, 1.0, f64::INFINITY]);
        let unreached = ARGUMENTS.grad.set(update(&[3, 5], 1e-2, 4.0).apply(never), gradient);
        // As large as the root of the squares that it is added to.
        let wide_eps = update(&[6], 1e-2, 2.0).eps(0.5);
        let no_eps = update(&[5], 1e-2, 2.0).eps(0.0);
        let decayed = update(&[5], 1e-2, 2.0).weight_decay(0.25);
        // Means that forget everything before.
        let forgetful = update(&[5], 1e-2, 2.0).beta1(0.0).beta2(0.0);
        for case in cases.into_iter().chain(conditional) {
            s.case(case);
        }
        s.case(unreached);
        for case in [wide_eps, no_eps, decayed, forgetful] {
            s.case(case);
        }
        // Means of 16 bits, as parameters and gradients are: alone, and with a condition.
        if wide != s.dtype() {
            let own = |step: f64, shape: &[usize]| {
                let [mean, square] = [s.normal(shape), s.uniform(0.0, 1.0, shape)];
                let number = |value: f64| s.values([], [value]).cast(DType::F32);
                with(s.normal(shape), s.normal(shape), mean, square, number(1e-2), number(step))
            };
            let never = s.values([], [0.0]).cast(DType::Bool);
            let [decayed, long, left] = [own(1.0, &[33, 5]), own(7.0, &[65, 66]), own(2.0, &[3, 5])];
            for case in [decayed.weight_decay(0.1), long.beta2(0.95), left.apply(never)] {
                s.case(case);
            }
        }
        // Of mixed precision: the gradient as products leave it.
        if s.dtype() == DType::F32 {
            for grad in [DType::BF16, DType::F16] {
                let number = |value: f64| s.values([], [value]).cast(DType::F32);
                let [param, mean] = [s.normal([33, 5]), s.normal([33, 5])];
                let square = s.uniform(0.0, 1.0, [33, 5]);
                s.case(with(param, s.normal([33, 5]).cast(grad), mean, square, number(1e-3), number(2.0)));
            }
            // With numbers of the step as a host has them.
            let exact = |value: f64| s.values([], [value]).cast(DType::F64);
            s.case(with(s.normal([9]), s.normal([9]), s.normal([9]), s.uniform(0.0, 1.0, [9]), exact(0.1), exact(3.0)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || {
            let number = e.values([], [1.0]).cast(DType::F32);
            let state = || e.normal([2]).cast(e.dtype().accumulator());
            with(e.normal([2]), e.normal([2]), state(), state(), number.clone(), number)
        };
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
        let longer = e.normal([3]).cast(e.dtype().accumulator());
        e.case(SameShape, ARGUMENTS.exp_avg_sq.set(good(), longer), "exp_avg_sq has shape [3]");
        let differ = ARGUMENTS.exp_avg_sq.set(good(), e.of(DType::F16, [2]));
        e.case(StateDType, differ, "exp_avg_sq f16, expected both");
        e.case(StateDType, ARGUMENTS.exp_avg.set(good(), e.of(DType::BF16, [2])), "exp_avg is bf16, exp_avg_sq");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        let several = e.booleans([2]);
        e.case(ScalarRank, good().apply(several), "apply has shape [2], expected []");
        e.case(Beta, ARGUMENTS.beta2.set(good(), 1.0), "beta2 is 1, expected 0 to below 1");
        e.case(Beta, ARGUMENTS.beta1.set(good(), -0.5), "beta1 is -0.5, expected 0 to below 1");
        e.case(Epsilon, ARGUMENTS.eps.set(good(), -1.0), "eps is -1");
    }
}
