//! Parts of tensors and other layouts of their elements, each checked against the tensor, so that no caller has to
//! promise anything.

use crate::view::{TensorMut, TensorRef, is_contiguous};

/// The elements of `tensor` from `starts` on, `shape` many; `None` if they reach beyond it.
pub fn window<'a>(tensor: &'a mut TensorMut<'_>, starts: &[usize], shape: &'a [usize]) -> Option<TensorMut<'a>> {
    let rank = tensor.shape().len();
    if starts.len() != rank || shape.len() != rank {
        return None;
    }
    let mut inside = starts.iter().zip(shape).zip(tensor.shape());
    if !inside.all(|((start, extent), of)| start.checked_add(*extent).is_some_and(|end| end <= *of)) {
        return None;
    }
    let offset: isize = starts.iter().zip(tensor.strides()).map(|(start, stride)| *start as isize * stride).sum();
    let first = tensor.as_mut_ptr().wrapping_offset(offset * tensor.dtype().size() as isize);
    let strides = tensor.strides();
    // SAFETY: every element of the window is one of `tensor`'s, which is lent on for as long.
    Some(unsafe { tensor.part(shape, strides, first) })
}

/// The elements of a contiguous tensor in another contiguous layout of as many; `None` if either is anything else.
pub fn in_shape<'a>(tensor: &'a mut TensorMut<'_>, shape: &'a [usize], strides: &'a [isize]) -> Option<TensorMut<'a>> {
    let count = shape.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent))?;
    if !tensor.is_contiguous() || shape.len() != strides.len() {
        return None;
    }
    if count != tensor.len() || !is_contiguous(shape, strides) {
        return None;
    }
    let first = tensor.as_mut_ptr();
    // SAFETY: both layouts reach the `count` elements from the first one on, and the exclusive borrow is lent on.
    Some(unsafe { tensor.part(shape, strides, first) })
}

/// A layout that reaches nothing but elements of another, checked once for any number of tensors.
#[derive(Debug, Clone)]
pub struct LayoutInside {
    of: (Vec<usize>, Vec<isize>),
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
}

/// How many steps of which size a dimension has.
#[derive(Debug, Clone, Copy)]
struct Steps {
    count: i128,
    size: i128,
}

/// The dimensions that reach more than one element, with their strides made positive, and how far the lowest element is
/// below the first.
fn steps(shape: &[usize], strides: &[isize]) -> (Vec<Steps>, i128) {
    let several = shape.iter().zip(strides).filter(|(extent, stride)| **extent > 1 && **stride != 0);
    let signed: Vec<Steps> =
        several.map(|(extent, stride)| Steps { count: *extent as i128 - 1, size: *stride as i128 }).collect();
    let below = signed.iter().map(|steps| steps.count.saturating_mul(steps.size.min(0))).fold(0, i128::saturating_add);
    (signed.into_iter().map(|steps| Steps { size: steps.size.abs(), ..steps }).collect(), below)
}

impl LayoutInside {
    /// The layout of `shape` and `strides` that starts `offset` elements after the first of a tensor with the layout
    /// `of`. `None` if it reaches anything else than elements of that, or in a way that is not understood: in a tensor
    /// whose dimensions overlap.
    pub fn new(of: (&[usize], &[isize]), shape: &[usize], strides: &[isize], offset: isize) -> Option<LayoutInside> {
        if of.0.len() != of.1.len() || shape.len() != strides.len() {
            return None;
        }
        let found = LayoutInside {
            of: (of.0.to_vec(), of.1.to_vec()),
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
        };
        if shape.contains(&0) {
            return Some(found);
        }
        if of.0.contains(&0) {
            return None;
        }
        let (mut outer, lowest) = steps(of.0, of.1);
        outer.sort_by_key(|steps| std::cmp::Reverse(steps.size));
        // Dimensions that continue one another are one.
        let mut whole: Vec<Steps> = Vec::with_capacity(outer.len());
        for next in outer {
            match whole.last_mut() {
                Some(last) if last.size == next.size.saturating_mul(next.count + 1) => {
                    *last = Steps {
                        count: last.count.saturating_mul(next.count + 1).saturating_add(next.count),
                        size: next.size,
                    };
                }
                _ => whole.push(next),
            }
        }
        let (inner, below) = steps(shape, strides);
        // Every element reached is a sum of the start and of steps of the inner layout. Each of these is written as
        // steps of the outer one; if all of them together are no more than it has, each sum is one of its elements.
        let mut left: Vec<i128> = whole.iter().map(|steps| steps.count).collect();
        let mut take = |mut distance: i128, times: i128| {
            for (steps, left) in whole.iter().zip(&mut left) {
                *left = left.checked_sub((distance / steps.size).checked_mul(times)?)?;
                distance %= steps.size;
            }
            (distance == 0).then_some(())
        };
        let start = (offset as i128).checked_add(below)?.checked_sub(lowest)?;
        take(u64::try_from(start).ok()?.into(), 1)?;
        for steps in inner {
            take(steps.size, steps.count)?;
        }
        left.iter().all(|left| *left >= 0).then_some(found)
    }

