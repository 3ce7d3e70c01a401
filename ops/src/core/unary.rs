//! Elementwise functions of one tensor. Integers and booleans become f32 where the function's values are no integers.

use fulgurite_ops_macros::{operator, operators};

use super::promotion::{cast, constant, floating};
use crate::prims;

// Declares functions whose values are real numbers: the prim of the same name after promotion.
operators! {
    #[operator(torch = $torch, autocast = $autocast)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            prims::$name(cast(input, floating(input.dtype())))
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary($domain);
        }
    }

    table($name, $torch, $autocast, $domain, $reference) {
        /// Natural exponential, elementwise: `eˣ`.
        exp, "exp", full, Domain::ALL, |x| x.exp();
        /// Natural logarithm, elementwise; NaN below zero.
        log, "log", full, Domain::POSITIVE, |x| x.ln();
        /// Square root, elementwise; NaN below zero.
        sqrt, "sqrt", _, Domain::POSITIVE, |x| x.sqrt();
        /// Reciprocal square root, elementwise: `1 / √x`.
        rsqrt, "rsqrt", full, Domain::POSITIVE, |x| 1.0 / x.sqrt();
        /// Reciprocal, elementwise: `1 / x`.
        reciprocal, "reciprocal", full, Domain::POSITIVE, |x| 1.0 / x;
        /// Sine, elementwise, of radians.
        sin, "sin", _, Domain::ALL, |x| x.sin();
        /// Cosine, elementwise, of radians.
        cos, "cos", _, Domain::ALL, |x| x.cos();
        /// Hyperbolic tangent, elementwise.
        tanh, "tanh", _, Domain::ALL, |x| x.tanh();
        /// Error function, elementwise: `2/√π ∫₀ˣ e^(-t²) dt`.
        erf, "erf", _, Domain::ALL, crate::core::arrays::erf;
    }
}

// Declares functions that keep the element type; `integers` says how they treat these.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<$class>) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn decomposition(input: Tensor) -> Tensor {
            $decomposition
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            crate::core::arrays::remade(input, |a| a.mapv($floats), |a| a.mapv($integers))
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::ALL);
            s.case(with(s.values([5], [0.5, -1.5, 2.0, -7.0, 0.0]))).forward_only("kinks and jumps");
        }
    }

    table($name, $class, $torch, $decomposition, $floats, $integers) {
        /// Absolute value, elementwise. The subgradient at zero is zero.
        abs, Number, "abs", prims::abs(input), |x: f64| x.abs(), |x: i64| x.wrapping_abs();
        /// Sign, elementwise: -1, 0 or 1; 0 for NaN. A boolean is its own. The gradient is zero everywhere.
        sign, Any, "sign", if input.dtype() == DType::Bool { input } else { prims::sign(input) },
            |x: f64| if x == 0.0 || x.is_nan() { 0.0 } else { x.signum() },
            |x: i64| x.signum();
        /// The largest integer not above each element. Its gradient is zero everywhere.
        floor, Number, "floor", if input.dtype().is_floating() { prims::floor(input) } else { input },
            |x: f64| x.floor(),
            |x: i64| x;
    }
}

/// Negation, elementwise: `-input`. Unsigned integers wrap.
#[operator(torch = "neg", overload = Neg)]
pub mod neg {
    fn neg(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(arguments: Arguments) -> Tensor {
        prims::neg::call(arguments)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        crate::core::arrays::remade(input, |a| a.mapv(|x| -x), |a| a.mapv(i64::wrapping_neg))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

/// Whether each element is neither infinite nor NaN; integers and booleans always are finite.
#[operator(torch = "isfinite", no_grad = "a boolean has no gradient")]
pub mod isfinite {
    fn isfinite(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(DType::Bool))
    }

    fn decomposition(input: Tensor) -> Tensor {
        match input.dtype() {
            DType::Bool => constant(true, &input.meta()),
            _ => prims::isfinite(input),
        }
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<bool> {
        input.mapv(f64::is_finite)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

/// Whether each element is zero. NaN is not.
#[operator(torch = "logical_not", no_grad = "a boolean has no gradient")]
pub mod logical_not {
    fn logical_not(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(DType::Bool))
    }

    fn decomposition(arguments: Arguments) -> Tensor {
        prims::logical_not::call(arguments)
    }

    fn reference(input: &ArrayD<bool>) -> ArrayD<bool> {
        input.mapv(|x| !x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([3, 2], [0.0, 1.0, -1.0])));
    }
}
