//! Batched matrix products.
//!
//! A product is cut into parts in a way that depends on its shape alone, and each part is computed by one thread; so
//! the result has the same bits for any number of threads.

use smallvec::SmallVec;

use crate::dtype::{DType, Element};
use crate::elementwise::convert;
use crate::extents;
use crate::gemm::{self, Parallelism};
use crate::integers::{multiply_i32, multiply_i64};
use crate::parallel::Shared;
use crate::product::Product;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};
use rayon::prelude::*;

/// Products of fewer multiplications than this are computed on the calling thread.
const THREADING_THRESHOLD: usize = 1 << 20;
/// The shortest run of rows or columns that is a part of its own: a part packs the whole other operand again.
const SHORTEST_PART: usize = 256;
/// The most parts that rows or columns are cut into.
const MOST_PARTS: usize = 32;
/// Inner extents from here on are cut too, when the result is small.
const LONG_INNER: usize = 8192;
/// The inner extent of a part of a product with a long inner extent.
const INNER_PART: usize = 4096;
/// The largest result (elements) of which several partial sums are held.
const SMALL_RESULT: usize = 256 << 10;

/// `target = left · right`, or `target += left · right`, for matrices in the last two dimensions.
///
/// `left` is `[.., m, k]`, `right` is `[.., k, n]` and `target` is `[.., m, n]`, with the same leading dimensions
/// (stride zero where one is broadcast) and any strides, so a transposed matrix costs nothing. The element types may
/// differ: the product is computed in f64 if any of them is f64, in f32 if any is f32, bf16 or f16, and otherwise in
/// i64, which wraps. An inner extent of zero gives zeros. The matrices of `target` do not overlap. Panics if the
/// extents do not fit, or if an operand shares memory with `target`.
pub fn matmul(left: TensorRef<'_>, right: TensorRef<'_>, mut target: TensorMut<'_>, accumulate: bool) {
    check(left.shape(), right.shape(), target.shape());
    extents::apart("matmul", "left", &left, &target);
    extents::apart("matmul", "right", &right, &target);
    if target.is_empty() {
        return;
    }
    let dtypes = [left.dtype(), right.dtype(), target.dtype()];
    if dtypes == [DType::F32; 3] {
        product::<f32>(left, right, target, accumulate);
    } else if dtypes == [DType::F64; 3] {
        product::<f64>(left, right, target, accumulate);
    } else if dtypes.contains(&DType::F64) {
        converted::<f64>(left, right, &mut target, accumulate, product::<f64>);
    } else if dtypes.iter().any(|dtype| dtype.is_floating()) {
        converted::<f32>(left, right, &mut target, accumulate, product::<f32>);
    } else {
        // What is stored in 32 bits or fewer has the same bits if it is summed in 32. (But a boolean says whether any
        // bit is set.)
        let narrow = |dtype: &DType| dtype.is_integer() && *dtype != DType::I64;
        let operands_fit = dtypes[..2].iter().all(|dtype| narrow(dtype) || *dtype == DType::Bool);
        if operands_fit && narrow(&dtypes[2]) {
            converted::<i32>(left, right, &mut target, accumulate, integers::<i32>);
        } else {
            converted::<i64>(left, right, &mut target, accumulate, integers::<i64>);
        }
    }
}

/// Whether the extents are those of a product.
fn check(left: &[usize], right: &[usize], target: &[usize]) {
    let [batch @ .., rows, columns] = target else {
        panic!("matmul: target has shape {target:?}, expected at least two dimensions")
    };
    extents::rank("matmul", "left", left, target.len());
    let inner = left[left.len() - 1];
    extents::shape("matmul", "left", left, &[batch, &[*rows, inner]].concat());
    extents::shape("matmul", "right", right, &[batch, &[inner, *columns]].concat());
}

