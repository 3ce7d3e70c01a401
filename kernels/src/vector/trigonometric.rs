//! Sine and cosine in f32.

use super::lanes::ROUNDER;
use super::{multiply_add, multiversion};

/// Up to here the three-part reduction by π/2 is good to the last place; beyond, the platform's f64 functions take
/// over.
const REDUCIBLE: f32 = 100_000.0;

/// sin(x + quadrant·π/2), for |x| up to [`REDUCIBLE`]. Polynomials by N. Juffa.
#[inline(always)]
#[allow(clippy::approx_constant)] // the first of three parts of π/2, not π/2
fn shifted_sine<const FMA: bool>(x: f32, quadrant: i32) -> f32 {
    if !FMA {
        // Without a fused multiply-add the reduction loses digits: f64 has them to spare.
        return wide_shifted_sine(x, quadrant);
    }
    let shifted = multiply_add::<FMA>(x, std::f32::consts::FRAC_2_PI, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add::<FMA>(n, -1.570_796, x);
    let r = multiply_add::<FMA>(n, -3.139_164_7e-7, r);
    let r = multiply_add::<FMA>(n, -5.390_302_5e-15, r);
    let s = r * r;
    let quadrant = (shifted.to_bits() as i32).wrapping_add(quadrant);

    let mut sine = 2.865_679_6e-6;
    sine = multiply_add::<FMA>(sine, s, -1.985_599_2e-4);
    sine = multiply_add::<FMA>(sine, s, 8.333_386e-3);
    sine = multiply_add::<FMA>(sine, s, -1.666_666_7e-1);
    // The sign is copied because the sum of zeros of both signs is +0.
    let sine = multiply_add::<FMA>(sine, r * s, r).copysign(r);

    let mut cosine = 2.446_770_7e-5;
    cosine = multiply_add::<FMA>(cosine, s, -1.388_773e-3);
    cosine = multiply_add::<FMA>(cosine, s, 4.166_666_6e-2);
    cosine = multiply_add::<FMA>(cosine, s, -0.5);
    let cosine = multiply_add::<FMA>(cosine, s, 1.0);

    let value = if quadrant & 1 == 0 { sine } else { cosine };
    if quadrant & 2 == 0 { value } else { -value }
}

#[inline(always)]
fn wide_shifted_sine(x: f32, quadrant: i32) -> f32 {
    if quadrant == 0 { f64::from(x).sin() as f32 } else { f64::from(x).cos() as f32 }
}

macro_rules! with_large_arguments {
    ($(#[$doc:meta])* $name:ident, $quadrant:literal) => {
        multiversion! {
            $(#[$doc])*
            pub(crate) fn $name[FMA](input: &[f32], out: &mut [f32]) {
                let length = out.len();
                let input = &input[..length];
                let mut large = 0u32;
                for i in 0..length {
                    large += u32::from(input[i].abs() > REDUCIBLE);
                    out[i] = shifted_sine::<FMA>(input[i], $quadrant);
                }
                if large > 0 {
                    for i in 0..length {
                        if input[i].abs() > REDUCIBLE {
                            out[i] = wide_shifted_sine(input[i], $quadrant);
                        }
                    }
                }
            }
        }
    };
}
with_large_arguments! {
    /// Sine of every element.
    sine_slice, 0
}
with_large_arguments! {
    /// Cosine of every element.
    cosine_slice, 1
}
