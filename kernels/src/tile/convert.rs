//! Conversions between tile classes, and rounding to the precision of an element type.

use super::Class;
use super::operand::{Argument, Operand, for_segments};
use crate::dtype::DType;
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

/// The bits of the bfloat16 nearest to `x`, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if x.is_nan() { ((bits >> 16) | 0x40) as u16 } else { rounded }
}

multiversion! {
    fn round_bf16[FMA](input: &[f32], out: &mut [f32]) {
        let length = out.len();
        let input = &input[..length];
        for i in 0..length {
            out[i] = f32::from_bits(u32::from(bf16_bits(input[i])) << 16);
        }
    }
}

fn round_f16(input: &[f32], out: &mut [f32]) {
    use half::slice::HalfFloatSliceExt;
    let mut narrow = [half::f16::ZERO; 64];
    for (input, out) in input.chunks(64).zip(out.chunks_mut(64)) {
        let narrow = &mut narrow[..input.len()];
        narrow.convert_from_f32_slice(input);
        narrow.convert_to_f32_slice(out);
    }
}

/// Rounds (or wraps) every element to a value of `dtype`, which is computed in the class of the tile.
///
/// # Safety
/// `input` and `out` hold `length` elements of the class of `dtype` and do not overlap.
pub(crate) unsafe fn round(dtype: DType, input: *const u8, out: *mut u8, length: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    // SAFETY: promised by the caller.
    unsafe {
        match dtype {
            DType::F16 => round_f16(from_raw_parts(input.cast(), length), from_raw_parts_mut(out.cast(), length)),
            DType::BF16 => round_bf16(from_raw_parts(input.cast(), length), from_raw_parts_mut(out.cast(), length)),
            DType::I32 | DType::U8 => {
                let input: &[i64] = from_raw_parts(input.cast(), length);
                let out: &mut [i64] = from_raw_parts_mut(out.cast(), length);
                let narrow = |x: i64| if dtype == DType::I32 { i64::from(x as i32) } else { i64::from(x as u8) };
                out.iter_mut().zip(input).for_each(|(out, &x)| *out = narrow(x));
            }
            _ => std::ptr::copy_nonoverlapping(input, out, length * dtype.size()),
        }
    }
}
