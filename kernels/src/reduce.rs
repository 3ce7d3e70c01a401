//! Reductions over any dimensions.
//!
//! f32, f16 and bf16 are added in f32 within short blocks, whose sums are added in f64; the order depends on the shape
//! and strides alone, so the result does not depend on the number of threads.

use crate::dtype::DType;
use crate::extents;
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::tile::convert::cast;
use crate::tile::load::load;
pub use crate::tile::reduction::Reduction;
use crate::tile::reduction::{Total, reduce as reduce_slice};
use crate::tile::store::store_one;
use crate::tile::{Class, Operand};
use crate::vector::multiversion;
use crate::view::{TensorMut, TensorRef};
use crate::walk::Walk;

/// Elements reduced by one task where a single result takes many.
const PIECE: usize = 64 << 10;
/// Elements of a tile that strided or narrow elements are gathered into.
const TILE: usize = 1024;
/// Columns that are reduced side by side.
const COLUMNS: usize = 512;
/// Rows added to each column before the sums are added in the wider type.
const ROWS: usize = 16;
/// Rows of one task of a column reduction.
const ROW_GROUP: usize = 2048;

/// Reduces `source` over the dimensions `dims` (each named once) and stores the result, converted, to `target`, whose
/// shape is that of `source` with the reduced dimensions either left out or of extent one.
///
/// Booleans and integers are reduced in i64 (sums and products wrap). A maximum or minimum is NaN if any element is.
/// Panics if `dims` are not dimensions of `source`, if `target` has another shape, or if the two share memory.
pub fn reduce(reduction: Reduction, source: TensorRef<'_>, dims: &[usize], mut target: TensorMut<'_>) {
    let (shape, strides) = (source.shape(), source.strides());
    let keeps = target.shape().len() == shape.len();
    check(shape, dims, target.shape());
    extents::apart("reduce", "source", &source, &target);
    let (mut kept, mut reduced) = (Vec::new(), Vec::new());
    for axis in 0..shape.len() {
        if dims.contains(&axis) {
            reduced.push((shape[axis], [strides[axis]]));
        } else {
            let position = if keeps { axis } else { kept.len() };
            kept.push((shape[axis], [strides[axis], target.strides()[position]]));
        }
    }
    // The slowest stride first, so that memory is read in order.
    kept.sort_by_key(|(_, strides)| std::cmp::Reverse(strides[0].unsigned_abs()));
    reduced.sort_by_key(|(_, strides)| std::cmp::Reverse(strides[0].unsigned_abs()));
    let fastest = |extent: usize, stride: isize| if extent == 1 { usize::MAX } else { stride.unsigned_abs() };
    let kept_stride = kept.iter().map(|(extent, strides)| fastest(*extent, strides[0])).min().unwrap_or(usize::MAX);
    let reduced_stride =
        reduced.iter().map(|(extent, strides)| fastest(*extent, strides[0])).min().unwrap_or(usize::MAX);
    let job = Job {
        reduction,
        dtype: source.dtype(),
        class: Class::of(source.dtype()).max(Class::I64),
        source: Shared::new(source.as_ptr().cast_mut()),
        target_dtype: target.dtype(),
        target: Shared::new(target.as_mut_ptr()),
        kept: Walk::new(kept),
        reduced: Walk::new(reduced),
    };
    if job.kept.len() == 0 {
        return;
    }
    if kept_stride < reduced_stride && job.reduced.len() > 0 {
        match job.class {
            Class::F32 => job.columns_f32(),
            Class::F64 => job.columns_f64(),
            Class::I64 | Class::Bool => job.columns_i64(),
        }
    } else {
        job.rows();
    }
}

/// Whether the dimensions and the shape of the target are those of a reduction of `shape`.
fn check(shape: &[usize], dims: &[usize], target: &[usize]) {
    for (position, dim) in dims.iter().enumerate() {
        let named_once = *dim < shape.len() && !dims[..position].contains(dim);
        assert!(named_once, "reduce: dims are {dims:?}, expected dimensions of {shape:?}, each once");
    }
    let kept = shape.iter().enumerate().filter(|(axis, _)| !dims.contains(axis)).map(|(_, extent)| *extent);
    let expected: Vec<usize> = if target.len() == shape.len() {
        shape.iter().enumerate().map(|(axis, extent)| if dims.contains(&axis) { 1 } else { *extent }).collect()
    } else {
        kept.collect()
    };
    extents::shape("reduce", "target", target, &expected);
}

