//! Reading and writing whole tensors as plain numbers, one element at a time: for references and tests, not for speed.

use crate::dtype::{DType, Element, refuse_complex};
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// Calls `f` with the offset, in elements from the first one, of each element in row-major order.
pub fn for_each_offset(shape: &[usize], strides: &[isize], mut f: impl FnMut(isize)) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0usize; shape.len()];
    let mut offset = 0isize;
    loop {
        f(offset);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            offset -= strides[axis] * shape[axis] as isize;
            index[axis] = 0;
        }
    }
}

fn read<T: Element, R>(tensor: &TensorRef<'_>, convert: impl Fn(T) -> R) -> Vec<R> {
    let mut values = scratch::room(tensor.len());
    let first: *const T = tensor.as_ptr().cast();
    for_each_offset(tensor.shape(), tensor.strides(), |offset| {
        // SAFETY: the view's contract covers every element that its shape and strides reach.
        values.push(convert(unsafe { first.offset(offset).read() }));
    });
    values
}

/// The elements in row-major order as f64 (exact but for i64 beyond 2⁵³); booleans as 0 and 1.
pub fn read_f64(tensor: &TensorRef<'_>) -> Vec<f64> {
    match tensor.dtype() {
        DType::Bool | DType::U8 => read(tensor, u8::to_f64),
        DType::I8 => read(tensor, <i8 as Element>::to_f64),
        DType::U16 => read(tensor, <u16 as Element>::to_f64),
        DType::I16 => read(tensor, <i16 as Element>::to_f64),
        DType::U32 => read(tensor, <u32 as Element>::to_f64),
        DType::I32 => read(tensor, <i32 as Element>::to_f64),
        DType::I64 => read(tensor, <i64 as Element>::to_f64),
        DType::F16 => read(tensor, |v: half::f16| v.to_f64()),
        DType::BF16 => read(tensor, |v: half::bf16| v.to_f64()),
        DType::F32 => read(tensor, <f32 as Element>::to_f64),
        DType::F64 => read(tensor, |v: f64| v),
        DType::C64 | DType::C128 => refuse_complex(),
    }
}

/// The elements in row-major order as i64; floating-point values truncate.
pub fn read_i64(tensor: &TensorRef<'_>) -> Vec<i64> {
    match tensor.dtype() {
        DType::I64 => read(tensor, |v: i64| v),
        _ => scratch::collected(read_f64(tensor).into_iter().map(|v| v as i64)),
    }
}

fn write<T: Element>(tensor: &mut TensorMut<'_>, mut next: impl FnMut(usize) -> T) {
    let first: *mut T = tensor.as_mut_ptr().cast();
    let mut i = 0;
    for_each_offset(tensor.shape(), tensor.strides(), |offset| {
        // SAFETY: the view's contract covers every element that its shape and strides reach, for writing.
        unsafe { first.offset(offset).write(next(i)) };
        i += 1;
    });
}

/// Writes values in row-major order, each rounded to the nearest that the element type holds; non-zero is true. There
/// must be as many values as elements.
pub fn write_f64(tensor: &mut TensorMut<'_>, values: &[f64]) {
    assert_eq!(tensor.len(), values.len(), "a value for each element");
    match tensor.dtype() {
        DType::Bool => write(tensor, |i| u8::from(values[i] != 0.0)),
        DType::U8 => write(tensor, |i| u8::from_f64(values[i])),
        DType::I8 => write(tensor, |i| i8::from_f64(values[i])),
        DType::U16 => write(tensor, |i| u16::from_f64(values[i])),
        DType::I16 => write(tensor, |i| i16::from_f64(values[i])),
        DType::U32 => write(tensor, |i| u32::from_f64(values[i])),
        DType::I32 => write(tensor, |i| i32::from_f64(values[i])),
        DType::I64 => write(tensor, |i| i64::from_f64(values[i])),
        DType::F16 => write(tensor, |i| half::f16::from_f32(values[i] as f32)),
        DType::BF16 => write(tensor, |i| half::bf16::from_f32(values[i] as f32)),
        DType::F32 => write(tensor, |i| f32::from_f64(values[i])),
        DType::F64 => write(tensor, |i| values[i]),
        DType::C64 | DType::C128 => refuse_complex(),
    }
}

/// As [`write_f64`] for integers, which wrap to narrower integer types.
pub fn write_i64(tensor: &mut TensorMut<'_>, values: &[i64]) {
    assert_eq!(tensor.len(), values.len(), "a value for each element");
    match tensor.dtype() {
        DType::U8 => write(tensor, |i| values[i] as u8),
        DType::I8 => write(tensor, |i| values[i] as i8),
        DType::U16 => write(tensor, |i| values[i] as u16),
        DType::I16 => write(tensor, |i| values[i] as i16),
        DType::U32 => write(tensor, |i| values[i] as u32),
        DType::I32 => write(tensor, |i| values[i] as i32),
        DType::I64 => write(tensor, |i| values[i]),
        DType::Bool => write(tensor, |i| u8::from(values[i] != 0)),
        _ => write_f64(tensor, &scratch::collected(values.iter().map(|v| *v as f64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_tensors_are_read_and_written_in_row_major_order() {
        let mut data = [0f32; 6];
        let (shape, strides) = ([2, 3], [1, 2]);
        // SAFETY: the shape and strides reach exactly the six elements of `data`, which is borrowed for as long.
        let mut tensor = unsafe { TensorMut::new(DType::F32, &shape, &strides, data.as_mut_ptr().cast()) };
        write_f64(&mut tensor, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(read_i64(&tensor.as_ref()), [1, 2, 3, 4, 5, 6]);
        assert_eq!(data, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
