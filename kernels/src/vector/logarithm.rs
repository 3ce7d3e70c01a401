//! The natural logarithm in f32.

use super::multiply_add;

/// ln (1 + x): the logarithm of what 1 + x is rounded to, and the part that the rounding lost, over it.
#[inline(always)]
pub(crate) fn log1p<const FMA: bool>(x: f32) -> f32 {
    let sum = 1.0 + x;
    // The smaller of two terms is what is left of the sum without the larger.
    let lost = if x < 1.0 { x - (sum - 1.0) } else { 1.0 - (sum - x) };
    let value = log::<FMA>(sum) + lost / sum;
    // Where the sum is 0 or infinite nothing is lost; a small number, and a zero with its sign, is its own logarithm.
    let value = if sum == 0.0 || sum == f32::INFINITY { log::<FMA>(sum) } else { value };
    if sum == 1.0 { x } else { value }
}

/// ln x: x = 2ᵉ·m with m in [√½, √2), and a polynomial of m - 1 (coefficients of Cephes' `logf`).
#[inline(always)]
pub(crate) fn log<const FMA: bool>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bias = if subnormal { -23.0 } else { 0.0 };
    let bits = scaled.to_bits() as i32;
    // The bits of √½ as the origin: the exponent then is that of the mantissa in [√½, √2).
    let exponent = bits.wrapping_sub(0x3f35_04f3) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(exponent.wrapping_shl(23)) as u32) - 1.0;
    let e = exponent as f32 + bias;
    let z = f * f;
    let mut p = 7.037_683_6e-2;
    p = multiply_add::<FMA>(p, f, -1.151_461e-1);
    p = multiply_add::<FMA>(p, f, 1.167_699_87e-1);
    p = multiply_add::<FMA>(p, f, -1.242_014_1e-1);
    p = multiply_add::<FMA>(p, f, 1.424_932_3e-1);
    p = multiply_add::<FMA>(p, f, -1.666_805_8e-1);
    p = multiply_add::<FMA>(p, f, 2.000_071_5e-1);
    p = multiply_add::<FMA>(p, f, -2.499_999_4e-1);
    p = multiply_add::<FMA>(p, f, 3.333_333e-1);
    p = p * f * z;
    p = multiply_add::<FMA>(e, -2.121_944_4e-4, p);
    p = multiply_add::<FMA>(z, -0.5, p);
    let value = multiply_add::<FMA>(e, 0.693_359_4, f + p);
    let value = if x == f32::INFINITY { f32::INFINITY } else { value };
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    if x < 0.0 || x.is_nan() { f32::NAN } else { value }
}
