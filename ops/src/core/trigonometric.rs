//! Angles and their functions, elementwise, computed in f32 for f16 and bf16. Integers and booleans become f32.

use std::f64::consts::PI;

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::promotion::{cotangent_of, floating, in_floating};
use super::{complex_functions, complex_references as references};
use crate::prims::{self, add, cos, div, eq, mul, neg, select, sin, sqrt, sub};

operators! {
    #[operator(torch = $torch, autocast = $autocast, complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            complex_functions::apply(input, $parts, |input| in_floating(input, |x| $value))
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            ($name(input), move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, |d, x| $d_input) })
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            references::each(input, $reference, $of_complex)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary($domain);
            if s.dtype().is_complex() {
                s.case(with(s.normal([5, 7])));
                // `1 - z` and `1 + z` on the imaginary axis, where magnitudes of real parts have no slope.
                s.case(with(s.values([4], [1.0, 1.0, -1.0, -1.0, 0.5, 0.5, 1.0, -5.0])));
            }
        }
    }

    table($name, $torch, $autocast, $domain, $parts, $of_complex, $value, $reference, $d_input) {
        /// Tangent, elementwise, of radians.
        tan, "tan", full, Domain::UNIT, complex_functions::tangent, |z| references::turned(z, references::tanh),
            div(sin(x), cos(x)), |x| x.tan(), {
            let tangent = div(sin(x), cos(x));
            mul(d, add(mul(tangent, tangent), 1.0))
        };
        /// The angle from -π/2 to π/2 whose sine each element is; NaN outside of [-1, 1].
        asin, "asin", full, Domain::UNIT, complex_functions::arc_sine, |z| references::turned(z, references::asinh),
            prims::atan2(x, cosine_of_arcsine(x)), |x| x.asin(),
            div(d, cosine_of_arcsine(x));
        /// The angle from 0 to π whose cosine each element is; NaN outside of [-1, 1].
        acos, "acos", full, Domain::UNIT, complex_functions::arc_cosine, references::acos,
            prims::atan2(cosine_of_arcsine(x), x), |x| x.acos(),
            neg(div(d, cosine_of_arcsine(x)));
        /// The angle from -π/2 to π/2 whose tangent each element is.
        atan, "atan", _, Domain::UNIT, complex_functions::arc_tangent, |z| references::turned(z, references::atanh),
            prims::atan2(x, 1.0), |x| x.atan(), div(d, add(mul(x, x), 1.0));
    }
}

// Declares conversions of angles.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(floating(input.dtype())))
        }

        fn decomposition(input: Tensor) -> Tensor {
            in_floating(input, |x| mul(x, $factor))
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            elementwise(input, $reference)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
        }
    }

    table($name, $torch, $factor, $reference) {
        /// Degrees in radians, elementwise: `x π/180`.
        deg2rad, "deg2rad", PI / 180.0, f64::to_radians;
        /// Radians in degrees, elementwise: `x 180/π`.
        rad2deg, "rad2deg", 180.0 / PI, f64::to_degrees;
    }
}

/// The normalized sine of each element, `sin(πx) / πx`; 1 at zero.
#[operator(
    torch = "sinc",
    skip(
        consistency,
        dtype = bool,
        dtype = u8,
        dtype = i8,
        dtype = u16,
        dtype = i32,
        dtype = i64,
        reason = "of integers but zero the result is the rounding error of π, in f32 as in PyTorch"
    )
)]
pub mod sinc {
    fn sinc(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor) -> Tensor {
        in_floating(input, |x| {
            let angle = mul(x, PI);
            select(eq(x, 0.0), 1.0, div(sin(angle), angle))
        })
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let d_input = |d, x| {
            let angle = mul(x, PI);
            let slope = div(sub(cos(angle), div(sin(angle), angle)), x);
            select(eq(x, 0.0), 0.0, mul(d, slope))
        };
        (sinc(input), move |d_out: Tensor| Grads { input: cotangent_of(d_out, input, d_input) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) })
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// `√((1 - x)(1 + x))`, which has all digits near 1, where `1 - x²` loses half of them.
#[track_caller]
fn cosine_of_arcsine(x: Tensor) -> Tensor {
    sqrt(mul(sub(1.0, x), add(1.0, x)))
}
