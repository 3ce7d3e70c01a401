use fulgurite_ops_macros::operator;
use fulgurite_runtime::{Tensor, TensorMeta};

use super::norm;
use super::updates::{self, Step, applied, not_negative};
use crate::core::promotion::{broadcast, cast};
use crate::prims;

/// One step of Adafactor: the new parameter and the new states, in the order of the arguments. With `w = 1 - tᵝ`
/// (`beta2_decay` is β) the means over the columns and over the rows of squared gradients are `row_var = row_var · w +
/// (1 - w) mean(g²)` [..., R, 1] and `col_var` [..., 1, C] likewise, and `v = row_var · col_var / max(mean(row_var),
/// eps1)`; a parameter of one dimension or none has `variance`, `v = v · w + (1 - w) g²`, instead. Then `u = g /
/// √max(v, eps1²)`, `p = p (1 - lr · weight_decay) - α u / max(1, rms(u) / d)` with `α = max(eps2, rms(p)) · min(lr, 1
/// / √t)`. `eps1` is the machine epsilon of the type computed in if absent. As torch.optim.Adafactor computes it;
/// numbers, types and `apply` are those of [`mod@crate::optim::sgd`]. Shazeer & Stern, 2018.
#[operator(no_grad = "an optimizer's update is not differentiated")]
pub mod adafactor {
    fn adafactor(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        row_var: Option<Tensor<Floating>>,
        col_var: Option<Tensor<Floating>>,
        variance: Option<Tensor<Floating>>,
        lr: Tensor<Floating>,
        step: Tensor<Floating>,
        #[default(-0.8)] beta2_decay: f64,
        #[default(None)] eps1: Option<f64>,
        #[default(1e-3)] eps2: f64,
        #[default(1.0)] d: f64,
        #[default(0.0)] weight_decay: f64,
        #[default(None)] apply: Option<Tensor<Boolean>>,
    ) -> Vec<Tensor>;

    fn meta(args: Args<&TensorMeta>) -> Result<Vec<TensorMeta>> {
        let Args { param, grad, row_var, col_var, variance, lr, step, .. } = args;
        let Args { beta2_decay, eps1, eps2, d, weight_decay, apply, .. } = args;
        let numbers = [("lr", Some(lr)), ("step", Some(step)), ("apply", apply)];
        let codes = [Code::SameShape, Code::StateDType, Code::ScalarRank];
        updates::check(param, grad, &[("variance", variance)], numbers, codes)?;
        require!(!param.is_empty(), Empty, "param has shape {:?}, expected an element or more", param.shape());
        let factored = param.rank() > 1;
        let states = [("row_var", row_var, true), ("col_var", col_var, true), ("variance", variance, false)];
        for (name, given, of_factors) in states {
            require!(
                given.is_some() == (factored == of_factors),
                States,
                "{name} is {} for a param of {} dimensions, expected row_var and col_var of two and more, otherwise \
                 variance",
                if given.is_some() { "given" } else { "absent" },
                param.rank()
            );
        }
        if let (Some(row_var), Some(col_var)) = (row_var, col_var) {
            for (name, given, dim) in [("row_var", row_var, param.rank() - 1), ("col_var", col_var, param.rank() - 2)] {
                let expected = super::factor(param, dim);
                let fits =
                    given.shape() == expected.shape() && [param.dtype(), expected.dtype()].contains(&given.dtype());
                require!(fits, Factors, "{name} is {given}, expected {expected}");
            }
        }
        require!(beta2_decay <= 0.0, Decay, "beta2_decay is {beta2_decay}, expected at most 0");
        let others = [("eps1", eps1.unwrap_or(0.0)), ("eps2", eps2), ("weight_decay", weight_decay)];
        not_negative(&others, Code::Settings)?;
        require!(d >= 1.0, Clipping, "d is {d}, expected at least 1");
        Ok([param].into_iter().chain(row_var).chain(col_var).chain(variance).cloned().collect())
    }

