//! Functions of complex numbers by those of their parts. Branches are cut where C, NumPy and PyTorch cut them; signs of
//! zeros say on which side of a cut a number is.

use fulgurite_runtime::Tensor;

use super::parts::{Complex, hypotenuse, is_complex};
use crate::prims::{self, add, atan2, div, eq, exp as exponential, ge, gt, log, lt, mul, neg, select, sqrt, sub};

/// `complex` of complex numbers, `real` of others.
#[track_caller]
pub fn apply(input: Tensor, complex: fn(Complex) -> Complex, real: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    if is_complex(input) { complex(Complex::of(input)).tensor() } else { real(input) }
}

/// `e^z`, of the square root of its magnitude: an infinite magnitude times a zero is none.
#[track_caller]
pub fn exp(z: Complex) -> Complex {
    let half = bounded(exponential(mul(z.re, 0.5)));
    let times = |part: Tensor| mul(mul(half, part), half);
    Complex { re: times(prims::cos(z.im)), im: times(prims::sin(z.im)) }
}

/// `x` with the largest finite number in place of infinity.
#[track_caller]
fn bounded(x: Tensor) -> Tensor {
    let largest = x.dtype().largest();
    prims::minimum(prims::maximum(x, -largest), largest)
}

/// The principal logarithm.
#[track_caller]
pub fn logarithm(z: Complex) -> Complex {
    Complex { re: log(z.magnitude()), im: z.angle() }
}

/// The principal square root: the part that is a sum of magnitudes first, the other as a quotient. Signs are exchanged
/// by comparisons, as magnitudes have no slope at zero, which is on the cut and on the imaginary axis.
#[track_caller]
pub fn root(z: Complex) -> Complex {
    let zero = z.is_zero();
    let safe = select(zero, 1.0, z.re);
    let right = ge(safe, 0.0);
    let size = select(right, safe, neg(safe));
    let larger = sqrt(add(mul(size, 0.5), mul(hypotenuse(safe, z.im), 0.5)));
    let quotient = div(z.im, mul(larger, 2.0));
    let below = prims::signbit(z.im);
    let re = select(right, larger, select(below, neg(quotient), quotient));
    let im = select(right, quotient, select(below, neg(larger), larger));
    // An infinite imaginary part has both parts infinite, whatever the real one is.
    let infinite = eq(prims::abs(z.im), f64::INFINITY);
    let (re, im) = (select(infinite, f64::INFINITY, re), select(infinite, z.im, im));
    Complex { re: select(zero, 0.0, re), im: select(zero, z.im, im) }
}

/// An odd function of real numbers by that of numbers that are not negative. It has the slope of this one at zero.
#[track_caller]
fn odd(x: Tensor, right: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let negative = lt(x, 0.0);
    let value = right(select(negative, neg(x), x));
    select(negative, neg(value), value)
}

/// The hyperbolic sine and cosine of `x / 2` of real numbers, of which those of `x` are made beside a factor: an
/// infinite one times a zero is none.
#[track_caller]
fn of_half(x: Tensor) -> [Tensor; 2] {
    let half = mul(x, 0.5);
    [bounded(crate::core::sinh(half)), bounded(crate::core::cosh(half))]
}

/// `factor · sinh x`, by [`of_half`].
#[track_caller]
fn sinh_times([sinh, cosh]: [Tensor; 2], factor: Tensor) -> Tensor {
    mul(mul(mul(sinh, factor), cosh), 2.0)
}

/// `factor · cosh x`, by [`of_half`].
#[track_caller]
fn cosh_times([sinh, _]: [Tensor; 2], factor: Tensor) -> Tensor {
    add(mul(mul(mul(sinh, factor), sinh), 2.0), factor)
}

/// `1 / √z`.
#[track_caller]
pub fn reciprocal_root(z: Complex) -> Complex {
    reciprocal(root(z))
}

/// `1 / z`.
#[track_caller]
pub fn reciprocal(z: Complex) -> Complex {
    Complex::real(prims::support::constant(z.re, 1.0)).over(z)
}

