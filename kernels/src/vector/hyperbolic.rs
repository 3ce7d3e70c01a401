//! The hyperbolic tangent in f32.

use super::exponential::bounded_exp;
use super::multiply_add;

/// tanh x: an odd polynomial near zero (coefficients of Cephes' `tanhf`), ±(1 - 2/(e²|ˣ| + 1)) elsewhere.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    let magnitude = x.abs();
    let s = x * x;
    let mut p = -5.704_988_7e-3;
    p = multiply_add::<FMA>(p, s, 2.063_908_9e-2);
    p = multiply_add::<FMA>(p, s, -5.373_971_6e-2);
    p = multiply_add::<FMA>(p, s, 1.333_144_2e-1);
    p = multiply_add::<FMA>(p, s, -3.333_328e-1);
    let near = multiply_add::<FMA>(p * s, magnitude, magnitude);
    // Beyond 10 the result is ±1, and a bounded argument keeps infinity out of the polynomial.
    let bounded = if magnitude > 10.0 { 10.0 } else { magnitude };
    let (number, power) = bounded_exp::<FMA>(2.0 * bounded);
    let far = 1.0 - 2.0 / multiply_add::<FMA>(number, power, 1.0);
    (if magnitude < 0.625 { near } else { far }).copysign(x)
}
