//! Elementwise functions of one tensor.

use fulgurite_ops_macros::{operator, operators};

use super::support::{constant, map};
use crate::prims::*;

// Declares elementwise functions of a floating-point tensor: their arithmetic, their f64 reference, the cotangent of
// the input from the input, the output and the output's cotangent, and the domain of their samples.
operators! {
    #[operator(prim, torch = $torch, autocast = $autocast)]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn scalar(input: Expr) -> Expr {
            $scalar
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input);
            (out, move |d_out: Tensor| Grads { input: $d_input })
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary($domain);
            s.case(with(s.uniform(0.5, 2.0, [67, 65])));
        }
    }

    table($name, $torch, $autocast, $domain, $scalar, $reference, $d_input) {
        /// Natural exponential, elementwise: `eˣ`.
        exp, "exp", full, Domain::ALL, input.exp(), |x| x.exp(), mul(d_out, out);
        /// `eˣ - 1`, elementwise, also where it is small.
        expm1, "expm1", full, Domain::ALL, input.expm1(), |x| x.exp_m1(), mul(d_out, add(out, 1.0));
        /// Natural logarithm, elementwise; NaN below zero.
        log, "log", full, Domain::POSITIVE, input.log(), |x| x.ln(), div(d_out, input);
        /// Natural logarithm of `1 + x`, elementwise, also where x is small; NaN below -1.
        log1p, "log1p", full, Domain::POSITIVE, input.log1p(), |x| x.ln_1p(), div(d_out, add(input, 1.0));
        /// Logarithm to base 2, elementwise, exact at powers of 2; NaN below zero.
        log2, "log2", full, Domain::POSITIVE, input.log2(), |x| x.log2(),
            div(d_out, mul(input, std::f64::consts::LN_2));
        /// Logarithm to base 10, elementwise, exact at powers of 10; NaN below zero.
        log10, "log10", full, Domain::POSITIVE,
            input.log10(),
            |x| x.log10(),
            div(d_out, mul(input, std::f64::consts::LN_10));
        /// Square root, elementwise; NaN below zero.
        sqrt, "sqrt", _, Domain::POSITIVE, input.sqrt(), |x| x.sqrt(), div(mul(d_out, 0.5), out);
        /// Reciprocal square root, elementwise: `1 / √x`.
        rsqrt, "rsqrt", full, Domain::POSITIVE,
            input.rsqrt(),
            |x| 1.0 / x.sqrt(),
            mul(mul(d_out, -0.5), mul(mul(out, out), out));
        /// Reciprocal, elementwise: `1 / x`.
        reciprocal, "reciprocal", full, Domain::POSITIVE,
            input.reciprocal(),
            |x| 1.0 / x,
            neg(mul(d_out, mul(out, out)));
        /// Sine, elementwise, of radians.
        sin, "sin", _, Domain::ALL, input.sin(), |x| x.sin(), mul(d_out, cos(input));
        /// Cosine, elementwise, of radians.
        cos, "cos", _, Domain::ALL, input.cos(), |x| x.cos(), neg(mul(d_out, sin(input)));
        /// Hyperbolic tangent, elementwise.
        tanh, "tanh", _, Domain::ALL, input.tanh(), |x| x.tanh(), mul(d_out, sub(1.0, mul(out, out)));
        /// Error function, elementwise: `2/√π ∫₀ˣ e^(-t²) dt`.
        erf, "erf", _, Domain::ALL,
            input.erf(),
            error_function,
            mul(mul(d_out, std::f64::consts::FRAC_2_SQRT_PI), exp(neg(mul(input, input))));
        /// Complement of the error function, elementwise: `2/√π ∫ₓ e^(-t²) dt`, also where it is small.
        erfc, "special.erfc", _, Domain::ALL,
            input.erfc(),
            crate::core::arrays::erfc,
            mul(mul(d_out, -std::f64::consts::FRAC_2_SQRT_PI), exp(neg(mul(input, input))));
    }
}

/// For references: the error function by its series with positive terms, `2/√π e^(-x²) Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!`.
fn error_function(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * 0.01 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Absolute value, elementwise. The subgradient at zero is zero. Integers wrap: the smallest is its own absolute value.
#[operator(prim, torch = "abs")]
pub mod abs {
    fn abs(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn scalar(input: Expr) -> Expr {
        input.abs()
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (abs(input), move |d_out: Tensor| Grads { input: mul(d_out, sign(input)) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        map(input, f64::abs, i64::wrapping_abs)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.normal([67, 65])));
        s.case(with(s.values([3], [-2.0, 0.0, 3.0]))).forward_only("a kink").gradients([&[-1.0, 0.0, 3.0]]);
    }
}

/// Negation, elementwise. Unsigned integers wrap.
#[operator(prim, torch = "neg")]
pub mod neg {
    fn neg(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn scalar(input: Expr) -> Expr {
        -input
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (neg(input), move |d_out: Tensor| Grads { input: neg(d_out) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        map(input, |x| -x, i64::wrapping_neg)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.normal([67, 65])));
    }
}

/// Sign, elementwise: -1, 0 or 1; 0 for NaN. Its gradient is zero everywhere.
#[operator(prim, torch = "sign", waive(d_out = "the function is constant between its jumps"))]
pub mod sign {
    fn sign(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn scalar(input: Expr) -> Expr {
        input.sign()
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (sign(input), move |_d_out: Tensor| Grads { input: constant(input, 0.0) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        map(input, |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)), i64::signum)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.normal([67, 65])));
        s.case(with(s.values([3], [-2.0, 0.0, 3.0]))).forward_only("a jump").gradients([&[0.0; 3]]);
    }
}

// Declares functions of floating-point numbers whose values are integers.
operators! {
    #[operator(prim, torch = $torch, waive(d_out = "the function is constant between its jumps"))]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn scalar(input: Expr) -> Expr {
            input.$name()
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            ($name(input), move |_d_out: Tensor| Grads { input: constant(input, 0.0) })
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::ALL);
            s.case(with(s.normal([67, 65])));
            s.case(with(s.values([3], [-1.5, 2.0, 2.5]))).forward_only("a jump").gradients([&[0.0; 3]]);
        }
    }

    table($name, $torch, $reference) {
        /// The largest integer not above each element. Its gradient is zero everywhere.
        floor, "floor", f64::floor;
        /// The integer nearest to each element, the even one of two that are as near. Its gradient is zero everywhere.
        round, "round", f64::round_ties_even;
    }
}

// Declares predicates of numbers.
operators! {
    #[operator(prim, torch = $torch, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(input: Tensor<Number>) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(DType::Bool))
        }

        fn scalar(input: Expr) -> Expr {
            input.$method()
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<bool> {
            input.mapv($reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::ALL);
            s.case(with(s.normal([67, 65])));
        }
    }

    table($name, $torch, $method, $reference) {
        /// Whether each element is neither infinite nor NaN; integers always are finite.
        isfinite, "isfinite", is_finite, f64::is_finite;
        /// Whether the sign of each element is negative, that of -0 and of NaN as well.
        signbit, "signbit", is_negative, f64::is_sign_negative;
    }
}

/// Whether each element is zero. NaN is not.
#[operator(prim, torch = "logical_not", no_grad = "a boolean has no gradient")]
pub mod logical_not {
    fn logical_not(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(DType::Bool))
    }

    fn scalar(input: Expr) -> Expr {
        input.eq(0.0)
    }

    fn reference(input: &ArrayD<bool>) -> ArrayD<bool> {
        input.mapv(|x| !x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([3, 2], [0.0, 1.0, -1.0])));
        s.case(with(s.normal([67, 65])));
    }
}