struct Job {
    reduction: Reduction,
    dtype: DType,
    class: Class,
    source: Shared,
    target_dtype: DType,
    target: Shared,
    /// Strides of the source and the target.
    kept: Walk<2>,
    reduced: Walk<1>,
}

impl Job {
    /// Address of an element of the source.
    fn at(&self, offset: isize) -> *const u8 {
        self.source.get().cast_const().wrapping_offset(offset * self.dtype.size() as isize)
    }

    fn finish(&self, offset: isize, total: Total) {
        let target = self.target.get().wrapping_offset(offset * self.target_dtype.size() as isize);
        // SAFETY: the offset is that of an element of the target, which one task alone writes.
        unsafe {
            match &total {
                Total::Floating(value) => {
                    store_one(Class::F64, std::ptr::from_ref(value).cast(), self.target_dtype, target)
                }
                Total::Integer(value) => {
                    store_one(Class::I64, std::ptr::from_ref(value).cast(), self.target_dtype, target)
                }
            }
        }
    }

    /// Each result from elements that are (nearly) neighbours in memory.
    fn rows(&self) {
        let mut outer = self.reduced.clone();
        let (length, [stride]) = outer.pop();
        let outer_count = outer.len();
        let outputs = self.kept.len();
        let start = Total::start(self.reduction, self.class.is_floating());
        let combine = |a: Total, b: Total| a.combine(self.reduction, b);
        // A piece is a run of whole segments, or a segment is cut into pieces.
        let pieces_per_segment = length.div_ceil(PIECE).max(1);
        let segments_per_piece =
            if pieces_per_segment > 1 { 1 } else { (PIECE / length.max(1)).clamp(1, outer_count.max(1)) };
        let pieces = outer_count.div_ceil(segments_per_piece) * pieces_per_segment;
        let piece = |output: usize, piece: usize| -> Total {
            let [base, _] = self.kept.offsets(output);
            let first = piece / pieces_per_segment * segments_per_piece;
            let from = piece % pieces_per_segment * PIECE;
            let to = length.min(from + PIECE);
            (first..outer_count.min(first + segments_per_piece)).fold(start, |total, segment| {
                let [offset] = outer.offsets(segment);
                combine(total, self.segment(base + offset + from as isize * stride, stride, to - from))
            })
        };
        let all = |output: usize| (0..pieces).map(|index| piece(output, index)).reduce(combine).unwrap_or(start);
        let elements = outputs * outer_count * length;
        if outputs >= 64 || pieces <= 1 {
            for_ranges(outputs, elements.max(outputs), |range| {
                for output in range {
                    self.finish(self.kept.offsets(output)[1], all(output));
                }
            });
        } else {
            let mut totals = scratch::filled(start, outputs * pieces);
            let address = Shared::new(totals.as_mut_ptr().cast());
            for_ranges(outputs * pieces, elements, |range| {
                for unit in range {
                    // SAFETY: every unit has its own element of `totals`.
                    unsafe { address.get().cast::<Total>().add(unit).write(piece(unit / pieces, unit % pieces)) };
                }
            });
            for (output, totals) in totals.chunks(pieces).enumerate() {
                let total = totals.iter().copied().reduce(combine).unwrap_or(start);
                self.finish(self.kept.offsets(output)[1], total);
            }
        }
    }

    /// The total of `length` elements from `offset`, `stride` apart.
    fn segment(&self, offset: isize, stride: isize, length: usize) -> Total {
        if stride == 1 && self.class.dtype() == self.dtype {
            // SAFETY: the elements are part of the source, and stored as the class is.
            return unsafe { reduce_slice(self.reduction, self.class, self.at(offset), length) };
        }
        let mut total = Total::start(self.reduction, self.class.is_floating());
        let mut tile = [0u64; TILE];
        for first in (0..length).step_by(TILE) {
            let count = TILE.min(length - first);
            self.gather(offset + first as isize * stride, stride, &mut tile, count);
            // SAFETY: the tile holds `count` elements of the class.
            let part = unsafe { reduce_slice(self.reduction, self.class, tile.as_ptr().cast(), count) };
            total = total.combine(self.reduction, part);
        }
        total
    }

