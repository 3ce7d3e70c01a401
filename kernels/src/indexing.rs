//! Reading and adding at indices.
//!
//! All indices are checked before anything is written. Additions to one element happen in the order of the indices,
//! whatever the number of threads.

use crate::dtype::{DType, Element};
use crate::elementwise::convert;
use crate::extents::{self, with_extent};
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};
use crate::walk::{Walk, lines};

/// An index that is negative or not below the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("index {index} at position {position} is out of range for an extent of {size}")]
pub struct IndexOutOfRange {
    /// The index that was found.
    pub index: i64,
    /// Its position in the index tensor, counted row-major.
    pub position: usize,
    /// The extent that it must be below.
    pub size: usize,
}

/// Elements that one task handles of a long line.
const PIECE: usize = 4096;
/// Columns that one task adds to.
const COLUMNS: usize = 64;

/// Fails unless `index` has as many dimensions as `of` and is nowhere larger, but perhaps in dimension `dim`.
fn no_larger(function: &str, index: &[usize], operand: &str, of: &[usize], but: Option<usize>) {
    let mut extents = index.iter().zip(of).enumerate();
    let fits = index.len() == of.len() && extents.all(|(axis, (index, of))| index <= of || but == Some(axis));
    assert!(fits, "{function}: index has shape {index:?}, which is larger than {operand} of shape {of:?}");
}

/// The indices, row-major and checked.
fn checked(index: TensorRef<'_>, size: usize) -> Result<Vec<i64>, IndexOutOfRange> {
    let mut indices = scratch::zeroed::<i64>(index.len());
    let strides = contiguous_strides(index.shape());
    convert(index, TensorMut::from_slice(&mut indices, index.shape(), &strides));
    match indices.iter().position(|&index| index < 0 || index as u64 >= size as u64) {
        Some(position) => Err(IndexOutOfRange { index: indices[position], position, size }),
        None => Ok(indices),
    }
}

/// Fails unless `index` is a line of indices and `dim` a dimension.
fn rank_of_index(function: &str, index: TensorRef<'_>, shape: &[usize], dim: usize) {
    extents::rank(function, "index", index.shape(), 1);
    assert!(dim < shape.len(), "{function}: dim is {dim}, the operand has shape {shape:?}");
}

/// Fails if an operand shares memory with the target.
fn all_apart(function: &str, source: &TensorRef<'_>, index: &TensorRef<'_>, target: &TensorMut<'_>) {
    extents::apart(function, "source", source, target);
    extents::apart(function, "index", index, target);
}

/// Copies one element of `size` bytes.
///
/// # Safety
/// Both addresses are valid and aligned for elements of that size.
#[inline(always)]
unsafe fn copy_element(source: *const u8, target: *mut u8, size: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        match size {
            1 => target.write(source.read()),
            2 => target.cast::<u16>().write(source.cast::<u16>().read()),
            4 => target.cast::<u32>().write(source.cast::<u32>().read()),
            _ => target.cast::<u64>().write(source.cast::<u64>().read()),
        }
    }
}

