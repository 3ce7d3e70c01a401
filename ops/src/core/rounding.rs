//! Elementwise functions that keep the element type: roundings, and what is left of them.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Tensor};

use super::complex_references::each;
use super::parts::{Complex, is_complex};
use super::promotion::{cast, constant, in_floating};
use crate::prims::{self, div, eq, lt, mul, ne, neg, select, sub};

operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<$class>) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn decomposition(input: Tensor) -> Tensor {
            if input.dtype().is_floating() { $floats } else { $integers }
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            crate::core::arrays::remade(input, |a| a.mapv($reference), |a| a.mapv($of_integers))
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
            s.case(with(s.values([6], [0.5, -1.5, 2.5, -7.0, -0.25, 3.5]))).forward_only("jumps and ties");
        }
    }

    table($name, $class, $torch, $floats, $integers, $reference, $of_integers) {
        /// The smallest integer not below each element. Its gradient is zero everywhere.
        ceil, Number, "ceil", neg(prims::floor(neg(input))), input, |x: f64| x.ceil(), |x: i64| x;
        /// The integer part of each element: rounded towards zero. Its gradient is zero everywhere.
        trunc, Number, "trunc", towards_zero(input), input, |x: f64| x.trunc(), |x: i64| x;
        /// What is left of each element without its integer part, with its sign.
        frac, Floating, "frac", sub(input, towards_zero(input)), input, |x: f64| x - x.trunc(), |x: i64| x;
        /// Each element as it is.
        positive, Number, "positive", input, input, |x: f64| x, |x: i64| x;
    }
}

/// The square of each element. Integers wrap; booleans become i64.
#[operator(torch = "square", complex)]
pub mod square {
    fn square(input: Tensor) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        let input = if input.dtype() == DType::Bool { cast(input, DType::I64) } else { input };
        if is_complex(input) { crate::core::mul(input, input) } else { mul(input, input) }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        match input.dtype() {
            DType::Bool => ReferenceTensor::from_integers(DType::I64, input.integers().clone()),
            dtype if dtype.is_complex() => each(input, |x| x * x, |z| z * z),
            _ => crate::core::arrays::remade(input, |a| a.mapv(|x| x * x), |a| a.mapv(|x| x.wrapping_mul(x))),
        }
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        s.case(with(s.values([6], [0.5, -1.5, 2.5, -7.0, -0.25, 3.5]))).forward_only("jumps and ties");
    }
}

/// The integer part; -0 of a number between -1 and 0.
#[track_caller]
fn towards_zero(input: Tensor) -> Tensor {
    select(lt(input, 0.0), neg(prims::floor(neg(input))), prims::floor(input))
}

/// Each element rounded to `decimals` digits behind the point (before it, if negative), computed in f32 for f16 and
/// bf16. Of two numbers as near the one with an even last digit is taken. The gradient is zero everywhere.
#[operator(torch = "round")]
pub mod round {
    fn round(input: Tensor<Number>, #[default(0)] decimals: i64) -> Tensor;

    fn meta(input: &TensorMeta, decimals: i64) -> Result<TensorMeta> {
        let whole = decimals == 0 || input.dtype().is_floating();
        require!(whole, Decimals, "decimals is {decimals}, expected 0 for integers, input is {input}");
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, decimals: i64) -> Tensor {
        let power = 10f64.powi(decimals.unsigned_abs() as i32);
        match (input.dtype().is_floating(), decimals) {
            (false, _) => input,
            (true, 0) => prims::round(input),
            (true, 1..) => in_floating(input, |x| div(prims::round(mul(x, power)), power)),
            (true, _) => in_floating(input, |x| mul(prims::round(div(x, power)), power)),
        }
    }

    fn reference(input: &ReferenceTensor, decimals: i64) -> ReferenceTensor {
        let power = 10f64.powi(decimals as i32);
        crate::core::arrays::remade(input, |a| a.mapv(|x| (x * power).round_ties_even() / power), |a| a.clone())
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        s.case(with(s.values([6], [0.5, -1.5, 2.5, -7.0, -0.25, 3.5]))).forward_only("ties");
        if s.dtype().is_floating() {
            for decimals in [1, -1] {
                let values = s.values([6], [0.3, -1.6, 26.0, -74.0, 12.1, 4.0]);
                s.case(with(values).decimals(decimals)).forward_only("jumps");
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Decimals, with(e.of(DType::I64, [2])).decimals(1), "decimals is 1, expected 0 for integers");
    }
}

// Declares predicates of floating-point numbers, which no integer or boolean has.
operators! {
    #[operator(torch = $torch, $complex, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.with_dtype(DType::Bool))
        }

        fn decomposition(input: Tensor) -> Tensor {
            let holds: fn(Tensor) -> Tensor = $floats;
            match input.dtype() {
                dtype if dtype.is_floating() => holds(input),
                dtype if dtype.is_complex() => {
                    let Complex { re, im } = Complex::of(input);
                    prims::logical_or(holds(re), holds(im))
                }
                _ => constant(false, &input.meta().with_dtype(DType::Bool)),
            }
        }

        fn reference(input: &ReferenceTensor) -> ArrayD<bool> {
            let holds: fn(f64) -> bool = $reference;
            input.complex().mapv(|z| holds(z.re) || holds(z.im))
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
            if s.dtype().is_complex() {
                s.case(with(s.values([5], [0.0, 1.0, f64::NAN, 1.0, 2.0, f64::INFINITY, -f64::INFINITY, f64::NAN])));
            }
        }
    }

