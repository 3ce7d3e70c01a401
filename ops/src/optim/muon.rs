use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::norm;
use super::updates::{self, Step, applied, mean_of};
use crate::core::arrays::{permuted, product};
use crate::core::promotion::broadcast;
use crate::prims;

/// One step of Muon for a matrix: the new parameter, and the new running mean of the gradient. `b = b + (1 - momentum)
/// (g - b)`, and with `nesterov` `u = g + momentum (b - g)` instead of `b`; `ns_steps` steps of Newton and Schulz take
/// the singular values of `u / max(‖u‖, eps)` near 1, `X = a X + (b A + c A²) X` with `A = X Xᵀ` and `ns_coefficients`
/// a, b, c; then `p = p (1 - lr · weight_decay) - lr · √max(1, rows / columns) · X`. This is torch.optim.Muon, which
/// has the products in bf16; here they are in f32, or f64. The number of the step has no effect; numbers, types and
/// `apply` are those of [`mod@crate::optim::sgd`]. Jordan et al., 2024.
#[operator(
    no_grad = "an optimizer's update is not differentiated",
    tolerance(
        consistency,
        scaled = 0.01,
        precision = tf32,
        reason = "fifteen products, each of which is rounded to 10 bits"
    )
)]
pub mod muon {
    #[results(out, mean)]
    fn muon(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        momentum_buffer: Tensor<Floating>,
        lr: Tensor<Floating>,
        #[default(0.95)] momentum: f64,
        #[default(true)] nesterov: bool,
        #[default(vec![3.4445, -4.775, 2.0315])] ns_coefficients: Vec<f64>,
        #[default(5)] ns_steps: usize,
        #[default(1e-7)] eps: f64,
        #[default(0.1)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { param, grad, momentum_buffer, lr, momentum, ns_coefficients, ns_steps, .. } = args;
        let numbers = [("lr", Some(lr)), ("apply", args.apply), ("step", None)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &[("momentum_buffer", Some(momentum_buffer))], numbers, codes)?;
        require!(param.rank() == 2, Matrix, "param has shape {:?}, expected [rows, columns]", param.shape());
        require!(
            ns_coefficients.len() == 3,
            Coefficients,
            "ns_coefficients has {} numbers, expected 3",
            ns_coefficients.len()
        );
        require!(ns_steps < 100, Steps, "ns_steps is {ns_steps}, expected below 100");
        updates::below_one(&[("momentum", momentum)], Code::Momentum)?;
        updates::not_negative(&[("eps", args.eps), ("weight_decay", args.weight_decay)], Code::Settings)?;
        Ok((param.clone(), momentum_buffer.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { param, grad, momentum_buffer, lr, momentum, nesterov, .. } = args;
        let Args { ns_coefficients, ns_steps, eps, weight_decay, apply, .. } = args;
        let own = Step::new([param, grad], [lr, lr]);
        let mean = mean_of(own.state(momentum_buffer), own.grad, momentum);
        let change = if nesterov { mean_of(own.grad, mean, 1.0 - momentum) } else { mean };
        let (rows, columns) = (param.size(0), param.size(1));
        let turned = |x: Tensor| if rows > columns { prims::permute(x, [1, 0]) } else { x };
        let direction = turned(super::orthogonal(turned(change), &ns_coefficients, ns_steps, eps));
        let scale = (rows as f64 / columns.max(1) as f64).max(1.0).sqrt();
        let next = own.moved(own.shrunk(weight_decay), prims::mul(own.lr, scale), direction);
        let [next, mean] = applied([(next, param), (mean, momentum_buffer)], apply);
        (next, mean)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, momentum_buffer, lr, momentum, nesterov, .. } = args;
        let Args { ns_coefficients, ns_steps, eps, weight_decay, apply, .. } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return (param.clone(), momentum_buffer.clone());
        }
        let mean = momentum_buffer * momentum + &(grad * (1.0 - momentum));
        let change = if nesterov { grad * (1.0 - momentum) + &(&mean * momentum) } else { mean.clone() };
        let (rows, columns) = (param.shape()[0], param.shape()[1]);
        let wide = rows <= columns;
        let mut x = if wide { change } else { permuted(&change, &[1, 0]) };
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        x /= length.max(eps);
        for _ in 0..ns_steps {
            let gram = product(&x, &permuted(&x, &[1, 0]));
            let factor = &gram * ns_coefficients[1] + &(product(&gram, &gram) * ns_coefficients[2]);
            x = &x * ns_coefficients[0] + &product(&factor, &x);
        }
        let x = if wide { x } else { permuted(&x, &[1, 0]) };
        let rate = lr.sum() * (rows as f64 / columns.max(1) as f64).max(1.0).sqrt();
        (param * (1.0 - lr.sum() * weight_decay) - &(x * rate), mean)
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let update = |shape: &[usize]| with(s.normal(shape), s.normal(shape), s.normal(shape).cast(wide), number(0.1));
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let cases = [
            update(&[4, 8]).ns_steps(2),
            update(&[7, 3]).ns_steps(1).nesterov(false).weight_decay(0.5).apply(always),
            update(&[3, 5]).momentum(0.5).ns_coefficients(vec![2.0, -1.5, 0.5]).ns_steps(1).eps(4.0),
            update(&[2, 3]).ns_steps(0),
            update(&[3, 5]).apply(never),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let of = |shape: &[usize]| {
            with(e.normal(shape), e.normal(shape), e.normal(shape).cast(e.dtype().accumulator()), number())
        };
        let good = || of(&[2, 3]);
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3, 2])), "grad has shape [3, 2], param [2, 3]");
        let narrow = ARGUMENTS.momentum_buffer.set(good(), e.of(DType::F16, [2, 3]));
        e.case(StateDType, narrow, "momentum_buffer is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        e.case(Matrix, of(&[3]), "param has shape [3], expected [rows, columns]");
        e.case(Coefficients, good().ns_coefficients(vec![1.0]), "ns_coefficients has 1 numbers, expected 3");
        e.case(Steps, good().ns_steps(100), "ns_steps is 100, expected below 100");
        e.case(Momentum, good().momentum(1.0), "momentum is 1, expected 0 to below 1");
        e.case(Settings, good().weight_decay(-1.0), "weight_decay is -1, expected at least 0");
    }
}

/// A wide matrix with singular values near 1, by steps of Newton and Schulz.
#[track_caller]
fn orthogonal(x: Tensor, coefficients: &[f64], steps: usize, eps: f64) -> Tensor {
    let length = prims::maximum(norm(x), eps);
    let mut x = prims::div(x, broadcast(length, &x.shape()));
    for _ in 0..steps {
        let gram = prims::matmul(x, prims::permute(x, [1, 0]));
        let square = prims::mul(prims::matmul(gram, gram), coefficients[2]);
        let factor = prims::add(prims::mul(gram, coefficients[1]), square);
        x = prims::add(prims::mul(x, coefficients[0]), prims::matmul(factor, x));
    }
    x
}