/// `target[i, j, k] = source[i, index[i, j, k], k]`, for the dimension `dim` in the place of the second.
///
/// `index` (i64 or i32) and `target` have one shape, of the rank of `source` and nowhere larger except in `dim`;
/// `source` and `target` have one element type. Panics if anything else is the case, or if an operand shares memory
/// with `target`.
pub fn gather(
    source: TensorRef<'_>,
    dim: usize,
    index: TensorRef<'_>,
    mut target: TensorMut<'_>,
) -> Result<(), IndexOutOfRange> {
    extents::dimension("gather", dim, source.shape());
    extents::shape("gather", "target", target.shape(), index.shape());
    extents::dtype("gather", "target", target.dtype(), source.dtype());
    no_larger("gather", index.shape(), "source", source.shape(), Some(dim));
    all_apart("gather", &source, &index, &target);
    if index.shape().is_empty() {
        checked(index, 1)?;
        convert(source, target);
        return Ok(());
    }
    let indices = checked(index, source.shape()[dim])?;
    let shape = index.shape();
    let mut outer = Walk::new((0..shape.len()).map(|axis| {
        let source_stride = if axis == dim { 0 } else { source.strides()[axis] };
        (shape[axis], [source_stride, target.strides()[axis]])
    }));
    let (length, [source_step, target_step]) = outer.pop();
    let (size, along) = (source.dtype().size(), source.strides()[dim]);
    let address = Shared::new(target.as_mut_ptr());
    let pieces = length.div_ceil(PIECE);
    for_ranges(outer.len() * pieces, indices.len(), |range| {
        for unit in range {
            let (position, first) = (unit / pieces, unit % pieces * PIECE);
            let [source_base, target_base] = outer.offsets(position);
            for i in first..length.min(first + PIECE) {
                let from = source_base + i as isize * source_step + indices[position * length + i] as isize * along;
                let to = target_base + i as isize * target_step;
                // SAFETY: the index is in range, the rest is within the views; every unit has elements of its own.
                unsafe {
                    copy_element(
                        source.as_ptr().offset(from * size as isize),
                        address.get().offset(to * size as isize),
                        size,
                    );
                }
            }
        }
    });
    Ok(())
}

/// Dimensions before and after `dim`, each with the strides of two operands.
fn around(shape: &[usize], strides: [&[isize]; 2], dim: usize) -> (Walk<2>, Walk<2>) {
    let dimension = |axis: usize| (shape[axis], [strides[0][axis], strides[1][axis]]);
    (Walk::new((0..dim).map(dimension)), Walk::new((dim + 1..shape.len()).map(dimension)))
}

/// `target[i, j, k] = source[i, index[j], k]`, for the dimension `dim` in the place of the second.
///
/// `index` is one-dimensional (i64 or i32); `target` has the shape of `source` but for the extent of `dim`, which is
/// that of `index`; both have one element type. Panics if anything else is the case, or if an operand shares memory
/// with `target`.
pub fn index_select(
    source: TensorRef<'_>,
    dim: usize,
    index: TensorRef<'_>,
    mut target: TensorMut<'_>,
) -> Result<(), IndexOutOfRange> {
    rank_of_index("index_select", index, source.shape(), dim);
    let expected = with_extent(source.shape(), dim, index.len());
    extents::shape("index_select", "target", target.shape(), &expected);
    extents::dtype("index_select", "target", target.dtype(), source.dtype());
    all_apart("index_select", &source, &index, &target);
    let indices = checked(index, source.shape()[dim])?;
    let (before, mut after) = around(target.shape(), [source.strides(), target.strides()], dim);
    let (length, [source_step, target_step]) = after.pop();
    let (size, from_along, to_along) = (source.dtype().size(), source.strides()[dim], target.strides()[dim]);
    let elements = target.len();
    let address = Shared::new(target.as_mut_ptr());
    let (inner, count) = (after.len(), indices.len());
    if elements == 0 {
        return Ok(());
    }
    for_ranges(before.len() * count, elements, |range| {
        for unit in range {
            let [source_base, target_base] = before.offsets(unit / count);
            let source_base = source_base + indices[unit % count] as isize * from_along;
            let target_base = target_base + (unit % count) as isize * to_along;
            for position in 0..inner {
                let [source_offset, target_offset] = after.offsets(position);
                // SAFETY: the index is in range, the rest is within the views; every unit has elements of its own.
                unsafe {
                    let from = source.as_ptr().offset((source_base + source_offset) * size as isize);
                    let to = address.get().offset((target_base + target_offset) * size as isize);
                    if (source_step == 1 && target_step == 1) || length == 1 {
                        std::ptr::copy_nonoverlapping(from, to, length * size);
                    } else {
                        for i in 0..length as isize {
                            copy_element(
                                from.offset(i * source_step * size as isize),
                                to.offset(i * target_step * size as isize),
                                size,
                            );
                        }
                    }
                }
            }
        }
    });
    Ok(())
}