    fn decomposition(args: Args<Tensor>) -> Vec<Tensor> {
        let Args { param, grad, row_var, col_var, variance, lr, step, .. } = args;
        let Args { beta2_decay, eps1, eps2, d, weight_decay, apply, .. } = args;
        let own = Step::new([param, grad], [lr, step]);
        let (shape, wide) = (param.shape().to_vec(), own.param.dtype());
        let eps1 = eps1.unwrap_or(super::epsilon(wide));
        let share = cast(prims::pow(own.step, beta2_decay), wide);
        let towards = |old: Tensor, new: Tensor| {
            let part = prims::mul(prims::sub(new, old), broadcast(share, &old.shape()));
            prims::add(old, part)
        };
        let squares = prims::mul(own.grad, own.grad);
        let (estimate, states) = match (row_var, col_var, variance) {
            (Some(row), Some(column), _) => {
                let rank = shape.len();
                let mean = |x: Tensor, dim: usize| {
                    let mut kept = x.shape().to_vec();
                    let count = std::mem::replace(&mut kept[dim], 1);
                    prims::reshape(prims::div(prims::sum(x, [dim]), count as f64), kept)
                };
                let next_row = towards(own.state(row), mean(squares, rank - 1));
                let next_column = towards(own.state(column), mean(squares, rank - 2));
                let total = prims::maximum(mean(next_row, rank - 2), eps1);
                let scaled = prims::mul(broadcast(next_row, &shape), broadcast(next_column, &shape));
                (prims::div(scaled, broadcast(total, &shape)), vec![(next_row, row), (next_column, column)])
            }
            (_, _, Some(variance)) => {
                let next = towards(own.state(variance), squares);
                (next, vec![(next, variance)])
            }
            // The preconditions leave none of this.
            _ => (squares, Vec::new()),
        };
        let change = prims::mul(prims::rsqrt(prims::maximum(estimate, eps1 * eps1)), own.grad);
        let count = shape.iter().product::<usize>() as f64;
        let rms = |x: Tensor| prims::div(norm(x), count.sqrt());
        let limit = prims::maximum(prims::div(rms(change), d), 1.0);
        let slow = prims::minimum(own.lr, prims::rsqrt(own.step));
        let rate = prims::div(prims::mul(prims::maximum(rms(own.param), eps2), cast(slow, wide)), limit);
        let next = own.moved(own.shrunk(weight_decay), rate, change);
        let pairs = [(next, param)].into_iter().chain(states);
        pairs.flat_map(|pair| applied([pair], apply)).collect()
    }

    fn reference(args: Args<&ReferenceTensor>) -> Vec<ArrayD<f64>> {
        let Args { param, grad, row_var, col_var, variance, lr, step, .. } = args;
        let Args { beta2_decay, eps1, eps2, d, weight_decay, apply, .. } = args;
        if apply.is_some_and(|apply| apply.iter().any(|apply| !apply)) {
            return [param].into_iter().chain(row_var).chain(col_var).chain(variance).cloned().collect();
        }
        let eps1 = eps1.unwrap_or(f64::from(f32::EPSILON));
        let (lr, t) = (lr.sum(), step.sum());
        let share = t.powf(beta2_decay);
        let rank = param.ndim();
        let mut states = Vec::new();
        let mut estimate = grad * grad;
        if let (Some(row), Some(column)) = (row_var, col_var) {
            let mean = |x: &ArrayD<f64>, dim: usize| {
                let axis = ndarray::Axis(dim);
                (x.sum_axis(axis) / x.shape()[dim] as f64).insert_axis(axis)
            };
            let row = row * (1.0 - share) + &(mean(&estimate, rank - 1) * share);
            let column = column * (1.0 - share) + &(mean(&estimate, rank - 2) * share);
            estimate = &row * &column / mean(&row, rank - 2).mapv(|x| x.max(eps1));
            states = vec![row, column];
        } else if let Some(variance) = variance {
            estimate = variance * (1.0 - share) + &(estimate * share);
            states = vec![estimate.clone()];
        }
        let change = grad / &estimate.mapv(|v| v.max(eps1 * eps1).sqrt());
        let rms = |x: &ArrayD<f64>| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
        let rate = rms(param).max(eps2) * lr.min(1.0 / t.sqrt()) / (rms(&change) / d).max(1.0);
        let next = param * (1.0 - lr * weight_decay) - &(change * rate);
        [next].into_iter().chain(states).collect()
    }

