//! Functions of complex numbers by those of their parts. Branches are cut where C, NumPy and PyTorch cut them; signs of
//! zeros say on which side of a cut a number is.

use fulgurite_runtime::Tensor;

use super::parts::{Complex, hypotenuse, is_complex};
use crate::prims::{self, add, atan2, div, exp as exponential, ge, log, lt, mul, neg, select, sqrt, sub};

/// `complex` of complex numbers, `real` of others.
#[track_caller]
pub fn apply(input: Tensor, complex: fn(Complex) -> Complex, real: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    if is_complex(input) { complex(Complex::of(input)).tensor() } else { real(input) }
}

/// `e^z`.
#[track_caller]
pub fn exp(z: Complex) -> Complex {
    let size = exponential(z.re);
    Complex { re: mul(size, prims::cos(z.im)), im: mul(size, prims::sin(z.im)) }
}

/// The principal logarithm.
#[track_caller]
pub fn logarithm(z: Complex) -> Complex {
    Complex { re: log(z.magnitude()), im: z.angle() }
}

/// The principal square root: the part that is a sum of magnitudes first, the other as a quotient.
#[track_caller]
pub fn root(z: Complex) -> Complex {
    let zero = z.is_zero();
    let safe = select(zero, 1.0, z.re);
    let larger = sqrt(mul(add(prims::abs(safe), hypotenuse(safe, z.im)), 0.5));
    let quotient = div(z.im, mul(larger, 2.0));
    let right = ge(safe, 0.0);
    let re = select(right, larger, prims::abs(quotient));
    let im = select(right, quotient, select(prims::signbit(z.im), neg(larger), larger));
    Complex { re: select(zero, 0.0, re), im: select(zero, z.im, im) }
}

/// An odd function of real numbers by that of numbers that are not negative. It has the slope of this one at zero.
#[track_caller]
fn odd(x: Tensor, right: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let negative = lt(x, 0.0);
    let value = right(select(negative, neg(x), x));
    select(negative, neg(value), value)
}

/// `sinh x` of real numbers.
#[track_caller]
fn sinh(x: Tensor) -> Tensor {
    odd(x, |x| {
        let less = prims::expm1(x);
        mul(add(less, div(less, add(less, 1.0))), 0.5)
    })
}

/// `cosh x` of real numbers.
#[track_caller]
fn cosh(x: Tensor) -> Tensor {
    mul(add(exponential(x), exponential(neg(x))), 0.5)
}

/// `asinh x` of real numbers.
#[track_caller]
fn asinh(x: Tensor) -> Tensor {
    odd(x, |x| {
        let square = mul(x, x);
        prims::log1p(add(x, div(square, add(sqrt(add(square, 1.0)), 1.0))))
    })
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

/// `sin z`.
#[track_caller]
pub fn sine(z: Complex) -> Complex {
    Complex { re: mul(prims::sin(z.re), cosh(z.im)), im: mul(prims::cos(z.re), sinh(z.im)) }
}

/// `cos z`.
#[track_caller]
pub fn cosine(z: Complex) -> Complex {
    Complex { re: mul(prims::cos(z.re), cosh(z.im)), im: neg(mul(prims::sin(z.re), sinh(z.im))) }
}

/// `tan z`.
#[track_caller]
pub fn tangent(z: Complex) -> Complex {
    hyperbolic_tangent(z.turned()).turned_back()
}

/// `sinh z`.
#[track_caller]
pub fn hyperbolic_sine(z: Complex) -> Complex {
    Complex { re: mul(sinh(z.re), prims::cos(z.im)), im: mul(cosh(z.re), prims::sin(z.im)) }
}

/// `cosh z`.
#[track_caller]
pub fn hyperbolic_cosine(z: Complex) -> Complex {
    Complex { re: mul(cosh(z.re), prims::cos(z.im)), im: mul(sinh(z.re), prims::sin(z.im)) }
}

/// `tanh z`, of real parts up to 20: beyond, it is ±1 in every type.
#[track_caller]
pub fn hyperbolic_tangent(z: Complex) -> Complex {
    let x = prims::minimum(prims::maximum(z.re, -20.0), 20.0);
    let (wide, high) = (sinh(x), prims::cos(z.im));
    let square = add(mul(wide, wide), mul(high, high));
    Complex { re: div(mul(wide, cosh(x)), square), im: div(mul(prims::sin(z.im), high), square) }
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
    Complex { re: atan2(z.re, below.times(above).re), im: asinh(below.conjugate().times(above).im) }
}

/// `acos z`.
#[track_caller]
pub fn arc_cosine(z: Complex) -> Complex {
    let [below, above] = roots_around_one(z);
    Complex { re: mul(atan2(below.re, above.re), 2.0), im: asinh(above.conjugate().times(below).im) }
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
    Complex { re: asinh(below.conjugate().times(above).re), im: mul(atan2(below.im, above.re), 2.0) }
}

/// `atanh z`.
#[track_caller]
pub fn area_tangent(z: Complex) -> Complex {
    let square = mul(z.im, z.im);
    let re = odd(z.re, |x| {
        let left = sub(1.0, x);
        mul(prims::log1p(div(mul(x, 4.0), add(mul(left, left), square))), 0.25)
    });
    let across = sub(mul(sub(1.0, z.re), add(z.re, 1.0)), square);
    Complex { re, im: mul(atan2(mul(z.im, 2.0), across), 0.5) }
}