/// `target[i, index[i, j, k], k] = source[i, j, k]`, for the dimension `dim` in the place of the second; of several for
/// one place the last in row-major order stays.
///
/// `index` (i64 or i32) and `source` have one shape, of the rank of `target` and nowhere larger except in `dim`;
/// `source` and `target` have one element type. Panics if anything else is the case, or if an operand shares memory
/// with `target`.
pub fn scatter(
    mut target: TensorMut<'_>,
    dim: usize,
    index: TensorRef<'_>,
    source: TensorRef<'_>,
) -> Result<(), IndexOutOfRange> {
    extents::dimension("scatter", dim, target.shape());
    extents::shape("scatter", "source", source.shape(), index.shape());
    extents::dtype("scatter", "source", source.dtype(), target.dtype());
    no_larger("scatter", index.shape(), "target", target.shape(), Some(dim));
    all_apart("scatter", &source, &index, &target);
    let shape = index.shape();
    let indices = checked(index, target.shape().get(dim).copied().unwrap_or(1))?;
    let index_strides = contiguous_strides(shape);
    let stride = |strides: &[isize]| strides.get(dim).copied().unwrap_or(0);
    let along = [source.strides(), target.strides(), &index_strides[..]].map(stride);
    let length = shape.get(dim).copied().unwrap_or(1);
    let outer = lines(shape, [source.strides(), target.strides(), &index_strides], dim);
    let size = source.dtype().size();
    let address = Shared::new(target.as_mut_ptr());
    for_ranges(outer.len(), indices.len(), |range| {
        for line in range {
            let [source_base, target_base, index_base] = outer.offsets(line);
            for i in 0..length as isize {
                let index = indices[(index_base + i * along[2]) as usize] as isize;
                let from = (source_base + i * along[0]) * size as isize;
                let to = (target_base + index * along[1]) * size as isize;
                // SAFETY: the index is in range, the rest is within the views; lines share no elements of the target.
                unsafe { copy_element(source.as_ptr().offset(from), address.get().offset(to), size) };
            }
        }
    });
    Ok(())
}

/// Numbers that are added at indices.
trait Sum: Element {
    fn plus(self, other: Self) -> Self;
}
impl Sum for f32 {
    fn plus(self, other: f32) -> f32 {
        self + other
    }
}
impl Sum for f64 {
    fn plus(self, other: f64) -> f64 {
        self + other
    }
}
impl Sum for i64 {
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
}

/// A row-major copy as `T`, unless the tensor holds `T` anyway.
fn as_type<'a, T: Element>(tensor: TensorRef<'a>, data: &'a mut Vec<T>, strides: &'a mut Vec<isize>) -> TensorRef<'a> {
    if tensor.dtype() == T::DTYPE {
        return tensor;
    }
    *data = scratch::zeroed(tensor.len());
    *strides = contiguous_strides(tensor.shape());
    convert(tensor, TensorMut::from_slice(data, tensor.shape(), strides));
    TensorRef::from_slice(data, tensor.shape(), strides)
}

/// Calls `add` with the source and the target in `T`, going through a copy of the target if it holds something else.
fn in_type<T: Element>(
    source: TensorRef<'_>,
    target: &mut TensorMut<'_>,
    add: impl Fn(TensorRef<'_>, &mut TensorMut<'_>),
) {
    let (mut source_data, mut source_strides) = (Vec::<T>::new(), Vec::new());
    let source = as_type(source, &mut source_data, &mut source_strides);
    if target.dtype() == T::DTYPE {
        return add(source, target);
    }
    let strides = contiguous_strides(target.shape());
    let mut data = scratch::zeroed::<T>(target.len());
    convert(target.as_ref(), TensorMut::from_slice(&mut data, target.shape(), &strides));
    add(source, &mut TensorMut::from_slice(&mut data, target.shape(), &strides));
    convert(TensorRef::from_slice(&data, target.shape(), &strides), target.reborrow());
}

