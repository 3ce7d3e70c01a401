//! Sums of windows that overlap.

use crate::dtype::{DType, Element};
use crate::elementwise::convert;
use crate::extents;
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};
use crate::walk::Walk;

/// Numbers that windows are added up in.
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

/// A dimension of windows: their number and size, and by how many elements of the source and of the target one window
/// is behind another, and one element of a window behind another.
#[derive(Clone, Copy)]
struct Dimension {
    count: usize,
    size: usize,
    between_windows: [isize; 2],
    between_elements: [isize; 2],
}

/// `target[..., l]` is the sum of all `source[..., o, k]` with `o * steps + k * dilations = l`, in the order of k; 0 if
/// there are none.
///
/// `source` has the shape `[..., O1, ..., On, K1, ..., Kn]`, `target` `[..., L1, ..., Ln]` with the same leading
/// extents and the same element type. Steps and dilations, one for each of the n dimensions, are positive. f16 and bf16
/// are summed in f32, integers wrap. Panics if anything else is the case, if windows reach beyond the target, or if
/// both share memory.
pub fn sum_of_windows(source: TensorRef<'_>, steps: &[usize], dilations: &[usize], mut target: TensorMut<'_>) {
    let rank = steps.len();
    assert!(
        dilations.len() == rank && target.shape().len() >= rank,
        "sum_of_windows: steps are {steps:?}, dilations {dilations:?}, the target has shape {:?}",
        target.shape()
    );
    let leading = target.shape().len() - rank;
    extents::rank("sum_of_windows", "source", source.shape(), leading + 2 * rank);
    let (windows, sizes) = source.shape()[leading..].split_at(rank);
    extents::shape("sum_of_windows", "source", source.shape(), &[&target.shape()[..leading], windows, sizes].concat());
    extents::dtype("sum_of_windows", "source", source.dtype(), target.dtype());
    extents::apart("sum_of_windows", "source", &source, &target);
    for (i, extent) in target.shape()[leading..].iter().enumerate() {
        let inside = steps[i] > 0
            && dilations[i] > 0
            && (windows[i] == 0
                || sizes[i] == 0
                || (windows[i] - 1)
                    .saturating_mul(steps[i])
                    .saturating_add((sizes[i] - 1).saturating_mul(dilations[i]))
                    < *extent);
        assert!(inside, "sum_of_windows: windows of shape {:?} reach beyond {:?}", source.shape(), target.shape());
    }
    match target.dtype() {
        DType::F64 => in_type::<f64>(source, steps, dilations, &mut target),
        dtype if dtype.is_floating() => in_type::<f32>(source, steps, dilations, &mut target),
        _ => in_type::<i64>(source, steps, dilations, &mut target),
    }
}

/// Adds in `T`, through copies in `T` if the tensors hold something else.
fn in_type<T: Sum>(source: TensorRef<'_>, steps: &[usize], dilations: &[usize], target: &mut TensorMut<'_>) {
    if target.dtype() == T::DTYPE {
        return add::<T>(source, steps, dilations, target);
    }
    let (mut data, strides) = (scratch::zeroed::<T>(source.len()), contiguous_strides(source.shape()));
    convert(source, TensorMut::from_slice(&mut data, source.shape(), &strides));
    let (mut sums, sum_strides) = (scratch::zeroed::<T>(target.len()), contiguous_strides(target.shape()));
    let shape = target.shape();
    let source = TensorRef::from_slice(&data, source.shape(), &strides);
    add::<T>(source, steps, dilations, &mut TensorMut::from_slice(&mut sums, shape, &sum_strides));
    convert(TensorRef::from_slice(&sums, shape, &sum_strides), target.reborrow());
}

