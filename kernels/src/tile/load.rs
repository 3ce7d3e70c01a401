//! Memory to tile: strided reads of every element type.

use half::slice::HalfFloatSliceExt;

use crate::dtype::{DType, refuse_complex};
use crate::vector::multiversion;

multiversion! {
    fn widen_bf16[FMA](input: &[u16], out: &mut [f32]) {
        let length = out.len();
        let input = &input[..length];
        for i in 0..length {
            out[i] = f32::from_bits(u32::from(input[i]) << 16);
        }
    }
}
multiversion! {
    fn widen_i32[FMA](input: &[i32], out: &mut [i64]) {
        let length = out.len();
        let input = &input[..length];
        for i in 0..length {
            out[i] = i64::from(input[i]);
        }
    }
}

/// Reads `length` elements of `dtype`, `stride` elements apart, into a tile of the class of `dtype`.
///
/// # Safety
/// The elements read are valid, `out` holds `length` elements of `Class::of(dtype)` and does not overlap them.
pub(crate) unsafe fn load(dtype: DType, source: *const u8, stride: isize, out: *mut u8, length: usize) {
    use std::slice::{from_raw_parts, from_raw_parts_mut};
    macro_rules! strided {
        ($from:ty, $to:ty, |$x:ident| $value:expr) => {{
            let (source, out) = (source.cast::<$from>(), out.cast::<$to>());
            if stride == 0 && length > 0 {
                // SAFETY: promised by the caller.
                unsafe {
                    let $x = source.read();
                    from_raw_parts_mut(out, length).fill($value);
                }
            } else {
                for i in 0..length {
                    // SAFETY: promised by the caller.
                    unsafe {
                        let $x = source.offset(i as isize * stride).read();
                        out.add(i).write($value);
                    }
                }
            }
        }};
    }
    if stride == 1 {
        // SAFETY: promised by the caller: contiguous elements, valid and disjoint from `out`.
        unsafe {
            match dtype {
                DType::I64 | DType::F32 | DType::F64 => {
                    return std::ptr::copy_nonoverlapping(source, out, length * dtype.size());
                }
                DType::BF16 => {
                    return widen_bf16(from_raw_parts(source.cast(), length), from_raw_parts_mut(out.cast(), length));
                }
                DType::F16 => {
                    let input: &[half::f16] = from_raw_parts(source.cast(), length);
                    return input.convert_to_f32_slice(from_raw_parts_mut(out.cast(), length));
                }
                DType::I32 => {
                    return widen_i32(from_raw_parts(source.cast(), length), from_raw_parts_mut(out.cast(), length));
                }
                DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 => {}
                DType::C64 | DType::C128 => refuse_complex(),
            }
        }
    }
    match dtype {
        DType::Bool => strided!(u8, u8, |x| u8::from(x != 0)),
        DType::U8 => strided!(u8, i64, |x| i64::from(x)),
        DType::I8 => strided!(i8, i64, |x| i64::from(x)),
        DType::U16 => strided!(u16, i64, |x| i64::from(x)),
        DType::I16 => strided!(i16, i64, |x| i64::from(x)),
        DType::U32 => strided!(u32, i64, |x| i64::from(x)),
        DType::I32 => strided!(i32, i64, |x| i64::from(x)),
        DType::I64 => strided!(i64, i64, |x| x),
        DType::F16 => strided!(half::f16, f32, |x| x.to_f32()),
        DType::BF16 => strided!(u16, f32, |x| f32::from_bits(u32::from(x) << 16)),
        DType::F32 => strided!(f32, f32, |x| x),
        DType::F64 => strided!(f64, f64, |x| x),
        DType::C64 | DType::C128 => refuse_complex(),
    }
}