macro_rules! by_class {
    ($source:ident, $target:ident, $function:ident($($argument:expr),*)) => {
        match $target.dtype() {
            DType::F64 => in_type::<f64>($source, &mut $target, |source, target| $function::<f64>(source, target, $($argument),*)),
            dtype if dtype.is_floating() => {
                in_type::<f32>($source, &mut $target, |source, target| $function::<f32>(source, target, $($argument),*));
            }
            _ => in_type::<i64>($source, &mut $target, |source, target| $function::<i64>(source, target, $($argument),*)),
        }
    };
}

/// `target[i, index[i, j, k], k] += source[i, j, k]`, for the dimension `dim` in the place of the second.
///
/// `index` (i64 or i32) is nowhere larger than `source`, nor than `target` except in `dim`. f16 and bf16 are summed in
/// f32, integers wrap. Panics if `index` is larger, or if an operand shares memory with `target`.
pub fn scatter_add(
    mut target: TensorMut<'_>,
    dim: usize,
    index: TensorRef<'_>,
    source: TensorRef<'_>,
) -> Result<(), IndexOutOfRange> {
    let rank = index.shape().len();
    extents::dimension("scatter_add", dim, target.shape());
    no_larger("scatter_add", index.shape(), "source", source.shape(), None);
    no_larger("scatter_add", index.shape(), "target", target.shape(), Some(dim));
    all_apart("scatter_add", &source, &index, &target);
    let indices = checked(index, if rank == 0 { 1 } else { target.shape()[dim] })?;
    by_class!(source, target, add_lines(dim, index.shape(), &indices));
    Ok(())
}

fn add_lines<T: Sum>(source: TensorRef<'_>, target: &mut TensorMut<'_>, dim: usize, shape: &[usize], indices: &[i64]) {
    scatter_lines::<T>(source, target, dim, shape, indices, T::plus);
}

/// How an element and an update of it become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combination {
    /// Their product; integers wrap.
    Product,
    /// The larger; NaN if either is NaN, the element if they are equal.
    Largest,
    /// The smaller; NaN if either is NaN, the element if they are equal.
    Smallest,
}

/// Numbers that are combined at indices.
trait Combined: Element {
    fn combined(how: Combination) -> fn(Self, Self) -> Self;
}
macro_rules! combined {
    ($($type:ty: |$a:ident, $b:ident| $product:expr, $nan:expr;)*) => {$(
        impl Combined for $type {
            fn combined(how: Combination) -> fn($type, $type) -> $type {
                match how {
                    Combination::Product => |$a, $b| $product,
                    Combination::Largest => |$a, $b| if $b > $a || $nan { $b } else { $a },
                    Combination::Smallest => |$a, $b| if $b < $a || $nan { $b } else { $a },
                }
            }
        }
    )*};
}
combined! {
    f32: |a, b| a * b, b.is_nan();
    f64: |a, b| a * b, b.is_nan();
    i64: |a, b| a.wrapping_mul(b), false;
}

/// `target[i, index[i, j, k], k]` combined with `source[i, j, k]`, in row-major order, for the dimension `dim` in the
/// place of the second.
///
/// `index` (i64 or i32) is nowhere larger than `source`, nor than `target` except in `dim`. f16 and bf16 are combined
/// in f32. Panics if `index` is larger, or if an operand shares memory with `target`.
pub fn scatter_combine(
    mut target: TensorMut<'_>,
    how: Combination,
    dim: usize,
    index: TensorRef<'_>,
    source: TensorRef<'_>,
) -> Result<(), IndexOutOfRange> {
    extents::dimension("scatter_combine", dim, target.shape());
    no_larger("scatter_combine", index.shape(), "source", source.shape(), None);
    no_larger("scatter_combine", index.shape(), "target", target.shape(), Some(dim));
    all_apart("scatter_combine", &source, &index, &target);
    let indices = checked(index, target.shape().get(dim).copied().unwrap_or(1))?;
    by_class!(source, target, combine_lines(how, dim, index.shape(), &indices));
    Ok(())
}

