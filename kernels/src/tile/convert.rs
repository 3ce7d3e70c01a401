//! Conversions between tile classes, and rounding to the precision of an element type.

use super::Class;
use super::operand::{Argument, Operand, for_segments};
use crate::dtype::{DType, refuse_complex};
use crate::vector::multiversion;

macro_rules! casts {
    ($($name:ident $from:ty => $to:ty, |$x:ident| $value:expr;)*) => {$(
        multiversion! {
            fn $name[FMA](input: Argument<'_, $from>, out: &mut [$to]) {
                match input {
                    Argument::Slice(input) => {
                        let length = out.len();
                        let input = &input[..length];
                        for i in 0..length {
                            let $x = input[i];
                            out[i] = $value;
                        }
                    }
                    Argument::Scalar($x) => out.fill($value),
                }
            }
        }
    )*};
}
casts! {
    bool_to_bool u8 => u8, |x| u8::from(x != 0);
    bool_to_i64 u8 => i64, |x| i64::from(x != 0);
    bool_to_f32 u8 => f32, |x| if x != 0 { 1.0 } else { 0.0 };
    bool_to_f64 u8 => f64, |x| if x != 0 { 1.0 } else { 0.0 };
    i64_to_bool i64 => u8, |x| u8::from(x != 0);
    i64_to_i64 i64 => i64, |x| x;
    i64_to_f32 i64 => f32, |x| x as f32;
    i64_to_f64 i64 => f64, |x| x as f64;
    f32_to_bool f32 => u8, |x| u8::from(x != 0.0);
    f32_to_i64 f32 => i64, |x| x as i64;
    f32_to_f32 f32 => f32, |x| x;
    f32_to_f64 f32 => f64, |x| f64::from(x);
    f64_to_bool f64 => u8, |x| u8::from(x != 0.0);
    f64_to_i64 f64 => i64, |x| x as i64;
    f64_to_f32 f64 => f32, |x| x as f32;
    f64_to_f64 f64 => f64, |x| x;
}

/// Copies an operand into a tile, converting it. Floating-point numbers truncate to integers, and saturate.
///
/// # Safety
/// The operand holds what `rows` and `width` ask of it, `out` holds `rows * width` elements and does not overlap it.
pub(crate) unsafe fn cast(from: Class, to: Class, input: Operand, out: *mut u8, rows: usize, width: usize) {
    macro_rules! segments {
        ($function:ident, $to:ty) => {
            for_segments!([input], rows, width, |index, length| {
                // SAFETY: promised by the caller.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(out.cast::<$to>().add(index * length), length);
                    $function(input.segment(index, length), out);
                }
            })
        };
    }
    match (from, to) {
        (Class::Bool, Class::Bool) => segments!(bool_to_bool, u8),
        (Class::Bool, Class::I64) => segments!(bool_to_i64, i64),
        (Class::Bool, Class::F32) => segments!(bool_to_f32, f32),
        (Class::Bool, Class::F64) => segments!(bool_to_f64, f64),
        (Class::I64, Class::Bool) => segments!(i64_to_bool, u8),
        (Class::I64, Class::I64) => segments!(i64_to_i64, i64),
        (Class::I64, Class::F32) => segments!(i64_to_f32, f32),
        (Class::I64, Class::F64) => segments!(i64_to_f64, f64),
        (Class::F32, Class::Bool) => segments!(f32_to_bool, u8),
        (Class::F32, Class::I64) => segments!(f32_to_i64, i64),
        (Class::F32, Class::F32) => segments!(f32_to_f32, f32),
        (Class::F32, Class::F64) => segments!(f32_to_f64, f64),
        (Class::F64, Class::Bool) => segments!(f64_to_bool, u8),
        (Class::F64, Class::I64) => segments!(f64_to_i64, i64),
        (Class::F64, Class::F32) => segments!(f64_to_f32, f32),
        (Class::F64, Class::F64) => segments!(f64_to_f64, f64),
    }
}

/// The bits of the bfloat16 nearest to `x`, ties to even, in the upper half; a NaN stays a (quiet) NaN.
#[inline(always)]
fn upper_half(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    (if x.is_nan() { bits | QUIET } else { rounded }) & 0xffff_0000
}

/// All bits but the sign; those of infinity; the one that a quiet NaN has set.
const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITE: u32 = 0x7f80_0000;
const QUIET: u32 = 0x0040_0000;

/// The bits of the bfloat16 nearest to `x`, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u16 {
    (upper_half(x) >> 16) as u16
}

/// The bfloat16 nearest to `x`, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> f32 {
    f32::from_bits(upper_half(x))
}

