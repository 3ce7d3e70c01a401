//! Operations along one dimension that depend on the order of elements: positions of maxima, largest elements.

use std::cmp::Ordering;

use crate::dtype::DType;
use crate::extents::{self, with_extent};
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::tile::convert::cast;
use crate::tile::load::load;
use crate::tile::store::store_one;
use crate::tile::{Class, Operand};
use crate::view::{TensorMut, TensorRef};
use crate::walk::lines;

/// Elements of a tile.
const TILE: usize = 1024;

/// A line of a tensor: elements along one dimension.
#[derive(Clone, Copy)]
struct Line {
    dtype: DType,
    start: *const u8,
    stride: isize,
    length: usize,
}

impl Line {
    /// Elements `first..first + count` in f64 or i64, as bits.
    ///
    /// # Safety
    /// The line is part of a live tensor, and `count` is at most [`TILE`].
    unsafe fn read(&self, first: usize, count: usize, tile: &mut [u64; TILE]) {
        let class = Class::of(self.dtype);
        let wide = wide(self.dtype);
        let mut narrow = [0u64; TILE];
        // SAFETY: promised by the caller; both tiles have room for TILE elements of any class.
        unsafe {
            let address = self.start.offset(first as isize * self.stride * self.dtype.size() as isize);
            load(self.dtype, address, self.stride, narrow.as_mut_ptr().cast(), count);
            cast(class, wide, Operand::Tile(narrow.as_ptr().cast()), tile.as_mut_ptr().cast(), 1, count);
        }
    }
}

/// The class that elements are compared and added in.
fn wide(dtype: DType) -> Class {
    if dtype.is_floating() { Class::F64 } else { Class::I64 }
}