fn combine_lines<T: Combined>(
    source: TensorRef<'_>,
    target: &mut TensorMut<'_>,
    how: Combination,
    dim: usize,
    shape: &[usize],
    indices: &[i64],
) {
    scatter_lines::<T>(source, target, dim, shape, indices, T::combined(how));
}

fn scatter_lines<T: Element>(
    source: TensorRef<'_>,
    target: &mut TensorMut<'_>,
    dim: usize,
    shape: &[usize],
    indices: &[i64],
    combine: impl Fn(T, T) -> T + Sync,
) {
    let index_strides = contiguous_strides(shape);
    let target_strides = target.strides();
    let stride = |strides: &[isize]| strides.get(dim).copied().unwrap_or(0);
    let (along_source, along_target, along_index) =
        (stride(source.strides()), stride(target_strides), stride(&index_strides));
    let length = shape.get(dim).copied().unwrap_or(1);
    let outer = lines(shape, [source.strides(), target_strides, &index_strides], dim);
    let address = Shared::new(target.as_mut_ptr());
    for_ranges(outer.len(), indices.len(), |range| {
        for line in range {
            let [source_base, target_base, index_base] = outer.offsets(line);
            for i in 0..length as isize {
                let index = indices[(index_base + i * along_index) as usize] as isize;
                // SAFETY: the index is in range, the rest is within the views; lines share no elements of the target.
                unsafe {
                    let value = source.as_ptr().cast::<T>().offset(source_base + i * along_source).read();
                    let place = address.get().cast::<T>().offset(target_base + index * along_target);
                    place.write(combine(place.read(), value));
                }
            }
        }
    });
}

/// `target[i, index[j], k] += source[i, j, k]`, for the dimension `dim` in the place of the second: what a table of
/// embeddings gets back.
///
/// `index` is one-dimensional (i64 or i32); `source` has the shape of `target` but for the extent of `dim`, which is
/// that of `index`. f16 and bf16 are summed in f32, integers wrap. Panics if anything else is the case, or if an
/// operand shares memory with `target`.
pub fn index_add(
    mut target: TensorMut<'_>,
    dim: usize,
    index: TensorRef<'_>,
    source: TensorRef<'_>,
) -> Result<(), IndexOutOfRange> {
    rank_of_index("index_add", index, target.shape(), dim);
    extents::shape("index_add", "source", source.shape(), &with_extent(target.shape(), dim, index.len()));
    all_apart("index_add", &source, &index, &target);
    let indices = checked(index, target.shape()[dim])?;
    by_class!(source, target, add_rows(dim, &indices));
    Ok(())
}