    fn samples(s: &mut Samples) {
        let wide = s.dtype().accumulator();
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let factored = |rows: usize, columns: usize, step: f64| {
            let row = s.uniform(0.5, 1.0, [rows, 1]).cast(wide);
            let column = s.uniform(0.5, 1.0, [1, columns]).cast(wide);
            let (param, grad) = (s.normal([rows, columns]), s.normal([rows, columns]));
            with(param, grad, Some(row), Some(column), None, number(0.25), number(step)).eps1(1e-3)
        };
        let plain = |shape: &[usize], step: f64| {
            let variance = s.uniform(0.5, 1.0, shape).cast(wide);
            with(s.normal(shape), s.normal(shape), None, None, Some(variance), number(0.125), number(step)).eps1(1e-3)
        };
        let [always, never] = [1.0, 0.0].map(|apply| s.values([], [apply]).cast(DType::Bool));
        let row = s.uniform(0.5, 1.0, [2, 3, 1]).cast(wide);
        let column = s.uniform(0.5, 1.0, [2, 1, 4]).cast(wide);
        let (param, grad) = (s.normal([2, 3, 4]), s.normal([2, 3, 4]));
        let deep = with(param, grad, Some(row), Some(column), None, number(0.5), number(9.0)).eps1(0.75).d(1.5);
        let cases = [
            factored(4, 8, 1.0),
            factored(7, 3, 10.0).weight_decay(0.25).beta2_decay(-0.5).apply(always),
            plain(&[7], 2.0).eps2(4.0),
            plain(&[], 30.0),
            factored(3, 5, 2.0).apply(never),
            deep,
        ];
        let usual = (s.dtype() == DType::F32).then(|| ARGUMENTS.eps1.set(plain(&[5], 3.0), None));
        for case in cases {
            s.case(case);
        }
        if let Some(usual) = usual {
            s.case(usual);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let number = || e.values([], [1.0]).cast(DType::F32);
        let wide = |shape: &[usize]| Some(e.normal(shape).cast(e.dtype().accumulator()));
        let good = || with(e.normal([2]), e.normal([2]), None, None, wide(&[2]), number(), number());
        e.case(SameShape, ARGUMENTS.grad.set(good(), e.normal([3])), "grad has shape [3], param [2]");
        let narrow = ARGUMENTS.variance.set(good(), Some(e.of(DType::F16, [2])));
        e.case(StateDType, narrow, "variance is f16, expected f32");
        e.case(ScalarRank, ARGUMENTS.lr.set(good(), e.normal([1])), "lr has shape [1], expected []");
        let none = with(e.normal([0]), e.normal([0]), None, None, wide(&[0]), number(), number());
        e.case(Empty, none, "param has shape [0], expected an element or more");
        e.case(States, ARGUMENTS.variance.set(good(), None), "variance is absent for a param of 1 dimensions");
        e.case(States, ARGUMENTS.row_var.set(good(), wide(&[2])), "row_var is given for a param of 1 dimensions");
        let row = wide(&[2, 1]);
        let wrong = with(e.normal([2, 3]), e.normal([2, 3]), row, wide(&[2, 3]), None, number(), number());
        e.case(Factors, wrong, "col_var is f32[2, 3], expected f32[1, 3]");
        e.case(Decay, good().beta2_decay(0.5), "beta2_decay is 0.5, expected at most 0");
        e.case(Decay, good().beta2_decay(0.25), "beta2_decay is 0.25, expected at most 0");
        e.case(Settings, good().eps2(-1.0), "eps2 is -1, expected at least 0");
        e.case(Clipping, good().d(0.5), "d is 0.5, expected at least 1");
    }
}

/// The meta of a mean of squares over dimension `dim` of a parameter.
fn factor(param: &TensorMeta, dim: usize) -> TensorMeta {
    let mut shape = param.shape().to_vec();
    shape[dim] = 1;
    param.with_dtype(param.dtype().accumulator()).with_shape(shape)
}

/// The machine epsilon of a type that is computed in.
fn epsilon(dtype: fulgurite_runtime::DType) -> f64 {
    if dtype == fulgurite_runtime::DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}
