//! The exponential in f32.

use super::lanes::{self, Portable, ROUNDER};
use super::multiply_add;

/// eˣ: x = n·ln 2 + r, a polynomial of r (coefficients of Cephes' `expf`), and a scaling by 2ⁿ in two steps, so that
/// results down to the smallest subnormal and up to infinity come out right.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    lanes::exp(Portable::<FMA>(x)).0
}

/// eˣ - 1: x = n·ln 2 + r, the Maclaurin polynomial of eʳ - 1, which is smaller than a half, and 2ⁿ times it with
/// 2ⁿ - 1 added.
#[inline(always)]
pub(crate) fn expm1<const FMA: bool>(x: f32) -> f32 {
    // Below, the result is -1; above, infinite.
    let clamped = x.clamp(-20.0, 89.0);
    let shifted = multiply_add::<FMA>(clamped, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add::<FMA>(n, -0.693_359_4, clamped);
    let r = multiply_add::<FMA>(n, 2.121_944_4e-4, r);
    let mut p = 1.0 / 40320.0;
    p = multiply_add::<FMA>(p, r, 1.0 / 5040.0);
    p = multiply_add::<FMA>(p, r, 1.0 / 720.0);
    p = multiply_add::<FMA>(p, r, 1.0 / 120.0);
    p = multiply_add::<FMA>(p, r, 1.0 / 24.0);
    p = multiply_add::<FMA>(p, r, 1.0 / 6.0);
    p = multiply_add::<FMA>(p, r, 0.5);
    let p = multiply_add::<FMA>(p * r, r, r);
    // Half of the power of two, which is finite for the largest n.
    let half = f32::from_bits(((n as i32 + 126) << 23) as u32);
    let value = 2.0 * multiply_add::<FMA>(half, p, half - 0.5);
    let value = if n == 0.0 { p } else { value };
    let value = if x > 88.8 { f32::INFINITY } else { value };
    let value = if x < -20.0 { -1.0 } else { value };
    // A zero keeps its sign, and no number is none.
    if x == 0.0 || x.is_nan() { x } else { value }
}