fn add_rows<T: Sum>(source: TensorRef<'_>, target: &mut TensorMut<'_>, dim: usize, indices: &[i64]) {
    if source.is_empty() {
        return;
    }
    let (before, mut after) = around(source.shape(), [source.strides(), target.strides()], dim);
    let (along_source, along_target) = (source.strides()[dim], target.strides()[dim]);
    let (length, [source_step, target_step]) = after.pop();
    let (pieces, inner) = (length.div_ceil(COLUMNS), after.len());
    let address = Shared::new(target.as_mut_ptr());
    for_ranges(before.len() * inner * pieces, source.len(), |range| {
        for unit in range {
            let (rest, first) = (unit / pieces, unit % pieces * COLUMNS);
            let [source_base, target_base] = before.offsets(rest / inner);
            let [source_offset, target_offset] = after.offsets(rest % inner);
            let source_base = source_base + source_offset + first as isize * source_step;
            let target_base = target_base + target_offset + first as isize * target_step;
            let count = COLUMNS.min(length - first);
            for (row, &index) in indices.iter().enumerate() {
                // SAFETY: the index is in range, the rest is within the views; units share no columns of the target.
                unsafe {
                    let from = source.as_ptr().cast::<T>().offset(source_base + row as isize * along_source);
                    let to = address.get().cast::<T>().offset(target_base + index as isize * along_target);
                    if source_step == 1 && target_step == 1 {
                        let from = std::slice::from_raw_parts(from, count);
                        let to = std::slice::from_raw_parts_mut(to, count);
                        to.iter_mut().zip(from).for_each(|(to, &from)| *to = to.plus(from));
                    } else {
                        for i in 0..count as isize {
                            let place = to.offset(i * target_step);
                            place.write(place.read().plus(from.offset(i * source_step).read()));
                        }
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_and_scatter_are_transposes() {
        let source: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let index = [2i64, 0, 1, 1, 0, 2];
        let mut out = [0f32; 6];
        // Columns of a [3, 4] matrix viewed as [4, 3], two indices for each of three of the four rows.
        // SAFETY: a transposed view of twelve elements.
        let transposed = unsafe { TensorRef::new(DType::F32, &[4, 3], &[1, 4], source.as_ptr().cast()) };
        let index = TensorRef::from_slice(&index, &[3, 2], &[2, 1]);
        gather(transposed, 1, index, TensorMut::from_slice(&mut out, &[3, 2], &[2, 1])).unwrap();
        assert_eq!(out, [8.0, 0.0, 5.0, 5.0, 2.0, 10.0]);
        let mut sum = [half::bf16::ONE; 12];
        let target = TensorMut::from_slice(&mut sum, &[4, 3], &[3, 1]);
        scatter_add(target, 1, index, TensorRef::from_slice(&out, &[3, 2], &[2, 1])).unwrap();
        assert_eq!(sum.map(half::bf16::to_f32), [1.0, 1.0, 9.0, 1.0, 11.0, 1.0, 3.0, 1.0, 11.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn rows_are_selected_and_added_back() {
        let (vocabulary, width, count) = (50, 300, 1000);
        let table: Vec<f32> = (0..vocabulary * width).map(|i| i as f32 * 1e-3).collect();
        let index: Vec<i32> = (0..count).map(|i| ((i * 37) % vocabulary) as i32).collect();
        let mut rows = vec![0f32; count * width];
        let (shape, strides) = ([vocabulary, width], [width as isize, 1]);
        let index_shape = [count];
        let row_shape = [count, width];
        let index_view = TensorRef::from_slice(&index, &index_shape, &[1]);
        let target = TensorMut::from_slice(&mut rows, &row_shape, &strides);
        index_select(TensorRef::from_slice(&table, &shape, &strides), 0, index_view, target).unwrap();
        let mut sum = vec![0f64; table.len()];
        let source = TensorRef::from_slice(&rows, &row_shape, &strides);
        index_add(TensorMut::from_slice(&mut sum, &shape, &strides), 0, index_view, source).unwrap();
        for (position, &index) in index.iter().enumerate() {
            assert_eq!(rows[position * width..][..width], table[index as usize * width..][..width]);
        }
        for (&sum, &value) in sum.iter().zip(&table) {
            assert!((sum - 20.0 * f64::from(value)).abs() < 1e-9);
        }
    }

    #[test]
    fn an_index_out_of_range_is_an_error_and_nothing_is_written() {
        let table = [1f32, 2.0, 3.0];
        let mut out = [0f32; 2];
        for bad in [-1i64, 3] {
            let index = [0, bad];
            let index = TensorRef::from_slice(&index, &[2], &[1]);
            let expected = Err(IndexOutOfRange { index: bad, position: 1, size: 3 });
            let source = TensorRef::from_slice(&table, &[3], &[1]);
            assert_eq!(gather(source, 0, index, TensorMut::from_slice(&mut out, &[2], &[1])), expected);
            assert_eq!(index_select(source, 0, index, TensorMut::from_slice(&mut out, &[2], &[1])), expected);
            assert_eq!(out, [0.0, 0.0]);
        }
    }
}