    /// Elements of the source in the class of the reduction.
    fn gather(&self, offset: isize, stride: isize, tile: &mut [u64; TILE], count: usize) {
        let tile = tile.as_mut_ptr().cast::<u8>();
        // SAFETY: the elements are part of the source; a tile has room for TILE elements of any class.
        unsafe {
            if self.dtype == DType::Bool {
                let mut bytes = [0u8; TILE];
                load(self.dtype, self.at(offset), stride, bytes.as_mut_ptr(), count);
                cast(Class::Bool, Class::I64, Operand::Tile(bytes.as_ptr()), tile, 1, count);
            } else {
                load(self.dtype, self.at(offset), stride, tile, count);
            }
        }
    }
}

macro_rules! columns {
    ($method:ident, $combine:ident, $widen:ident, $type:ty, $wide:ty, $total:path,
     |$a:ident, $b:ident| $add:expr, $multiply:expr) => {
        multiversion! {
            /// `into[i] = into[i] ∘ row[i]`.
            fn $combine[FMA](reduction: Reduction, into: &mut [$type], row: &[$type]) {
                let length = into.len();
                let row = &row[..length];
                #[allow(clippy::eq_op)]
                match reduction {
                    Reduction::Sum => for i in 0..length {
                        let ($a, $b) = (into[i], row[i]);
                        into[i] = $add;
                    },
                    Reduction::Max => for i in 0..length {
                        let (a, b) = (into[i], row[i]);
                        into[i] = if b > a || b != b { b } else { a };
                    },
                    Reduction::Product => for i in 0..length {
                        let ($a, $b) = (into[i], row[i]);
                        into[i] = $multiply;
                    },
                    Reduction::Min => for i in 0..length {
                        let (a, b) = (into[i], row[i]);
                        into[i] = if b < a || b != b { b } else { a };
                    },
                }
            }
        }
        multiversion! {
            /// As the other, in the wider type.
            fn $widen[FMA](reduction: Reduction, into: &mut [$wide], row: &[$type]) {
                let length = into.len();
                let row = &row[..length];
                #[allow(clippy::eq_op)]
                match reduction {
                    Reduction::Sum => for i in 0..length {
                        let ($a, $b) = (into[i], row[i] as $wide);
                        into[i] = $add;
                    },
                    Reduction::Max => for i in 0..length {
                        let (a, b) = (into[i], row[i] as $wide);
                        into[i] = if b > a || b != b { b } else { a };
                    },
                    Reduction::Product => for i in 0..length {
                        let ($a, $b) = (into[i], row[i] as $wide);
                        into[i] = $multiply;
                    },
                    Reduction::Min => for i in 0..length {
                        let (a, b) = (into[i], row[i] as $wide);
                        into[i] = if b < a || b != b { b } else { a };
                    },
                }
            }
        }
        impl Job {
            /// Neighbouring results side by side: for each of them, a column of the source.
            fn $method(&self) {
                let mut outer = self.kept.clone();
                let (width, [source_stride, target_stride]) = outer.pop();
                let rows = self.reduced.len();
                let (groups, pieces) = (rows.div_ceil(ROW_GROUP), width.div_ceil(COLUMNS));
                let direct = source_stride == 1 && self.class.dtype() == self.dtype;
                // The totals of one group of rows, for the columns of one piece.
                let group_totals = |outer_offset: isize, piece: usize, group: usize, totals: &mut [$wide]| {
                    let first_column = (piece * COLUMNS) as isize * source_stride;
                    let mut tile = [0u64; TILE];
                    let mut part = [<$type>::default(); COLUMNS];
                    let part = &mut part[..totals.len()];
                    let last = rows.min((group + 1) * ROW_GROUP);
                    // A product of a few rows may leave the range of the narrow type where the whole does not.
                    let together = if self.reduction == Reduction::Product { 1 } else { ROWS };
                    for (block, start) in (group * ROW_GROUP..last).step_by(together).enumerate() {
                        for row in start..last.min(start + together) {
                            let offset = outer_offset + first_column + self.reduced.offsets(row)[0];
                            let address = if direct {
                                self.at(offset)
                            } else {
                                self.gather(offset, source_stride, &mut tile, totals.len());
                                tile.as_ptr().cast()
                            };
                            // SAFETY: as many elements as there are totals, of the class, in the source or in the tile.
                            let values = unsafe { std::slice::from_raw_parts(address.cast::<$type>(), totals.len()) };
                            if row == start {
                                part.copy_from_slice(values)
                            } else {
                                $combine(self.reduction, part, values)
                            }
                        }
                        if block == 0 {
                            totals.iter_mut().zip(&*part).for_each(|(total, &part)| *total = part as $wide);
                        } else {
                            $widen(self.reduction, totals, part);
                        }
                    }
                };
                let columns = |piece: usize| COLUMNS.min(width - piece * COLUMNS);
                let finish = |position: usize, piece: usize, totals: &[$wide]| {
                    let [_, base] = outer.offsets(position);
                    for (index, &total) in totals.iter().enumerate() {
                        self.finish(base + (piece * COLUMNS + index) as isize * target_stride, $total(total));
                    }
                };
                let elements = outer.len() * width * rows;
                let units = outer.len() * pieces;
                let mut partial =
                    scratch::filled(<$wide>::default(), if groups > 1 { units * groups * COLUMNS } else { 0 });
                let address = Shared::new(partial.as_mut_ptr().cast());
                for_ranges(units * groups, elements, |range| {
                    for unit in range {
                        let (group, unit) = (unit % groups, unit / groups);
                        let (position, piece) = (unit / pieces, unit % pieces);
                        let mut totals = [<$wide>::default(); COLUMNS];
                        let totals = &mut totals[..columns(piece)];
                        group_totals(outer.offsets(position)[0], piece, group, totals);
                        if groups == 1 {
                            finish(position, piece, totals);
                        } else {
                            // SAFETY: every unit and group has COLUMNS elements of its own.
                            unsafe {
                                let place = address.get().cast::<$wide>().add((unit * groups + group) * COLUMNS);
                                place.copy_from_nonoverlapping(totals.as_ptr(), totals.len());
                            }
                        }
                    }
                });
                for unit in 0..if groups > 1 { units } else { 0 } {
                    let (position, piece) = (unit / pieces, unit % pieces);
                    let parts = &partial[unit * groups * COLUMNS..][..groups * COLUMNS];
                    let totals: Vec<$wide> = (0..columns(piece))
                        .map(|column| {
                            let values = (0..groups).map(|group| $total(parts[group * COLUMNS + column]));
                            let start = Total::start(self.reduction, self.class.is_floating());
                            match values.fold(start, |a, b| a.combine(self.reduction, b)) {
                                Total::Floating(value) => value as $wide,
                                Total::Integer(value) => value as $wide,
                            }
                        })
                        .collect();
                    finish(position, piece, &totals);
                }
            }
        }
    };
}
columns!(columns_f32, combine_f32, widen_f32, f32, f64, Total::Floating, |a, b| a + b, a * b);
columns!(columns_f64, combine_f64, widen_f64, f64, f64, Total::Floating, |a, b| a + b, a * b);
columns!(columns_i64, combine_i64, widen_i64, i64, i64, Total::Integer, |a, b| a.wrapping_add(b), a.wrapping_mul(b));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::contiguous_strides;

    fn check(shape: &[usize], dims: &[usize], permutation: &[usize]) {
        let count: usize = shape.iter().product();
        let data: Vec<f32> = (0..count).map(|i| ((i * 7919) % 1013) as f32 / 100.0 - 5.0).collect();
        let dense = contiguous_strides(shape);
        let view_shape: Vec<usize> = permutation.iter().map(|&axis| shape[axis]).collect();
        let view_strides: Vec<isize> = permutation.iter().map(|&axis| dense[axis]).collect();
        let out_shape: Vec<usize> = view_shape
            .iter()
            .enumerate()
            .map(|(axis, &extent)| if dims.contains(&axis) { 1 } else { extent })
            .collect();
        let out_strides = contiguous_strides(&out_shape);
        for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Product] {
            let mut exact = vec![Total::start(reduction, true); out_shape.iter().product()];
            for position in 0..count {
                let (mut rest, mut from, mut to) = (position, 0, 0);
                for axis in (0..view_shape.len()).rev() {
                    let index = rest % view_shape[axis];
                    rest /= view_shape[axis];
                    from += index as isize * view_strides[axis];
                    to += if dims.contains(&axis) { 0 } else { index as isize * out_strides[axis] };
                }
                let total = &mut exact[to as usize];
                *total = total.combine(reduction, Total::Floating(f64::from(data[from as usize])));
            }
            let mut out = vec![f32::NAN; exact.len()];
            // SAFETY: a permutation of a dense view.
            let source = unsafe { TensorRef::new(DType::F32, &view_shape, &view_strides, data.as_ptr().cast()) };
            reduce(reduction, source, dims, TensorMut::from_slice(&mut out, &out_shape, &out_strides));
            for (got, exact) in out.iter().zip(&exact) {
                let Total::Floating(exact) = *exact else { unreachable!() };
                // A product may be larger than the numbers of f32.
                let near =
                    *got == exact as f32 || (f64::from(*got) - exact).abs() < 1e-6 * (count as f64).max(exact.abs());
                assert!(near, "{reduction:?} of {shape:?} over {dims:?}: {got} for {exact}");
            }
        }
    }

    #[test]
    fn any_dimensions_in_any_order() {
        check(&[], &[], &[]);
        check(&[5], &[0], &[0]);
        check(&[0, 3], &[0], &[0, 1]);
        check(&[3, 0], &[0], &[0, 1]);
        check(&[300_000], &[0], &[0]);
        for dims in [vec![], vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]] {
            for permutation in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                check(&[7, 33, 20], &dims, &permutation);
            }
        }
        check(&[5000, 700], &[0], &[0, 1]);
        check(&[3, 100_000], &[1], &[0, 1]);
    }

    #[test]
    fn sums_of_many_are_accurate_and_booleans_count() {
        let data = vec![0.1f32; 1 << 20];
        let mut out = [0f32];
        reduce(
            Reduction::Sum,
            TensorRef::from_slice(&data, &[1 << 20], &[1]),
            &[0],
            TensorMut::from_slice(&mut out, &[], &[]),
        );
        let exact = f64::from(0.1f32) * f64::from(1 << 20);
        assert!((f64::from(out[0]) - exact).abs() < 3e-7 * exact);
        let flags = [1u8, 0, 1, 1];
        let mut count = [0i64];
        // SAFETY: four bytes, each 0 or 1.
        let source = unsafe { TensorRef::new(DType::Bool, &[4], &[1], flags.as_ptr()) };
        reduce(Reduction::Sum, source, &[0], TensorMut::from_slice(&mut count, &[1], &[1]));
        assert_eq!(count, [3]);
        let mut largest = [0f64];
        let data = [1.0, f64::NAN, 3.0];
        reduce(
            Reduction::Max,
            TensorRef::from_slice(&data, &[3], &[1]),
            &[0],
            TensorMut::from_slice(&mut largest, &[1], &[1]),
        );
        assert!(largest[0].is_nan());
    }

    #[test]
    fn products_leave_the_range_only_as_a_whole_and_wrap() {
        // Two rows of 1e30 and two of 1e-30, in 40 columns, and the same as rows.
        let by_rows: Vec<f32> = (0..160).map(|i| if i < 80 { 1e30 } else { 1e-30 }).collect();
        for (shape, strides) in [([4, 40], [40, 1]), ([4, 40], [1, 4])] {
            let mut data = by_rows.clone();
            if strides[0] == 1 {
                (0..160).for_each(|i| data[i] = if i % 4 < 2 { 1e30 } else { 1e-30 });
            }
            let mut out = [0f32; 40];
            // SAFETY: a dense view of the numbers, or its transpose.
            let source = unsafe { TensorRef::new(DType::F32, &shape, &strides, data.as_ptr().cast()) };
            reduce(Reduction::Product, source, &[0], TensorMut::from_slice(&mut out, &[40], &[1]));
            assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-6), "{out:?}");
        }
        let mut wrapped = [0i64];
        let source = TensorRef::from_slice(&[1i64 << 62, 3, -1], &[3], &[1]);
        reduce(Reduction::Product, source, &[0], TensorMut::from_slice(&mut wrapped, &[], &[]));
        assert_eq!(wrapped, [(1i64 << 62).wrapping_mul(-3)]);
    }
}
