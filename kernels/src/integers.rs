//! Products of integer matrices: blocked, packed and threaded. Sums wrap, so that their order does not matter.

use crate::parallel::{Shared, for_ranges};
use crate::product::Product;
use crate::scratch;
use crate::vector::multiversion;

/// Rows of a panel of the left operand: sums of so many rows are held in registers.
const ROWS: usize = 4;
/// Rows and columns of the result that one task computes, and the inner positions that it packs at once.
const ROW_BLOCK: usize = 64;
const COLUMN_BLOCK: usize = 256;
const INNER_BLOCK: usize = 256;
/// Fewer columns than this are sums of products one by one: panels would be mostly empty.
const FEWEST_COLUMNS: usize = 4;

macro_rules! integer_products {
    ($multiply:ident, $panels:ident, $type:ty, $columns:expr) => {
        multiversion! {
            /// Adds to `sums` the products of a panel of rows and a panel of columns, both packed position by position.
            fn $panels[FMA](left: &[$type], right: &[$type], sums: &mut [[$type; $columns]; ROWS]) {
                let mut held = *sums;
                for (left, right) in left.as_chunks::<ROWS>().0.iter().zip(right.as_chunks::<$columns>().0) {
                    for row in 0..ROWS {
                        for column in 0..$columns {
                            held[row][column] = held[row][column].wrapping_add(left[row].wrapping_mul(right[column]));
                        }
                    }
                }
                *sums = held;
            }
        }

        /// The product, or what it adds to the target. The addresses are those of the first elements of the operands
        /// and the target, which hold this type.
        ///
        /// # Safety
        /// The extents and strides of the product stay within the operands, and within the target, which nobody else
        /// uses.
        pub(crate) unsafe fn $multiply(
            product: &Product,
            left: Shared,
            right: Shared,
            target: Shared,
            accumulate: bool,
        ) {
            const COLUMNS: usize = $columns;
            let &Product { rows, columns, inner, .. } = product;
            let left = |offset: isize| -> $type {
                // SAFETY: the offset is that of an element, by the contract of this function.
                unsafe { left.get().cast::<$type>().offset(offset).read() }
            };
            let right = |offset: isize| -> $type {
                // SAFETY: as above.
                unsafe { right.get().cast::<$type>().offset(offset).read() }
            };
            let add = |offset: isize, sum: $type, keep: bool| {
                // SAFETY: as above; each element of the target belongs to one task.
                unsafe {
                    let place = target.get().cast::<$type>().offset(offset);
                    place.write(if keep { place.read().wrapping_add(sum) } else { sum });
                }
            };
            let batch = product.batch.len();
            let work = rows.saturating_mul(columns).saturating_mul(inner.max(1)).saturating_mul(batch);
            if columns < FEWEST_COLUMNS {
                return for_ranges(batch * rows, work, |range| {
                    for unit in range {
                        let (position, row) = (unit / rows, (unit % rows) as isize);
                        let [left_base, right_base, target_base] = product.batch.offsets(position);
                        for column in 0..columns as isize {
                            let mut sum: $type = 0;
                            for at in 0..inner as isize {
                                let a = left(left_base + row * product.left.0 + at * product.left.1);
                                let b = right(right_base + at * product.right.0 + column * product.right.1);
                                sum = sum.wrapping_add(a.wrapping_mul(b));
                            }
                            add(target_base + row * product.target.0 + column * product.target.1, sum, accumulate);
                        }
                    }
                });
            }
            let (row_blocks, column_blocks) = (rows.div_ceil(ROW_BLOCK), columns.div_ceil(COLUMN_BLOCK));
            for_ranges(batch * row_blocks * column_blocks, work, |range| {
                let depth = INNER_BLOCK.min(inner.max(1));
                let mut packed_left = scratch::zeroed(ROW_BLOCK.min(rows.next_multiple_of(ROWS)) * depth);
                let mut packed_right = scratch::zeroed(COLUMN_BLOCK.min(columns.next_multiple_of(COLUMNS)) * depth);
                for unit in range {
                    let (position, block) = (unit / (row_blocks * column_blocks), unit % (row_blocks * column_blocks));
                    let [left_base, right_base, target_base] = product.batch.offsets(position);
                    let first_row = block % row_blocks * ROW_BLOCK;
                    let first_column = block / row_blocks * COLUMN_BLOCK;
                    let (row_count, column_count) =
                        (ROW_BLOCK.min(rows - first_row), COLUMN_BLOCK.min(columns - first_column));
                    // An empty inner extent gives zeros: one block of nothing.
                    for first in (0..inner.max(1)).step_by(INNER_BLOCK) {
                        let length = INNER_BLOCK.min(inner - first);
                        // Panels: position by position, the rows (or columns) side by side, zero beyond the edge.
                        for (panel, packed) in
                            packed_left.chunks_mut(ROWS * length.max(1)).take(row_count.div_ceil(ROWS)).enumerate()
                        {
                            for (at, packed) in packed.chunks_mut(ROWS).take(length).enumerate() {
                                for (index, packed) in packed.iter_mut().enumerate() {
                                    let row = panel * ROWS + index;
                                    let offset = (first_row + row) as isize * product.left.0
                                        + (first + at) as isize * product.left.1;
                                    *packed = if row < row_count { left(left_base + offset) } else { 0 };
                                }
                            }
                        }
                        for (panel, packed) in packed_right
                            .chunks_mut(COLUMNS * length.max(1))
                            .take(column_count.div_ceil(COLUMNS))
                            .enumerate()
                        {
                            for (at, packed) in packed.chunks_mut(COLUMNS).take(length).enumerate() {
                                for (index, packed) in packed.iter_mut().enumerate() {
                                    let column = panel * COLUMNS + index;
                                    let offset = (first + at) as isize * product.right.0
                                        + (first_column + column) as isize * product.right.1;
                                    *packed = if column < column_count { right(right_base + offset) } else { 0 };
                                }
                            }
                        }
                        for column_panel in 0..column_count.div_ceil(COLUMNS) {
                            let right = &packed_right[column_panel * COLUMNS * length..][..COLUMNS * length];
                            for row_panel in 0..row_count.div_ceil(ROWS) {
                                let left = &packed_left[row_panel * ROWS * length..][..ROWS * length];
                                let mut sums = [[0; COLUMNS]; ROWS];
                                $panels(left, right, &mut sums);
                                for (row, sums) in (row_panel * ROWS..row_count).zip(&sums) {
                                    for (column, &sum) in (column_panel * COLUMNS..column_count).zip(sums) {
                                        let offset = (first_row + row) as isize * product.target.0
                                            + (first_column + column) as isize * product.target.1;
                                        add(target_base + offset, sum, accumulate || first > 0);
                                    }
                                }
                            }
                        }
                    }
                }
            });
        }
    };
}
integer_products!(multiply_i64, add_panels_i64, i64, 8);
integer_products!(multiply_i32, add_panels_i32, i32, 16);

