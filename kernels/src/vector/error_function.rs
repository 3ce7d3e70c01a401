//! The error function in f32.

use super::exponential::bounded_exp;
use super::multiply_add;

/// erf x: a polynomial near zero, ±(1 - e^polynomial) elsewhere; minimax coefficients by N. Juffa, each part within one
/// unit in the last place.
#[inline(always)]
pub(crate) fn erf<const FMA: bool>(x: f32) -> f32 {
    let t = x.abs();
    // Beyond 4 the result is ±1, and a bounded argument keeps infinity out of the polynomial.
    let bounded = if t > 4.0 { 4.0 } else { t };
    let s = bounded * bounded;

    let mut far = multiply_add::<FMA>(-1.728_534_7e-5, bounded, 3.831_972e-4);
    let low = multiply_add::<FMA>(-3.883_963_9e-3, bounded, 2.425_462_2e-2);
    far = multiply_add::<FMA>(far, s, low);
    far = multiply_add::<FMA>(far, bounded, -1.067_778_8e-1);
    far = multiply_add::<FMA>(far, bounded, -6.348_467e-1);
    far = multiply_add::<FMA>(far, bounded, -1.287_175_1e-1);
    far = multiply_add::<FMA>(far, bounded, -bounded);
    let (number, power) = bounded_exp::<FMA>(far);
    let far = multiply_add::<FMA>(-number, power, 1.0);

    let mut near = -5.967_617e-4;
    near = multiply_add::<FMA>(near, s, 4.991_194_2e-3);
    near = multiply_add::<FMA>(near, s, -2.676_813_5e-2);
    near = multiply_add::<FMA>(near, s, 1.128_199_25e-1);
    near = multiply_add::<FMA>(near, s, -3.761_253_4e-1);
    near = multiply_add::<FMA>(near, s, 1.283_791_66e-1);
    let near = multiply_add::<FMA>(near, t, t);

    (if t > 0.927_734_4 { far } else { near }).copysign(x)
}