    /// The elements of `tensor` in this layout; `None` if its own layout is not the one that was checked.
    pub fn of<'a>(&'a self, tensor: &TensorRef<'a>) -> Option<TensorRef<'a>> {
        if tensor.shape() != self.of.0 || tensor.strides() != self.of.1 {
            return None;
        }
        let first = tensor.as_ptr().wrapping_offset(self.offset * tensor.dtype().size() as isize);
        // SAFETY: `new` found that every element reached is one of `tensor`'s, which is borrowed for as long.
        Some(unsafe { tensor.part(&self.shape, &self.strides, first) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{for_each_offset, read_f64, write_f64};
    use crate::view::contiguous_strides;

    fn reached(shape: &[usize], strides: &[isize], offset: isize) -> Vec<isize> {
        let mut all = Vec::new();
        for_each_offset(shape, strides, |at| all.push(at + offset));
        all
    }

    #[test]
    fn windows_lie_inside() {
        let mut data = [0.0f32; 12];
        let (shape, strides) = ([3, 4], contiguous_strides(&[3, 4]));
        let mut tensor = TensorMut::from_slice(&mut data, &shape, &strides);
        write_f64(&mut window(&mut tensor, &[1, 2], &[2, 2]).unwrap(), &[1.0, 2.0, 3.0, 4.0]);
        assert!(window(&mut tensor, &[3, 4], &[0, 0]).is_some());
        for (starts, shape) in [([1, 2], [2, 3]), ([3, 0], [1, 1]), ([usize::MAX, 0], [2, 1])] {
            assert!(window(&mut tensor, &starts, &shape).is_none());
        }
        assert!(window(&mut tensor, &[1], &[1]).is_none());
        assert_eq!(data, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    }

    #[test]
    fn contiguous_tensors_have_other_shapes() {
        let mut data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let (shape, strides) = ([2, 3], [3, 1]);
        let mut tensor = TensorMut::from_slice(&mut data, &shape, &strides);
        assert_eq!(read_f64(&in_shape(&mut tensor, &[3, 2], &[2, 1]).unwrap().as_ref())[4], 5.0);
        for (shape, strides) in [(&[3, 2][..], &[1, 3][..]), (&[7], &[1]), (&[6], &[]), (&[usize::MAX, 2], &[2, 1])] {
            assert!(in_shape(&mut tensor, shape, strides).is_none());
        }
        let mut part = window(&mut tensor, &[0, 0], &[2, 2]).unwrap();
        assert!(in_shape(&mut part, &[4], &[1]).is_none());
    }

    #[test]
    fn views_are_understood() {
        let of = (&[3, 4][..], &[4, 1][..]);
        let gaps = (&[3, 4][..], &[20, 2][..]);
        let back = (&[3, 4][..], &[-4, 1][..]);
        for (of, shape, strides, offset) in [
            (of, &[4, 3][..], &[1, 4][..], 0),
            (of, &[12], &[1], 0),
            (of, &[2, 6], &[6, 1], 0),
            (of, &[5, 3, 4], &[0, 4, 1], 0),
            (of, &[3, 2], &[4, 2], 1),
            (of, &[3, 4], &[-4, -1], 11),
            (of, &[], &[], 11),
            (of, &[0, 9], &[100, 100], 1000),
            (gaps, &[4, 3], &[2, 20], 0),
            (gaps, &[3, 2], &[20, 6], 0),
            (gaps, &[3, 2, 2], &[20, 4, 2], 0),
            (back, &[3, 4], &[4, 1], -8),
        ] {
            assert!(LayoutInside::new(of, shape, strides, offset).is_some(), "{of:?} {shape:?} {strides:?} {offset}");
        }
        for (of, shape, strides, offset) in [
            (of, &[3, 4][..], &[4, 1][..], 1),
            (of, &[13], &[1], 0),
            (of, &[1], &[1], -1),
            (of, &[2], &[isize::MIN], 0),
            (of, &[usize::MAX, usize::MAX], &[isize::MAX, isize::MAX], isize::MAX),
            (gaps, &[7], &[1], 0),
            (gaps, &[3, 4], &[20, 2], 1),
            (gaps, &[12], &[2], 0),
            ((&[0], &[1]), &[1], &[1], 0),
        ] {
            assert!(LayoutInside::new(of, shape, strides, offset).is_none(), "{of:?} {shape:?} {strides:?} {offset}");
        }
    }

    #[test]
    fn what_is_accepted_is_inside() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut accepted = 0;
        for _ in 0..200_000 {
            let mut layout = |most: u64, far: u64| -> (Vec<usize>, Vec<isize>) {
                let rank = draw(3);
                (0..rank).map(|_| (1 + draw(most) as usize, draw(far) as isize - far as isize / 3)).unzip()
            };
            let (of, view) = (layout(5, 24), layout(4, 18));
            let offset = draw(30) as isize - 10;
            if LayoutInside::new((&of.0, &of.1), &view.0, &view.1, offset).is_some() {
                accepted += 1;
                let elements = reached(&of.0, &of.1, 0);
                let seen = reached(&view.0, &view.1, offset);
                assert!(seen.iter().all(|at| elements.contains(at)), "{of:?} {view:?} {offset}");
            }
        }
        assert!(accepted > 1000, "{accepted}");
    }
}
