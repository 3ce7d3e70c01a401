//! Wrong gradients.

use fulgurite_ops_macros::operator;

/// `input · tanh(input)`.
#[operator(name = "wrong::dropped_term")]
pub mod dropped_term {
    use fulgurite_ops::prims;

    fn dropped_term(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::mul(input, prims::tanh(input))
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let gate = prims::tanh(input);
        // Lacks input · (1 - gate²).
        (prims::mul(input, gate), move |d_out| Grads { input: prims::mul(d_out, gate) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * x.tanh())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `exp(input)`.
#[operator(name = "wrong::cotangent_ignored")]
pub mod cotangent_ignored {
    use fulgurite_ops::prims;

    fn cotangent_ignored(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::exp(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = prims::exp(input);
        // Right for a cotangent of ones, which is what a careless test feeds it.
        (out, move |d_out| Grads { input: prims::add(out, prims::sub(d_out, d_out)) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::exp)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `tanh(input)`, of which the rule of the gradient returns twice as much, beside a gradient that is right.
#[operator(name = "wrong::result_beside_gradient")]
pub mod result_beside_gradient {
    use fulgurite_ops::prims;

    fn result_beside_gradient(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::tanh(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = prims::tanh(input);
        (out + out, move |d_out: Tensor| Grads { input: d_out * (1.0 - out * out) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::tanh)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// The slope of a square. Its own gradient is wrong.
#[operator(name = "wrong::slope")]
pub mod slope {
    fn slope(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * 2.0
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (input * 2.0, move |d_out: Tensor| Grads { input: d_out * 3.0 })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| 2.0 * x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// A square, whose gradient is right; that of its gradient is not.
#[operator(name = "wrong::second_derivative")]
pub mod second_derivative {
    use super::slope;
    use fulgurite_ops::prims;

    fn second_derivative(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::mul(input, input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (prims::mul(input, input), move |d_out| Grads { input: prims::mul(d_out, slope(input)) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// Declares sums of an input, a number and twice another number, both drawn from one generator; their gradient rules
/// draw in the order that is given.
macro_rules! draws {
    ($($(#[$doc:meta])* $name:ident = $text:literal: $first:literal + $second:literal;)*) => {$(
        $(#[$doc])*
        #[operator(name = $text, effects(random))]
        pub mod $name {
            fn $name(input: Tensor<Floating>, generator: Tensor<Integer>) -> Tensor;

            fn decomposition(input: Tensor, generator: Tensor) -> Tensor {
                let draw = || fulgurite_ops::prims::uniform(input.shape(), 0.0, 1.0, input.dtype(), generator);
                input + draw() + draw() * 2.0
            }

            fn grad(input: Tensor, generator: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
                let draw = || fulgurite_ops::prims::uniform(input.shape(), 0.0, 1.0, input.dtype(), generator);
                (input + draw() * $first + draw() * $second, move |d_out: Tensor| Grads { input: d_out })
            }

            fn samples(s: &mut Samples) {
                if s.dtype().is_floating() {
                    s.case(with(s.normal([3]), s.integers(0, 9, [2])));
                }
            }
        }
    )*};
}

draws! {
    /// Draws as its decomposition does.
    draws_alike = "wrong::draws_alike": 1.0 + 2.0;
    /// Gives the first draw the place of the second.
    draws_otherwise = "wrong::draws_otherwise": 2.0 + 1.0;
}

/// `-input` and `2 · input`, whose gradient takes a cotangent that does not arrive for ones.
#[operator(name = "wrong::absent_cotangent")]
pub mod absent_cotangent {
    #[results(first, second)]
    fn absent_cotangent(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn decomposition(input: Tensor) -> (Tensor, Tensor) {
        (-input, input * 2.0)
    }

    fn grad(input: Tensor) -> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads) {
        let out = absent_cotangent(input);
        (out, move |(d_first, d_second): (Option<Tensor>, Option<Tensor>)| {
            let part = |d: Option<Tensor>| d.unwrap_or_else(|| input * 0.0 + 1.0);
            Grads { input: part(d_second) * 2.0 - part(d_first) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        (-input, input * 2.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// The larger of `input` and zero, whose gradient at zero is not the one that is stated.
#[operator(name = "wrong::slope_at_kink")]
pub mod slope_at_kink {
    use fulgurite_ops::prims;

    fn slope_at_kink(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::maximum(input, prims::full(input.shape(), 0.0, input.dtype(), "cpu"))
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (slope_at_kink(input), move |d_out: Tensor| {
            let zero = prims::full(input.shape(), 0.0, input.dtype(), "cpu");
            Grads { input: prims::select(prims::lt(input, zero), zero, d_out) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x.max(0.0))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.values([3], [0.0, 1.0, -1.0]))).forward_only("a kink").gradients([&[0.0, 2.0, 0.0]]);
    }
}

/// `input · scale`, whose gradient is wrong where `scale` is frozen.
#[operator(name = "wrong::frozen_operand")]
pub mod frozen_operand {
    use fulgurite_ops::prims;
    use fulgurite_runtime::rules::wants_gradient;

    fn frozen_operand(input: Tensor<Floating>, scale: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, scale: Tensor) -> Tensor {
        prims::mul(input, scale)
    }

    fn grad(input: Tensor, scale: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (prims::mul(input, scale), move |d_out: Tensor| {
            // The kernel without a gradient of `scale` forgets it.
            let d_input = if wants_gradient(scale) { prims::mul(d_out, scale) } else { prims::mul(d_out, 1.0) };
            Grads { input: d_input, scale: prims::mul(d_out, input) }
        })
    }

    fn reference(input: &ArrayD<f64>, scale: &ArrayD<f64>) -> ArrayD<f64> {
        input * scale
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.uniform(1.5, 2.0, [4, 8])));
    }
}
