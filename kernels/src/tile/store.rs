//! Tile to memory: strided writes of every element type.

use half::slice::HalfFloatSliceExt;

use super::Class;
use super::convert::{bf16_bits, cast};
use super::operand::Operand;
use crate::dtype::{DType, refuse_complex};
use crate::vector::multiversion;

multiversion! {
    fn narrow_bf16[FMA](input: &[f32], out: &mut [u16]) {
        let length = out.len();
        let input = &input[..length];
        for i in 0..length {
            out[i] = bf16_bits(input[i]);
        }
    }
}

/// Writes `length` elements of a tile of the class of `dtype` to elements of `dtype` that are `stride` elements apart.
///
/// # Safety
/// The elements written are valid and exclusive, and do not overlap the tile.
pub(crate) unsafe fn store(dtype: DType, tile: *const u8, out: *mut u8, stride: isize, length: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    macro_rules! strided {
        ($from:ty, $to:ty, |$x:ident| $value:expr) => {{
            let (tile, out) = (tile.cast::<$from>(), out.cast::<$to>());
            for i in 0..length {
                // SAFETY: promised by the caller.
                unsafe {
                    let $x = tile.add(i).read();
                    out.offset(i as isize * stride).write($value);
                }
            }
        }};
    }
    if stride == 1 {
        // SAFETY: promised by the caller: contiguous elements, exclusive and disjoint from the tile.
        unsafe {
            match dtype {
                DType::Bool | DType::I64 | DType::F32 | DType::F64 => {
                    return std::ptr::copy_nonoverlapping(tile, out, length * dtype.size());
                }
                DType::BF16 => {
                    return narrow_bf16(from_raw_parts(tile.cast(), length), from_raw_parts_mut(out.cast(), length));
                }
                DType::F16 => {
                    let out: &mut [half::f16] = from_raw_parts_mut(out.cast(), length);
                    return out.convert_from_f32_slice(from_raw_parts(tile.cast(), length));
                }
                DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 => {}
                DType::C64 | DType::C128 => refuse_complex(),
            }
        }
    }
    match dtype {
        DType::Bool => strided!(u8, u8, |x| x),
        DType::U8 => strided!(i64, u8, |x| x as u8),
        DType::I8 => strided!(i64, i8, |x| x as i8),
        DType::U16 => strided!(i64, u16, |x| x as u16),
        DType::I16 => strided!(i64, i16, |x| x as i16),
        DType::U32 => strided!(i64, u32, |x| x as u32),
        DType::I32 => strided!(i64, i32, |x| x as i32),
        DType::I64 => strided!(i64, i64, |x| x),
        DType::F16 => strided!(f32, half::f16, |x| half::f16::from_f32(x)),
        DType::BF16 => strided!(f32, u16, |x| bf16_bits(x)),
        DType::F32 => strided!(f32, f32, |x| x),
        DType::F64 => strided!(f64, f64, |x| x),
        DType::C64 | DType::C128 => refuse_complex(),
    }
}

/// Writes one number, given in f64 or i64, as an element of `dtype`.
///
/// # Safety
/// `out` is valid for writing an element of `dtype`.
pub(crate) unsafe fn store_one(class: Class, value: *const u8, dtype: DType, out: *mut u8) {
    if class == Class::F64 && dtype == DType::F32 {
        // The usual case, without a call.
        // SAFETY: promised by the caller.
        return unsafe { out.cast::<f32>().write(value.cast::<f64>().read() as f32) };
    }
    let mut converted = 0u64;
    let address = (&raw mut converted).cast::<u8>();
    // SAFETY: every class fits 64 bits; the rest is promised by the caller.
    unsafe {
        cast(class, Class::of(dtype), Operand::Tile(value), address, 1, 1);
        store(dtype, address, out, 1, 1);
    }
}