#[cfg(test)]
mod tests {
    use crate::dtype::Element;
    use crate::matmul::matmul;
    use crate::view::contiguous_strides;
    use crate::{DType, TensorMut, TensorRef};

    /// Numbers of all sizes, so that products wrap.
    fn numbers(count: usize, seed: u64) -> Vec<i64> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state as i64) >> (state >> 58)
        };
        (0..count).map(next).collect()
    }

    fn check<T: Element>(convert: fn(i64) -> T, back: fn(T) -> i64, [batch, m, k, n]: [usize; 4], accumulate: bool) {
        let narrow = |values: Vec<i64>| -> Vec<T> { values.into_iter().map(convert).collect() };
        let (a, b) = (narrow(numbers(batch * m * k, 1)), narrow(numbers(batch * k * n, 2)));
        let mut out = narrow(numbers(batch * m * n, 3));
        let before = out.clone();
        let (left, right, result) = ([batch, m, k], [batch, k, n], [batch, m, n]);
        // The left is stored column by column.
        let left_strides = [(m * k) as isize, 1, m as isize];
        // SAFETY: a transposed view of the whole vector.
        let left = unsafe { TensorRef::new(T::DTYPE, &left, &left_strides, a.as_ptr().cast()) };
        let (right_strides, strides) = (contiguous_strides(&right), contiguous_strides(&result));
        let right = TensorRef::from_slice(&b, &right, &right_strides);
        matmul(left, right, TensorMut::from_slice(&mut out, &result, &strides), accumulate);
        for (i, (got, before)) in out.iter().zip(before).enumerate() {
            let (p, row, column) = (i / (m * n), i / n % m, i % n);
            let product = |x: usize| back(a[(p * k + x) * m + row]).wrapping_mul(back(b[(p * k + x) * n + column]));
            let start = if accumulate { back(before) } else { 0 };
            let exact = (0..k).fold(start, |sum, x| sum.wrapping_add(product(x)));
            assert_eq!(*got, convert(exact), "{:?} {batch} x {m}x{k}x{n} at {i}", T::DTYPE);
        }
    }

    #[test]
    fn wrapping_products_of_every_size_around_the_blocks() {
        let sizes: &[[usize; 4]] = if cfg!(miri) {
            &[[1, 5, 9, 17], [2, 3, 0, 4], [1, 5, 7, 2]]
        } else {
            &[
                [1, 1, 1, 1],
                [3, 5, 0, 4],
                [2, 4, 8, 8],
                [1, 5, 9, 17],
                [1, 63, 255, 257],
                [1, 64, 256, 256],
                [1, 65, 257, 33],
                [2, 130, 300, 20],
                [1, 7, 600, 1],
                [1, 1, 700, 300],
            ]
        };
        for &size in sizes {
            for accumulate in [false, true] {
                check::<i64>(|value| value, |value| value, size, accumulate);
                check::<i32>(|value| value as i32, i64::from, size, accumulate);
                check::<u8>(|value| value as u8, i64::from, size, accumulate);
            }
        }
    }

    #[test]
    fn sums_of_narrow_integers_are_not_cut_in_a_wider_result() {
        let (a, b) = (vec![i32::MAX; 64], vec![2i32; 64]);
        let (mut wide, mut any) = ([0i64], [0u8]);
        let (left, right) =
            (TensorRef::from_slice(&a, &[1, 64], &[64, 1]), TensorRef::from_slice(&b, &[64, 1], &[1, 1]));
        matmul(left, right, TensorMut::from_slice(&mut wide, &[1, 1], &[1, 1]), false);
        assert_eq!(wide, [128 * i64::from(i32::MAX)]);
        // 2³² is true, although its lower half is zero.
        let a = vec![1 << 26; 64];
        let (ones, left) = (vec![1i32; 64], TensorRef::from_slice(&a, &[1, 64], &[64, 1]));
        let right = TensorRef::from_slice(&ones, &[64, 1], &[1, 1]);
        // SAFETY: one byte.
        let truth = unsafe { TensorMut::new(DType::Bool, &[1, 1], &[1, 1], any.as_mut_ptr()) };
        matmul(left, right, truth, false);
        assert_eq!(any, [1]);
    }
}
