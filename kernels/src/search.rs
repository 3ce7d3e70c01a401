//! Places of numbers in sorted lines, by binary search.

use crate::dtype::{DType, Element};
use crate::elementwise::convert;
use crate::extents;
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};
use crate::walk::Walk;

/// Numbers that are searched for.
trait Ordered: Element {
    fn is_at_least(self, other: Self) -> bool;
    fn is_above(self, other: Self) -> bool;
}
macro_rules! ordered {
    ($($type:ty),*) => {$(
        impl Ordered for $type {
            fn is_at_least(self, other: $type) -> bool {
                self >= other
            }
            fn is_above(self, other: $type) -> bool {
                self > other
            }
        }
    )*};
}
ordered!(f32, f64, i64);

/// The number of elements of an ascending line of `sorted` that are below each of `values`; with `right`, that are not
/// above it. All elements of the line are below NaN.
///
/// `sorted` has one dimension, or all but the last extent of `values`, whose lines are then searched for in its own;
/// `target` (i64 or another type) has the shape of `values`. Panics if anything else is the case, or if an operand
/// shares memory with `target`.
pub fn searchsorted(sorted: TensorRef<'_>, values: TensorRef<'_>, right: bool, target: TensorMut<'_>) {
    let (of, wanted) = (sorted.shape(), values.shape());
    let fits = of.len() == 1
        || (of.len() == wanted.len()
            && of.split_last().map(|(_, of)| of) == wanted.split_last().map(|(_, wanted)| wanted));
    assert!(
        fits,
        "searchsorted: sorted has shape {of:?}, values {wanted:?}, expected one dimension or equal ones but the last"
    );
    extents::shape("searchsorted", "target", target.shape(), wanted);
    extents::dtype("searchsorted", "values", values.dtype(), sorted.dtype());
    extents::dtype("searchsorted", "target", target.dtype(), DType::I64);
    extents::apart("searchsorted", "sorted", &sorted, &target);
    extents::apart("searchsorted", "values", &values, &target);
    match sorted.dtype() {
        DType::F64 => search::<f64>(sorted, values, right, target),
        dtype if dtype.is_floating() => search::<f32>(sorted, values, right, target),
        _ => search::<i64>(sorted, values, right, target),
    }
}

/// A row-major copy as `T`.
fn copy<T: Element>(tensor: TensorRef<'_>) -> Vec<T> {
    let mut data = scratch::zeroed::<T>(tensor.len());
    let strides = contiguous_strides(tensor.shape());
    convert(tensor, TensorMut::from_slice(&mut data, tensor.shape(), &strides));
    data
}

fn search<T: Ordered>(sorted: TensorRef<'_>, values: TensorRef<'_>, right: bool, mut target: TensorMut<'_>) {
    let length = sorted.shape().last().copied().unwrap_or(0);
    let count = match sorted.shape().len() {
        1 => values.len(),
        _ => values.shape().last().copied().unwrap_or(1),
    };
    let (sorted, wanted) = (copy::<T>(sorted), copy::<T>(values));
    let walk = Walk::new(target.shape().iter().copied().zip(target.strides().iter().map(|stride| [*stride])));
    let address = Shared::new(target.as_mut_ptr());
    // A search reads a number of elements, each of which is work.
    let work = wanted.len().saturating_mul(length.max(2).ilog2() as usize);
    for_ranges(wanted.len(), work, |range| {
        for at in range {
            let (line, value) = (&sorted[at / count * length..][..length], wanted[at]);
            // A comparison with NaN does not hold, so that the search goes on behind it.
            let ends = |element: T| if right { element.is_above(value) } else { element.is_at_least(value) };
            let (mut place, mut end) = (0, length);
            while place < end {
                let middle = place + (end - place) / 2;
                if ends(line[middle]) {
                    end = middle;
                } else {
                    place = middle + 1;
                }
            }
            let [offset] = walk.offsets(at);
            // SAFETY: an element of the target, which this search alone writes.
            unsafe { address.get().cast::<i64>().offset(offset).write(place as i64) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_before_and_behind_equal_elements() {
        let sorted = [1f32, 3.0, 3.0, 5.0, 0.0, 0.0, 2.0, f32::NAN];
        // As in PyTorch, NaN is above nothing.
        let values = [3f32, 6.0, f32::NAN, 0.0, 2.0, f32::NAN];
        for (right, expected) in [(false, [1, 4, 4, 0, 2, 4]), (true, [3, 4, 4, 2, 4, 4])] {
            let mut out = [-1i64; 6];
            let lines = TensorRef::from_slice(&sorted, &[2, 4], &[4, 1]);
            let wanted = TensorRef::from_slice(&values, &[2, 3], &[3, 1]);
            searchsorted(lines, wanted, right, TensorMut::from_slice(&mut out, &[2, 3], &[3, 1]));
            assert_eq!(out, expected);
        }
    }
}