/// `a^b` by `e^(b · log a)`. Zero has the powers of C and PyTorch: zero where the real part of `b` is above zero,
/// infinite where it is below, and otherwise NaN.
#[track_caller]
pub fn power(a: Complex, b: Complex) -> Complex {
    let (zero, above) = (a.is_zero(), gt(b.re, 0.0));
    let value = exp(b.times(logarithm(Complex { re: select(zero, 1.0, a.re), ..a })));
    let number = |number: f64| prims::support::constant(b.re, number);
    let beyond = select(lt(b.re, 0.0), f64::INFINITY, number(f64::NAN));
    Complex {
        re: select(zero, select(above, 0.0, beyond), value.re),
        im: select(zero, select(above, 0.0, number(f64::NAN)), value.im),
    }
}

/// `sin z`.
#[track_caller]
pub fn sine(z: Complex) -> Complex {
    let half = of_half(z.im);
    Complex { re: cosh_times(half, prims::sin(z.re)), im: sinh_times(half, prims::cos(z.re)) }
}

/// `cos z`.
#[track_caller]
pub fn cosine(z: Complex) -> Complex {
    let half = of_half(z.im);
    Complex { re: cosh_times(half, prims::cos(z.re)), im: neg(sinh_times(half, prims::sin(z.re))) }
}

/// `tan z`.
#[track_caller]
pub fn tangent(z: Complex) -> Complex {
    hyperbolic_tangent(z.turned()).turned_back()
}

/// `sinh z`.
#[track_caller]
pub fn hyperbolic_sine(z: Complex) -> Complex {
    let half = of_half(z.re);
    Complex { re: sinh_times(half, prims::cos(z.im)), im: cosh_times(half, prims::sin(z.im)) }
}

/// `cosh z`.
#[track_caller]
pub fn hyperbolic_cosine(z: Complex) -> Complex {
    let half = of_half(z.re);
    Complex { re: cosh_times(half, prims::cos(z.im)), im: sinh_times(half, prims::sin(z.im)) }
}

/// `tanh z`, of real parts up to 20: beyond, it is ±1 in every type.
#[track_caller]
pub fn hyperbolic_tangent(z: Complex) -> Complex {
    let x = prims::minimum(prims::maximum(z.re, -20.0), 20.0);
    let (wide, high) = (crate::core::sinh(x), prims::cos(z.im));
    let square = add(mul(wide, wide), mul(high, high));
    Complex { re: div(mul(wide, crate::core::cosh(x)), square), im: div(mul(prims::sin(z.im), high), square) }
}

/// `√(1 - z)` and `√(1 + z)`, of which the arc functions are composed (Kahan, "Branch Cuts for Complex Elementary
/// Functions", 1987).
#[track_caller]
fn roots_around_one(z: Complex) -> [Complex; 2] {
    [root(z.negated().shifted(1.0)), root(z.shifted(1.0))]
}

/// `asin z`.
#[track_caller]
pub fn arc_sine(z: Complex) -> Complex {
    let [below, above] = roots_around_one(z);
    Complex { re: atan2(z.re, below.times(above).re), im: crate::core::asinh(below.conjugate().times(above).im) }
}

/// `acos z`.
#[track_caller]
pub fn arc_cosine(z: Complex) -> Complex {
    let [below, above] = roots_around_one(z);
    Complex { re: mul(atan2(below.re, above.re), 2.0), im: crate::core::asinh(above.conjugate().times(below).im) }
}

/// `atan z`.
#[track_caller]
pub fn arc_tangent(z: Complex) -> Complex {
    area_tangent(z.turned()).turned_back()
}

/// `asinh z`.
#[track_caller]
pub fn area_sine(z: Complex) -> Complex {
    arc_sine(z.turned()).turned_back()
}

/// `acosh z`.
#[track_caller]
pub fn area_cosine(z: Complex) -> Complex {
    let (below, above) = (root(z.shifted(-1.0)), root(z.shifted(1.0)));
    Complex { re: crate::core::asinh(below.conjugate().times(above).re), im: mul(atan2(below.im, above.re), 2.0) }
}

/// `atanh z`: half the difference of the logarithms of `1 + z` and `1 - z`, whose angles have the sign of the imaginary
/// part both.
#[track_caller]
pub fn area_tangent(z: Complex) -> Complex {
    let re = odd(bounded(z.re), |x| {
        let distance = hypotenuse(sub(1.0, x), z.im);
        mul(prims::log1p(div(mul(div(x, distance), 4.0), distance)), 0.25)
    });
    let angles = add(atan2(z.im, add(z.re, 1.0)), atan2(z.im, sub(1.0, z.re)));
    Complex { re, im: mul(angles, 0.5) }
}