    table($name, $torch, $complex, $floats, $reference) {
        /// Whether each element is not a number; of complex numbers, whether a part is none.
        isnan, "isnan", complex, |x| ne(x, x), |x| x.is_nan();
        /// Whether each element is infinite; of complex numbers, whether a part is.
        isinf, "isinf", complex, |x| eq(prims::abs(x), f64::INFINITY), |x| x.is_infinite();
        /// Whether each element is positive infinity.
        isposinf, "isposinf", _, |x| eq(x, f64::INFINITY), |x| x == f64::INFINITY;
        /// Whether each element is negative infinity.
        isneginf, "isneginf", _, |x| eq(x, f64::NEG_INFINITY), |x| x == f64::NEG_INFINITY;
    }
}

/// Whether the sign of each element is negative, that of -0 and of NaN as well. Booleans have none.
#[operator(torch = "signbit", no_grad = "a boolean has no gradient")]
pub mod signbit {
    fn signbit(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(DType::Bool))
    }

    fn decomposition(input: Tensor) -> Tensor {
        match input.dtype() {
            DType::Bool => constant(false, &input.meta()),
            _ => prims::signbit(input),
        }
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<bool> {
        input.mapv(f64::is_sign_negative)
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// The sign of each element: see [`sign`](super::sign), which it is for real numbers; of complex ones the number of
/// magnitude 1 at the same angle, and zero of zero.
#[operator(torch = "sgn", complex)]
pub mod sgn {
    fn sgn(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        if is_complex(input) { Complex::of(input).sign().tensor() } else { crate::core::sign(input) }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        let of_complex = |z: num_complex::Complex64| {
            let size = z.re.hypot(z.im);
            if size == 0.0 { 0.0.into() } else { z / size }
        };
        each(input, |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)), of_complex)
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        if s.dtype().is_complex() {
            s.case(with(s.values([1], [0.0, -0.0]))).forward_only("zero by definition").gradients([&[0.0; 2]]);
        }
    }
}

/// `input` with other numbers for NaN and the infinities: `nan`, `posinf` and `neginf`; without the latter two the
/// largest and the smallest number of the element type. Replaced elements have no gradient; integers stay as they are.
#[operator(torch = "nan_to_num")]
pub mod nan_to_num {
    fn nan_to_num(
        input: Tensor,
        #[default(0.0)] nan: f64,
        #[default(None)] posinf: Option<f64>,
        #[default(None)] neginf: Option<f64>,
    ) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Tensor {
        let dtype = input.dtype();
        if !dtype.is_floating() {
            return input;
        }
        let largest = crate::core::promotion::largest_number(dtype);
        let finite = select(ne(input, input), nan, input);
        let low = select(eq(input, f64::NEG_INFINITY), neginf.unwrap_or(-largest), finite);
        select(eq(input, f64::INFINITY), posinf.unwrap_or(largest), low)
    }

    fn reference(input: &ReferenceTensor, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> ReferenceTensor {
        let dtype = input.dtype();
        let largest = match dtype {
            DType::F16 => 65_504.0,
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F32 => f64::from(f32::MAX),
            _ => f64::MAX,
        };
        let [nan, high, low] =
            [nan, posinf.unwrap_or(largest), neginf.unwrap_or(-largest)].map(|value| dtype.nearest(value));
        let finite = |x: f64| match x {
            _ if x.is_nan() => nan,
            f64::INFINITY => high,
            f64::NEG_INFINITY => low,
            _ => x,
        };
        crate::core::arrays::remade(input, |a| a.mapv(finite), |a| a.clone())
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        if s.dtype().is_floating() {
            let special = s.values([4], [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5]);
            s.case(with(special).nan(-1.0).posinf(2.5).neginf(-7.0)).forward_only("special values");
        }
    }
}