/// A bit pattern of f64 or i64 as an integer of the same order, NaN above all.
fn key(bits: u64, class: Class) -> i64 {
    if class == Class::I64 {
        return bits as i64;
    }
    let value = f64::from_bits(bits);
    if value.is_nan() {
        return i64::MAX;
    }
    // Adding zero makes both zeros equal.
    let bits = (value + 0.0).to_bits() as i64;
    // Negative numbers grow with their magnitude as bits; turning those bits over reverses that.
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// Runs `body` for each line along `dim`, with the line and the offsets of two targets.
fn for_lines(source: TensorRef<'_>, dim: usize, strides: [&[isize]; 2], body: impl Fn(Line, [isize; 2]) + Sync) {
    let outer = lines(source.shape(), [source.strides(), strides[0], strides[1]], dim);
    let length = source.shape().get(dim).copied().unwrap_or(1);
    let stride = source.strides().get(dim).copied().unwrap_or(0);
    let start = Shared::new(source.as_ptr().cast_mut());
    let dtype = source.dtype();
    for_ranges(outer.len(), source.len(), |range| {
        for position in range {
            let [offset, first, second] = outer.offsets(position);
            let start = start.get().cast_const().wrapping_offset(offset * dtype.size() as isize);
            body(Line { dtype, start, stride, length }, [first, second]);
        }
    });
}

/// Strides of a target that has, or lacks, an extent of one in the place of `dim`.
fn with_dimension(strides: &[isize], rank: usize, dim: usize) -> Vec<isize> {
    let mut strides = strides.to_vec();
    if strides.len() < rank {
        strides.insert(dim, 0);
    }
    strides
}

/// The position of the largest element along `dim`: the first of equals; a NaN counts as the largest.
///
/// `target` (i64 or another type) has the shape of `source` with the dimension left out or of extent one. The dimension
/// is not empty. Panics if it is, if `target` has another shape, or if it shares memory with `source`.
pub fn argmax(source: TensorRef<'_>, dim: usize, mut target: TensorMut<'_>) {
    extents::dimension("argmax", dim, source.shape());
    let mut expected = with_extent(source.shape(), dim, 1);
    if target.shape().len() < expected.len() {
        expected.remove(dim);
    }
    extents::shape("argmax", "target", target.shape(), &expected);
    extents::apart("argmax", "source", &source, &target);
    let length = source.shape().get(dim).copied().unwrap_or(1);
    assert!(length > 0 || target.is_empty(), "argmax: dimension {dim} of {:?} is empty", source.shape());
    let strides = with_dimension(target.strides(), source.shape().len(), dim);
    let dtype = target.dtype();
    let address = Shared::new(target.as_mut_ptr());
    for_lines(source, dim, [&strides, &strides], |line, [offset, _]| {
        let mut tile = [0; TILE];
        let class = wide(line.dtype);
        let (mut best, mut at) = (i64::MIN, 0i64);
        for first in (0..line.length).step_by(TILE) {
            let count = TILE.min(line.length - first);
            // SAFETY: a line of the source.
            unsafe { line.read(first, count, &mut tile) };
            for (index, &bits) in tile[..count].iter().enumerate() {
                let key = key(bits, class);
                if key > best {
                    (best, at) = (key, (first + index) as i64);
                }
            }
        }
        // SAFETY: an element of the target, which this line alone writes.
        unsafe {
            let place = address.get().offset(offset * dtype.size() as isize);
            store_one(Class::I64, (&raw const at).cast(), dtype, place);
        }
    });
}

/// The `k` largest (or smallest) elements along `dim` in order, and their positions. Of equal elements the one with the
/// lower position comes first; NaN counts as the largest.
///
/// `values` (of the type of `source`) and `indices` (i64) have the shape of `source` with the extent `k` in the place
/// of `dim`, and `k` is at most that extent. Panics if anything else is the case, or if `source` shares memory with a
/// result.
pub fn topk(source: TensorRef<'_>, dim: usize, largest: bool, mut values: TensorMut<'_>, mut indices: TensorMut<'_>) {
    extents::dimension("topk", dim, source.shape());
    let k = values.shape().get(dim).copied().unwrap_or(1);
    let length = source.shape().get(dim).copied().unwrap_or(1);
    assert!(k <= length, "topk: {k} elements are wanted of {length}");
    let expected = with_extent(source.shape(), dim, k);
    extents::shape("topk", "values", values.shape(), &expected);
    extents::shape("topk", "indices", indices.shape(), &expected);
    extents::apart("topk", "source", &source, &values);
    extents::apart("topk", "source", &source, &indices);
    if k == 0 {
        return;
    }
    let (value_dtype, index_dtype) = (values.dtype(), indices.dtype());
    let (value_strides, index_strides) = (values.strides(), indices.strides());
    let stride = |strides: &[isize]| strides.get(dim).copied().unwrap_or(0);
    let (value_stride, index_stride) = (stride(value_strides), stride(index_strides));
    let (value_address, index_address) = (Shared::new(values.as_mut_ptr()), Shared::new(indices.as_mut_ptr()));
    for_lines(source, dim, [value_strides, index_strides], |line, [value_offset, index_offset]| {
        let class = wide(line.dtype);
        let mut tile = [0; TILE];
        let mut candidates: Vec<(i64, u64, i64)> = scratch::room(line.length);
        for first in (0..line.length).step_by(TILE) {
            let count = TILE.min(line.length - first);
            // SAFETY: a line of the source.
            unsafe { line.read(first, count, &mut tile) };
            let read = tile[..count].iter().enumerate();
            candidates.extend(read.map(|(index, &bits)| (key(bits, class), bits, (first + index) as i64)));
        }
        let order = |a: &(i64, u64, i64), b: &(i64, u64, i64)| -> Ordering {
            let by_value = if largest { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) };
            by_value.then(a.2.cmp(&b.2))
        };
        if k < candidates.len() {
            candidates.select_nth_unstable_by(k - 1, order);
            candidates.truncate(k);
        }
        candidates.sort_unstable_by(order);
        for (rank, (_, bits, index)) in candidates.iter().enumerate() {
            let value_place = (value_offset + rank as isize * value_stride) * value_dtype.size() as isize;
            let index_place = (index_offset + rank as isize * index_stride) * index_dtype.size() as isize;
            // SAFETY: elements of the targets, which this line alone writes.
            unsafe {
                store_one(class, std::ptr::from_ref(bits).cast(), value_dtype, value_address.get().offset(value_place));
                let index = std::ptr::from_ref(index).cast();
                store_one(Class::I64, index, index_dtype, index_address.get().offset(index_place));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_numbers() {
        let values = [f64::NEG_INFINITY, -2.0, -1.0, -1e-310, 0.0, 1e-310, 1.0, 2.0, f64::INFINITY, f64::NAN];
        for pair in values.windows(2) {
            assert!(key(pair[0].to_bits(), Class::F64) < key(pair[1].to_bits(), Class::F64), "{pair:?}");
        }
        assert_eq!(key((-0f64).to_bits(), Class::F64), key(0f64.to_bits(), Class::F64));
    }

    #[test]
    fn the_first_maximum_along_each_dimension() {
        let data = [1f32, 5.0, 5.0, f32::NAN, -1.0, f32::NAN];
        let mut out = [-1i64; 3];
        let source = TensorRef::from_slice(&data, &[2, 3], &[3, 1]);
        argmax(source, 0, TensorMut::from_slice(&mut out, &[3], &[1]));
        assert_eq!(out, [1, 0, 1]);
        argmax(source, 1, TensorMut::from_slice(&mut out[..2], &[2, 1], &[1, 1]));
        assert_eq!(out[..2], [1, 0]);
        let lowest = [f64::NEG_INFINITY; 2];
        argmax(TensorRef::from_slice(&lowest, &[2], &[1]), 0, TensorMut::from_slice(&mut out[..1], &[], &[]));
        assert_eq!(out[0], 0);
    }

    #[test]
    fn largest_and_smallest_with_ties() {
        let data = [3f32, 1.0, 3.0, f32::NAN, 2.0, 1.0];
        let (mut values, mut indices) = ([0f32; 3], [0i64; 3]);
        for (largest, expected) in [(true, [3, 0, 2]), (false, [1, 5, 4])] {
            topk(
                TensorRef::from_slice(&data, &[6], &[1]),
                0,
                largest,
                TensorMut::from_slice(&mut values, &[3], &[1]),
                TensorMut::from_slice(&mut indices, &[3], &[1]),
            );
            assert_eq!(indices, expected);
            for (value, index) in values.iter().zip(indices) {
                assert_eq!(value.to_bits(), data[index as usize].to_bits());
            }
        }
    }
}
