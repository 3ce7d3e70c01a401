//! Elementwise functions of one tensor. Integers and booleans become f32 where the function's values are no integers.

use fulgurite_ops_macros::{operator, operators};

use num_complex::Complex64;

use super::parts::{self, Complex, is_complex};
use super::promotion::{cast, constant, floating};
use super::{complex_functions, complex_references as references};
use crate::prims;

// Declares functions whose values are real numbers: the prim of the same name after promotion.
operators! {
    #[operator(torch = $torch, autocast = $autocast, $complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            complex_functions::apply(input, $parts, |input| prims::$name(cast(input, floating(input.dtype()))))
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            references::each(input, $reference, $of_complex)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary($domain);
            if s.dtype().is_complex() {
                s.case(with(s.normal([5, 7])));
                // On the axes, where the magnitudes of parts have no slope.
                s.case(with(s.values([4], [0.0, 2.0, 0.0, -3.0, 4.0, 0.0, -0.0, 0.5])));
            }
        }
    }

    table($name, $torch, $autocast, $complex, $domain, $parts, $reference, $of_complex) {
        /// Natural exponential, elementwise: `eˣ`.
        exp, "exp", full, complex, Domain::ALL, complex_functions::exp, |x| x.exp(), references::exp;
        /// Natural logarithm, elementwise; NaN below zero.
        log, "log", full, complex, Domain::POSITIVE, complex_functions::logarithm, |x| x.ln(), references::log;
        /// Square root, elementwise; NaN below zero.
        sqrt, "sqrt", _, complex, Domain::POSITIVE, complex_functions::root, |x| x.sqrt(), references::sqrt;
        /// Reciprocal square root, elementwise: `1 / √x`.
        rsqrt, "rsqrt", full, complex, Domain::POSITIVE, complex_functions::reciprocal_root, |x| 1.0 / x.sqrt(),
            |z| references::quotient(1.0.into(), references::sqrt(z));
        /// Reciprocal, elementwise: `1 / x`.
        reciprocal, "reciprocal", full, complex, Domain::POSITIVE, complex_functions::reciprocal, |x| 1.0 / x,
            |z| references::quotient(1.0.into(), z);
        /// Sine, elementwise, of radians.
        sin, "sin", _, complex, Domain::ALL, complex_functions::sine, |x| x.sin(),
            |z| references::turned(z, references::sinh);
        /// Cosine, elementwise, of radians.
        cos, "cos", _, complex, Domain::ALL, complex_functions::cosine, |x| x.cos(),
            |z| references::cosh(Complex64::new(-z.im, z.re));
        /// Hyperbolic tangent, elementwise.
        tanh, "tanh", _, complex, Domain::ALL, complex_functions::hyperbolic_tangent, |x| x.tanh(), references::tanh;
        /// Error function, elementwise: `2/√π ∫₀ˣ e^(-t²) dt`.
        erf, "erf", _, _, Domain::ALL, |z| z, crate::core::arrays::erf, |z| z;
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

/// Absolute value, elementwise; of complex numbers the distance from zero. The gradient at zero is zero.
#[operator(torch = "abs", complex)]
pub mod abs {
    fn abs(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(input.dtype().part()))
    }

    fn decomposition(input: Tensor) -> Tensor {
        if is_complex(input) { Complex::of(input).magnitude() } else { prims::abs(input) }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        match input.imaginary() {
            Some(_) => references::each_to_real(input, f64::abs, |z| z.re.hypot(z.im)),
            None => crate::core::arrays::remade(input, |a| a.mapv(f64::abs), |a| a.mapv(i64::wrapping_abs)),
        }
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([5], [0.5, -1.5, 2.0, -7.0, 0.0]))).forward_only("kinks and jumps");
        if s.dtype().is_complex() {
            let infinity = f64::INFINITY;
            s.case(with(s.values([3], [0.0, 0.0, infinity, -1.0, 3.0, -infinity]))).forward_only("special values");
        }
    }
}

/// Negation, elementwise: `-input`. Unsigned integers wrap.
#[operator(torch = "neg", overload = Neg, complex)]
pub mod neg {
    fn neg(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        parts::neg(input)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        crate::core::arrays::remade(input, |a| a.mapv(|x| -x), |a| a.mapv(i64::wrapping_neg))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

/// Whether each element is neither infinite nor NaN; integers and booleans always are finite, complex numbers if both
/// parts are.
#[operator(torch = "isfinite", complex, no_grad = "a boolean has no gradient")]
pub mod isfinite {
    fn isfinite(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(DType::Bool))
    }

    fn decomposition(input: Tensor) -> Tensor {
        match input.dtype() {
            DType::Bool => constant(true, &input.meta()),
            dtype if dtype.is_complex() => {
                let Complex { re, im } = Complex::of(input);
                prims::logical_and(prims::isfinite(re), prims::isfinite(im))
            }
            _ => prims::isfinite(input),
        }
    }

    fn reference(input: &ReferenceTensor) -> ArrayD<bool> {
        input.complex().mapv(|z| z.re.is_finite() && z.im.is_finite())
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