/// Each task has rows of the first dimension with windows, which no other task writes. (With fewer than two dimensions
/// that have windows, it has all elements of a leading position.)
fn add<T: Sum>(source: TensorRef<'_>, steps: &[usize], dilations: &[usize], target: &mut TensorMut<'_>) {
    let rank = steps.len();
    let shape = target.shape();
    let leading = shape.len() - rank;
    let (from, to) = (source.strides(), target.strides());
    let (counts, sizes) = source.shape()[leading..].split_at(rank);
    let outer = Walk::new((0..leading).map(|i| (shape[i], [from[i], to[i]])));
    let mut inner: Vec<Dimension> = (0..rank)
        .map(|i| {
            let along = to[leading + i];
            // A factor beyond the target is that of a single window or element.
            let times = |factor: usize| along * factor.min(shape[leading + i].max(1)) as isize;
            Dimension {
                count: counts[i],
                size: sizes[i],
                between_windows: [from[leading + i], times(steps[i])],
                between_elements: [from[leading + rank + i], times(dilations[i])],
            }
        })
        .collect();
    let rows = (rank > 1).then(|| inner.remove(0));
    let first = leading + usize::from(rows.is_some());
    let row = Walk::new((first..shape.len()).map(|i| (shape[i], [0, to[i]])));
    let extent = if rows.is_some() { shape[leading] } else { 1 };
    let elements = source.len().saturating_add(target.len());
    let (start, sums) = (Shared::new(source.as_ptr().cast_mut()), Shared::new(target.as_mut_ptr()));
    for_ranges(outer.len() * extent, elements, |range| {
        for unit in range {
            let (position, at) = (unit / extent, unit % extent);
            let [from_base, to_base] = outer.offsets(position);
            // SAFETY: offsets of elements of the source and of the target, by strides of their own; the target's rows
            // are written by one task each.
            unsafe {
                let source = start.get().cast::<T>().cast_const().offset(from_base);
                let target = sums.get().cast::<T>().offset(to_base);
                let Some(rows) = rows else {
                    clear(&row, target);
                    add_windows(&inner, source, target);
                    continue;
                };
                let target = target.offset(at as isize * to[leading]);
                clear(&row, target);
                for k in 0..rows.size {
                    let Some(before) = k.checked_mul(dilations[0]).and_then(|shift| at.checked_sub(shift)) else {
                        break;
                    };
                    let (o, rest) = (before / steps[0], before % steps[0]);
                    if rest == 0 && o < rows.count {
                        let offset = o as isize * rows.between_windows[0] + k as isize * rows.between_elements[0];
                        add_windows(&inner, source.offset(offset), target);
                    }
                }
            }
        }
    });
}

/// # Safety
/// The walk's second strides are those of elements that may be written from `target` on.
unsafe fn clear<T: Sum>(row: &Walk<2>, target: *mut T) {
    let mut outer = row.clone();
    let (length, [_, step]) = outer.pop();
    for position in 0..outer.len() {
        let [_, offset] = outer.offsets(position);
        for i in 0..length as isize {
            // SAFETY: promised by the caller.
            unsafe { target.offset(offset + i * step).write(T::zeroed()) };
        }
    }
}

/// Adds all windows of these dimensions, element by element of a window.
///
/// # Safety
/// The dimensions are those of elements that may be read from `source` and written from `target` on.
unsafe fn add_windows<T: Sum>(dimensions: &[Dimension], source: *const T, target: *mut T) {
    let Some((first, rest)) = dimensions.split_first() else {
        // SAFETY: promised by the caller.
        unsafe { target.write(target.read().plus(source.read())) };
        return;
    };
    let ([from_window, to_window], [from_element, to_element]) = (first.between_windows, first.between_elements);
    for k in 0..first.size as isize {
        // SAFETY: promised by the caller, as below; the slices have the elements of neighbours, and their memory is
        // apart.
        unsafe {
            let (source, target) = (source.offset(k * from_element), target.offset(k * to_element));
            if rest.is_empty() && from_window == 1 && to_window == 1 {
                let source = std::slice::from_raw_parts(source, first.count);
                let target = std::slice::from_raw_parts_mut(target, first.count);
                target.iter_mut().zip(source).for_each(|(sum, term)| *sum = sum.plus(*term));
                continue;
            }
            for o in 0..first.count as isize {
                add_windows(rest, source.offset(o * from_window), target.offset(o * to_window));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_windows_of_a_line() {
        // Two windows of three elements, one step apart.
        let windows = [1f32, 2.0, 3.0, 10.0, 20.0, 30.0];
        let mut sums = [f32::NAN; 5];
        sum_of_windows(
            TensorRef::from_slice(&windows, &[2, 3], &[3, 1]),
            &[1],
            &[1],
            TensorMut::from_slice(&mut sums, &[5], &[1]),
        );
        assert_eq!(sums, [1.0, 12.0, 23.0, 30.0, 0.0]);
    }

    #[test]
    fn windows_of_a_plane_with_gaps() {
        // Windows of 1 x 2 elements, the two elements two apart, at two rows and two columns.
        let windows = [1i32, 2, 3, 4, 5, 6, 7, 8];
        let mut sums = [-1i32; 12];
        sum_of_windows(
            TensorRef::from_slice(&windows, &[2, 2, 1, 2], &[4, 2, 2, 1]),
            &[2, 1],
            &[5, 2],
            TensorMut::from_slice(&mut sums, &[3, 4], &[4, 1]),
        );
        assert_eq!(sums, [1, 3, 2, 4, 0, 0, 0, 0, 5, 7, 6, 8]);
    }

    #[test]
    fn narrow_elements_are_added_in_a_wider_type() {
        // 600 windows of as many elements: the middle gets one term of each.
        let windows = vec![half::bf16::ONE; 600 * 600];
        let mut sums = vec![half::bf16::ZERO; 1199];
        sum_of_windows(
            TensorRef::from_slice(&windows, &[600, 600], &[600, 1]),
            &[1],
            &[1],
            TensorMut::from_slice(&mut sums, &[1199], &[1]),
        );
        assert_eq!([sums[0], sums[599], sums[1198]].map(f32::from), [1.0, 600.0, 1.0]);
    }
}