/// The f16 nearest to `x`, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub(crate) fn to_f16(x: f32) -> f32 {
    let bits = x.to_bits();
    let (sign, magnitude) = (bits & !MAGNITUDE, bits & MAGNITUDE);
    // From 2⁻¹⁴ on ten bits of the fraction are kept; from 65520 on the nearest is infinity.
    let normal = (magnitude + 0xfff + ((magnitude >> 13) & 1)) & !0x1fff;
    let normal = if normal >= 65536f32.to_bits() { INFINITE } else { normal };
    // Below, multiples of 2⁻²⁴ are kept, which is what the sum with a half has room for.
    let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let finite = if magnitude < (1.0f32 / 16384.0).to_bits() { subnormal } else { normal };
    let rounded = if x.is_nan() { (magnitude | QUIET) & !0x1fff } else { finite };
    f32::from_bits(sign | rounded)
}

multiversion! {
    fn round_bf16[FMA](tile: &mut [f32]) {
        for value in tile {
            *value = to_bf16(*value);
        }
    }
}
multiversion! {
    fn round_f16[FMA](tile: &mut [f32]) {
        for value in tile {
            *value = to_f16(*value);
        }
    }
}
macro_rules! wraps {
    ($($name:ident $type:ty;)*) => {$(
        multiversion! {
            fn $name[FMA](tile: &mut [i64]) {
                for value in tile {
                    *value = i64::from(*value as $type);
                }
            }
        }
    )*};
}
wraps! {
    wrap_u8 u8;
    wrap_i8 i8;
    wrap_u16 u16;
    wrap_i16 i16;
    wrap_u32 u32;
    wrap_i32 i32;
}

/// Rounds (or wraps) every element to a value of `dtype`, which is computed in the class of the tile. `out` may be
/// `input`.
///
/// # Safety
/// `input` and `out` hold `length` elements of the class of `dtype`, and are the same or do not overlap.
pub(crate) unsafe fn round(dtype: DType, input: *const u8, out: *mut u8, length: usize) {
    use std::slice::from_raw_parts_mut;
    // SAFETY: promised by the caller.
    unsafe {
        if input != out.cast_const() {
            std::ptr::copy_nonoverlapping(input, out, length * Class::of(dtype).size());
        }
        match dtype {
            DType::F16 => round_f16(from_raw_parts_mut(out.cast(), length)),
            DType::BF16 => round_bf16(from_raw_parts_mut(out.cast(), length)),
            DType::U8 => wrap_u8(from_raw_parts_mut(out.cast(), length)),
            DType::I8 => wrap_i8(from_raw_parts_mut(out.cast(), length)),
            DType::U16 => wrap_u16(from_raw_parts_mut(out.cast(), length)),
            DType::I16 => wrap_i16(from_raw_parts_mut(out.cast(), length)),
            DType::U32 => wrap_u32(from_raw_parts_mut(out.cast(), length)),
            DType::I32 => wrap_i32(from_raw_parts_mut(out.cast(), length)),
            DType::Bool | DType::I64 | DType::F32 | DType::F64 => {}
            DType::C64 | DType::C128 => refuse_complex(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of 16 bits, the numbers halfway between it and its neighbours, and those next to all of these.
    fn around(widen: impl Fn(u16) -> f32) -> Vec<f32> {
        let step = if cfg!(miri) { 997 } else { 1 };
        let mut all = Vec::new();
        for bits in (0..=u16::MAX).step_by(step) {
            let (own, next) = (widen(bits), widen(bits.wrapping_add(1)));
            for near in [own, (own + next) / 2.0, own * 1.000_001, f32::from_bits(own.to_bits() | 0x1abc)] {
                all.extend([-1i32, 0, 1].map(|off| f32::from_bits(near.to_bits().wrapping_add_signed(off))));
            }
        }
        all
    }

    #[test]
    fn rounding_in_vectors_has_the_bits_of_rounding_one_by_one() {
        for dtype in [DType::BF16, DType::F16] {
            let widen = |bits: u16| match dtype {
                DType::BF16 => half::bf16::from_bits(bits).to_f32(),
                _ => half::f16::from_bits(bits).to_f32(),
            };
            let values = around(widen);
            let mut apart = vec![0f32; values.len()];
            let mut inside = values.clone();
            // SAFETY: both hold as many elements; the second time it is one tile.
            unsafe {
                round(dtype, values.as_ptr().cast(), apart.as_mut_ptr().cast(), values.len());
                round(dtype, inside.as_ptr().cast(), inside.as_mut_ptr().cast(), values.len());
            }
            for ((&value, apart), inside) in values.iter().zip(apart).zip(inside) {
                let expected = match dtype {
                    DType::BF16 => half::bf16::from_f32(value).to_f32(),
                    _ => half::f16::from_f32(value).to_f32(),
                };
                assert_eq!(apart.to_bits(), expected.to_bits(), "{dtype} of {value:e} ({:x})", value.to_bits());
                assert_eq!(inside.to_bits(), expected.to_bits(), "{dtype} of {value:e} in its own tile");
            }
        }
    }
}
