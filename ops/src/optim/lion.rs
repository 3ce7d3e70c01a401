use fulgurite_ops_macros::operator;

use super::updates::{self, Step, applied, mean_of};
use crate::prims;

/// One step of Lion: the new parameter, and the new running mean of the gradient. `p = p (1 - lr · weight_decay) - lr ·
/// sign(β₁ m + (1 - β₁) g)`, then `m = β₂ m + (1 - β₂) g`. The sign of 0 is 0. The number of the step has no effect.
/// Numbers, types and `apply` are those of [`mod@crate::optim::sgd`]. Chen et al., "Symbolic Discovery of Optimization
/// Algorithms", 2023.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod lion {
    #[results(out, mean)]
    fn lion(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        exp_avg: Tensor<Floating>,
        lr: Tensor<Floating>,
        #[default(0.9)] beta1: f64,
        #[default(0.99)] beta2: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { param, grad, exp_avg, lr, beta1, beta2, weight_decay, apply } = args;
        let numbers = [("lr", Some(lr)), ("apply", apply), ("step", None)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &[("exp_avg", Some(exp_avg))], numbers, codes)?;
        updates::below_one(&[("beta1", beta1), ("beta2", beta2)], Code::Beta)?;
        updates::not_negative(&[("weight_decay", weight_decay)], Code::Settings)?;
        Ok((param.clone(), exp_avg.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { param, grad, exp_avg, lr, beta1, beta2, weight_decay, apply } = args;
        let own = Step::new([param, grad], [lr, lr]);
        let before = own.state(exp_avg);
        let direction = prims::sign(mean_of(before, own.grad, beta1));
        let next = own.moved(own.shrunk(weight_decay), own.lr, direction);
        let [next, mean] = applied([(next, param), (mean_of(before, own.grad, beta2), exp_avg)], apply);
        (next, mean)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, exp_avg, lr, beta1, beta2, weight_decay, apply } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return (param.clone(), exp_avg.clone());
        }
        let lr = lr.sum();
        let mixed = |beta: f64| exp_avg * beta + &(grad * (1.0 - beta));
        let direction = mixed(beta1).mapv(|x| if x == 0.0 { 0.0 } else { x.signum() });
        (param * (1.0 - lr * weight_decay) - &(direction * lr), mixed(beta2))
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize]| with(s.normal(shape), s.normal(shape), s.normal(shape).cast(wide), number(0.1));
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            update(&[4, 8]),
            update(&[]).beta1(0.0).beta2(0.5),
            update(&[33, 5]).weight_decay(0.25).apply(always),
            update(&[0, 3]),
            update(&[3, 5]).apply(never),
        ];
        let zero = s.values([2], [0.0]).cast(wide);
        let zeros = with(s.normal([2]), s.values([2], [0.0, 1.0]), zero, number(0.1));
        for case in cases {
            s.case(case);
        }
        s.case(zeros);
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let wide = || e.normal([2]).cast(e.dtype().accumulator());
        let good = || with(e.normal([2]), e.normal([2]), wide(), number());
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
        e.case(StateDType, ARGUMENTS.exp_avg.set(good(), e.of(DType::F16, [2])), "exp_avg is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        e.case(Beta, good().beta1(1.0), "beta1 is 1, expected 0 to below 1");
        e.case(Settings, good().weight_decay(-1.0), "weight_decay is -1, expected at least 0");
    }
}
