//! The exponential in f32.

use super::multiply_add;

/// Adding and subtracting this rounds to the nearest integer, which then lies in the low bits of the sum: 1.5·2²³.
pub(crate) const ROUNDER: f32 = 12_582_912.0;

/// eˣ: x = n·ln 2 + r, a polynomial of r (coefficients of Cephes' `expf`), and a scaling by 2ⁿ in two steps, so that
/// results down to the smallest subnormal and up to infinity come out right.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // Comparisons this way round let NaN through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add::<FMA>(n, -0.693_359_4, x);
    let r = multiply_add::<FMA>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    p = multiply_add::<FMA>(p, r, 1.398_199_9e-3);
    p = multiply_add::<FMA>(p, r, 8.333_452e-3);
    p = multiply_add::<FMA>(p, r, 4.166_579_6e-2);
    p = multiply_add::<FMA>(p, r, 1.666_666_5e-1);
    p = multiply_add::<FMA>(p, r, 5.000_000_1e-1);
    p = multiply_add::<FMA>(p, r * r, r) + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let half = exponent >> 1;
    let rest = exponent.wrapping_sub(half);
    p * power_of_two(half) * power_of_two(rest)
}

/// eˣ for |x| up to 80 as two factors, a number near 1 and a power of two: who goes on to compute with the product may
/// round once. The polynomial is minimax over |r| ≤ ½·ln 2, within 4.5e-9 of eʳ. NaN gives NaN.
#[inline(always)]
pub(crate) fn bounded_exp<const FMA: bool>(x: f32) -> (f32, f32) {
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUNDER);
    let r = multiply_add::<FMA>(shifted - ROUNDER, -std::f32::consts::LN_2, x);
    let mut p = multiply_add::<FMA>(1.395_054e-3, r, 8.368_918e-3);
    p = multiply_add::<FMA>(p, r, 4.166_620_6e-2);
    p = multiply_add::<FMA>(p, r, 1.666_651_8e-1);
    p = multiply_add::<FMA>(p, r, 0.5);
    p = multiply_add::<FMA>(p, r, 1.0);
    p = multiply_add::<FMA>(p, r, 1.0);
    // The bits of the rounder above the lowest nine are shifted out.
    let exponent = (shifted.to_bits() << 23) as i32 >> 23;
    (p, power_of_two(exponent))
}

/// 2ⁿ for a normal result.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}