/// Copies of the operands as `T`, and their strides. Broadcast dimensions are copied once, empty ones stay empty.
fn widened<T: Element>(tensor: TensorRef<'_>) -> (Vec<T>, Vec<isize>) {
    let shape: Vec<usize> = tensor
        .shape()
        .iter()
        .zip(tensor.strides())
        .map(|(&extent, &stride)| if stride == 0 { extent.min(1) } else { extent })
        .collect();
    let mut strides = contiguous_strides(&shape);
    let mut data = scratch::zeroed::<T>(shape.iter().product());
    // SAFETY: a part of the tensor: the first of every dimension that repeats itself.
    let source = unsafe { tensor.part(&shape, tensor.strides(), tensor.as_ptr()) };
    convert(source, TensorMut::from_slice(&mut data, &shape, &strides));
    strides.iter_mut().zip(tensor.strides()).for_each(|(stride, &original)| *stride *= isize::from(original != 0));
    (data, strides)
}

fn converted<T: Element>(
    left: TensorRef<'_>,
    right: TensorRef<'_>,
    target: &mut TensorMut<'_>,
    accumulate: bool,
    product: fn(TensorRef<'_>, TensorRef<'_>, TensorMut<'_>, bool),
) {
    let (left_data, left_strides) = widened::<T>(left);
    let (right_data, right_strides) = widened::<T>(right);
    let shape = target.shape();
    let strides = contiguous_strides(shape);
    let mut result = scratch::zeroed::<T>(target.len());
    if accumulate {
        convert(target.as_ref(), TensorMut::from_slice(&mut result, shape, &strides));
    }
    // SAFETY: the strides are those of the copies, zero where they repeat.
    let (left, right) = unsafe {
        (
            TensorRef::new(T::DTYPE, left.shape(), &left_strides, left_data.as_ptr().cast()),
            TensorRef::new(T::DTYPE, right.shape(), &right_strides, right_data.as_ptr().cast()),
        )
    };
    product(left, right, TensorMut::from_slice(&mut result, shape, &strides), accumulate);
    convert(TensorRef::from_slice(&result, shape, &strides), target.reborrow());
}

/// A part of a product: rows, columns and inner positions from .. to.
#[derive(Debug, Clone, Copy)]
struct Part {
    rows: (usize, usize),
    columns: (usize, usize),
    inner: (usize, usize),
}

/// A run of the extent `0..extent`, cut into about equal parts of at least the shortest length.
fn cut(extent: usize, shortest: usize, most: usize) -> SmallVec<[(usize, usize); 32]> {
    let length = extent.div_ceil(most).max(shortest).next_multiple_of(64);
    (0..extent).step_by(length).map(|from| (from, extent.min(from + length))).collect()
}

fn product<T: Element + std::ops::AddAssign>(
    left: TensorRef<'_>,
    right: TensorRef<'_>,
    mut target: TensorMut<'_>,
    accumulate: bool,
) {
    let product = Product::new(&left, &right, &target);
    let Product { rows, columns, inner, .. } = product;
    let batch = product.batch.len();
    let addresses = (
        Shared::new(left.as_ptr().cast_mut()),
        Shared::new(right.as_ptr().cast_mut()),
        Shared::new(target.as_mut_ptr()),
    );
    let multiply =
        |position: usize, part: Part, result: *mut T, (row_stride, column_stride): (isize, isize), read: bool| {
            let [left_offset, right_offset, _] = product.batch.offsets(position);
            let left_offset =
                left_offset + part.rows.0 as isize * product.left.0 + part.inner.0 as isize * product.left.1;
            let right_offset =
                right_offset + part.inner.0 as isize * product.right.0 + part.columns.0 as isize * product.right.1;
            // SAFETY: the strides and extents are those of the views, narrowed to a part; no two parts share results.
            unsafe {
                gemm::gemm(
                    part.rows.1 - part.rows.0,
                    part.columns.1 - part.columns.0,
                    part.inner.1 - part.inner.0,
                    result,
                    column_stride,
                    row_stride,
                    read,
                    addresses.0.get().cast::<T>().cast_const().wrapping_offset(left_offset),
                    product.left.1,
                    product.left.0,
                    addresses.1.get().cast::<T>().cast_const().wrapping_offset(right_offset),
                    product.right.1,
                    product.right.0,
                    T::from_f64(1.0),
                    T::from_f64(1.0),
                    Parallelism::None,
                );
            }
        };
    let result_of = |position: usize, row: usize, column: usize| {
        let [_, _, offset] = product.batch.offsets(position);
        let offset = offset + row as isize * product.target.0 + column as isize * product.target.1;
        addresses.2.get().cast::<T>().wrapping_offset(offset)
    };
    let whole = Part { rows: (0, rows), columns: (0, columns), inner: (0, inner) };
    let work = rows.saturating_mul(columns).saturating_mul(inner.max(1)).saturating_mul(batch);
    if work < THREADING_THRESHOLD {
        for position in 0..batch {
            multiply(position, whole, result_of(position, 0, 0), product.target, accumulate);
        }
        return;
    }
    if batch == 1 && inner >= LONG_INNER && rows * columns <= SMALL_RESULT {
        let parts = cut(inner, INNER_PART, MOST_PARTS / 2);
        let mut partial = scratch::zeroed::<T>(parts.len() * rows * columns);
        partial.par_chunks_mut(rows * columns).zip(parts.par_iter()).for_each(|(partial, inner)| {
            multiply(0, Part { inner: *inner, ..whole }, partial.as_mut_ptr(), (columns as isize, 1), false);
        });
        let (total, others) = partial.split_at_mut(rows * columns);
        for part in others.chunks(rows * columns) {
            total.iter_mut().zip(part).for_each(|(total, &part)| *total += part);
        }
        for row in 0..rows {
            for column in 0..columns {
                // SAFETY: an element of the target.
                unsafe {
                    let result = result_of(0, row, column);
                    let mut value = total[row * columns + column];
                    if accumulate {
                        value += result.read();
                    }
                    result.write(value);
                }
            }
        }
        return;
    }
    let (row_parts, column_parts) = if rows >= columns {
        (cut(rows, SHORTEST_PART, MOST_PARTS), cut(columns, usize::MAX / 2, 1))
    } else {
        (cut(rows, usize::MAX / 2, 1), cut(columns, SHORTEST_PART, MOST_PARTS))
    };
    let parts = row_parts.len() * column_parts.len();
    (0..batch * parts).into_par_iter().for_each(|unit| {
        let (position, part) = (unit / parts, unit % parts);
        let rows = row_parts[part % row_parts.len()];
        let columns = column_parts[part / row_parts.len()];
        multiply(
            position,
            Part { rows, columns, ..whole },
            result_of(position, rows.0, columns.0),
            product.target,
            accumulate,
        );
    });
}

fn integers<T: Element>(left: TensorRef<'_>, right: TensorRef<'_>, mut target: TensorMut<'_>, accumulate: bool) {
    let product = Product::new(&left, &right, &target);
    let [left, right] = [left, right].map(|operand| Shared::new(operand.as_ptr().cast_mut()));
    let target = Shared::new(target.as_mut_ptr());
    let multiply = if T::DTYPE == DType::I32 { multiply_i32 } else { multiply_i64 };
    // SAFETY: extents and strides are those of the views, which hold the type.
    unsafe { multiply(&product, left, right, target, accumulate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_operand_is_not_read() {
        // Memory of other libraries without elements may have any strides, and its address may be null.
        let nothing = std::ptr::NonNull::<u16>::dangling().as_ptr().cast::<u8>();
        // SAFETY: there are no elements.
        let empty = unsafe { TensorRef::new(DType::BF16, &[0, 2, 3], &[0, 0, 0], nothing) };
        let (data, _) = widened::<f32>(empty);
        assert!(data.is_empty(), "{data:?}");
    }

    fn data<T: Element>(count: usize, seed: usize) -> Vec<T> {
        (0..count).map(|i| T::from_f64(((i * 31 + seed * 7) % 17) as f64 - 8.0)).collect()
    }

    fn check<T: Element>(batch: usize, m: usize, k: usize, n: usize, accumulate: bool) {
        let (a, b) = (data::<T>(m * k, 1), data::<T>(batch * n * k, 2));
        let mut out = data::<T>(batch * m * n, 3);
        let (left, right, result) = ([batch, m, k], [batch, k, n], [batch, m, n]);
        // The left is broadcast over the batch, the right is transposed.
        let right_strides = [(n * k) as isize, 1, k as isize];
        let before = out.clone();
        // SAFETY: the strides stay within the vectors.
        unsafe {
            matmul(
                TensorRef::new(T::DTYPE, &left, &[0, k as isize, 1], a.as_ptr().cast()),
                TensorRef::new(T::DTYPE, &right, &right_strides, b.as_ptr().cast()),
                TensorMut::from_slice(&mut out, &result, &contiguous_strides(&result)),
                accumulate,
            );
        }
        for p in 0..batch {
            for i in 0..m {
                for j in 0..n {
                    let dot: f64 = (0..k).map(|x| a[i * k + x].to_f64() * b[(p * n + j) * k + x].to_f64()).sum();
                    let position = (p * m + i) * n + j;
                    let exact = dot + if accumulate { before[position].to_f64() } else { 0.0 };
                    assert_eq!(out[position], T::from_f64(exact), "{:?} {m}x{k}x{n} at {p} {i} {j}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn every_type_with_broadcast_and_transposed_operands() {
        for accumulate in [false, true] {
            check::<f32>(3, 17, 33, 9, accumulate);
            check::<f64>(2, 5, 64, 70, accumulate);
            check::<half::f16>(2, 4, 6, 5, accumulate);
            check::<half::bf16>(2, 4, 3, 5, accumulate);
            check::<i32>(2, 4, 8, 5, accumulate);
            check::<f32>(2, 3, 0, 4, accumulate);
            check::<i64>(1, 3, 0, 4, accumulate);
            check::<f32>(1, 3, 20_000, 40, accumulate);
            check::<f32>(1, 700, 30, 200, accumulate);
        }
    }

    fn noise(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 2_654_435_761) % 8191) as f32 * 1e-3 - 4.0).collect()
    }

    #[test]
    fn gaps_in_the_result_change_no_bit_of_it() {
        for (m, k, n) in
            [(1, 2960, 3), (1, 7848, 2), (3, 2960, 1), (5, 300, 7), (16, 500, 16), (257, 600, 1), (2, 90, 300)]
        {
            let (a, b) = (noise(m * k), noise(k * n));
            let run = |row: usize, column: usize, accumulate: bool| -> Vec<f32> {
                let mut out = vec![0.5f32; m * row + n * column];
                let (left, right, result) = ([m, k], [k, n], [m, n]);
                let (left_strides, right_strides) = ([k as isize, 1], [n as isize, 1]);
                let strides = [row as isize, column as isize];
                // SAFETY: the last element is at (m - 1) * row + (n - 1) * column, and the vector is longer.
                let target = unsafe { TensorMut::new(DType::F32, &result, &strides, out.as_mut_ptr().cast()) };
                matmul(
                    TensorRef::from_slice(&a, &left, &left_strides),
                    TensorRef::from_slice(&b, &right, &right_strides),
                    target,
                    accumulate,
                );
                (0..m * n).map(|i| out[i / n * row + i % n * column]).collect()
            };
            for accumulate in [false, true] {
                let dense = run(n, 1, accumulate);
                for (row, column) in [(2 * n, 2), (n + 3, 1), (3 * n + 1, 3)] {
                    assert_eq!(run(row, column, accumulate), dense, "{m}x{k}x{n} in steps of {row}, {column}");
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        for (m, k, n) in [(100, 9000, 130), (600, 200, 300), (1, 600, 5000), (5000, 600, 1)] {
            let (a, b) = (noise(m * k), noise(k * n));
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut out = vec![0f32; m * n];
                let (left, right, result) = ([m, k], [k, n], [m, n]);
                let strides = [left, right, result].map(|shape| contiguous_strides(&shape));
                pool.install(|| {
                    matmul(
                        TensorRef::from_slice(&a, &left, &strides[0]),
                        TensorRef::from_slice(&b, &right, &strides[1]),
                        TensorMut::from_slice(&mut out, &result, &strides[2]),
                        false,
                    );
                });
                out
            };
            assert_eq!(run(1), run(3));
        }
    }
}
