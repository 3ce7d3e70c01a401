//! The same values in other layouts.

use std::sync::Arc;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::buffer::POISON;
use fulgurite_kernels::view::contiguous_strides;

use crate::array::{Array, Strides};
use crate::problem::Check;

/// The arrangement of an array's elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// Row-major, from the start of the buffer.
    Dense,
    /// Row-major, behind other elements: an address that no vector load is aligned to.
    Offset,
    /// Dimensions stored in the reverse order.
    Permuted,
    /// Every second element.
    Stepped,
    /// Rows of a wider matrix: the last dimension without gaps, gaps between the rows.
    Window,
    /// The last dimension stored backwards: a negative stride.
    Reversed,
    /// The first element along the last dimension, repeated with stride 0.
    Expanded,
}

impl Arrangement {
    pub(super) const ALL: [Arrangement; 7] = [
        Arrangement::Dense,
        Arrangement::Offset,
        Arrangement::Permuted,
        Arrangement::Stepped,
        Arrangement::Window,
        Arrangement::Reversed,
        Arrangement::Expanded,
    ];

    /// Strides, and how many elements precede the one with the lowest address.
    fn strides(self, shape: &[usize]) -> (Vec<isize>, usize) {
        let dense = contiguous_strides(shape);
        match self {
            Arrangement::Dense | Arrangement::Expanded => (dense, 0),
            Arrangement::Offset => (dense, 3),
            Arrangement::Permuted => {
                let mut step = 1;
                let strides = shape.iter().map(|extent| {
                    let stride = step;
                    step *= *extent as isize;
                    stride
                });
                (strides.collect(), 0)
            }
            Arrangement::Stepped => (dense.iter().map(|stride| stride * 2).collect(), 1),
            Arrangement::Window => {
                let mut step = 1;
                let mut strides = vec![0; shape.len()];
                for (axis, (stride, extent)) in strides.iter_mut().zip(shape).enumerate().rev() {
                    *stride = step;
                    step *= *extent as isize;
                    if axis + 1 == shape.len() {
                        step += 3;
                    }
                }
                (strides, 2)
            }
            Arrangement::Reversed => {
                let mut strides = dense;
                if let Some(last) = strides.last_mut() {
                    *last = -*last;
                }
                (strides, 0)
            }
        }
    }
}

/// The values of `array` in an arrangement; gaps between the elements are poison. [`Arrangement::Expanded`] has
/// other values.
pub(super) fn arrange(array: &Array, arrangement: Arrangement) -> Check<Array> {
    let shape = array.shape();
    if array.meta().is_empty() || arrangement == Arrangement::Dense {
        return Ok(array.to_contiguous()?);
    }
    if arrangement == Arrangement::Expanded {
        let Some(last) = shape.len().checked_sub(1) else { return Ok(array.to_contiguous()?) };
        return Ok(array.slice(last, 0, 1, 1)?.to_contiguous()?.expand(shape)?);
    }
    let (strides, front) = arrangement.strides(shape);
    let reach = |wanted: fn(isize) -> bool| -> isize {
        let steps = shape.iter().zip(&strides).filter(|(_, stride)| wanted(**stride));
        steps.map(|(extent, stride)| (*extent as isize - 1) * stride).sum()
    };
    let (below, above) = (reach(|stride| stride < 0), reach(|stride| stride > 0));
    let offset = front + below.unsigned_abs();
    let size = array.dtype().size();
    let mut buffer = Buffer::zeroed((offset + above.unsigned_abs() + 1 + 3) * size).map_err(crate::Error::from)?;
    buffer.as_bytes_mut().fill(POISON);
    let bytes = array.to_bytes()?;
    let mut elements = bytes.chunks_exact(size);
    fulgurite_kernels::access::for_each_offset(shape, &strides, |at| {
        let start = (offset as isize + at) as usize * size;
        if let Some(element) = elements.next() {
            buffer.as_bytes_mut()[start..start + size].copy_from_slice(element);
        }
    });
    Ok(Array::from_shared(Arc::new(buffer), array.meta().clone(), Strides::from_slice(&strides), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrangement_but_the_expanded_one_keeps_the_values() {
        for shape in [&[][..], &[5], &[2, 3], &[2, 3, 4], &[0, 2], &[4, 1]] {
            let len: usize = shape.iter().product();
            let values: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let array = Array::new(shape, &values).unwrap();
            for arrangement in Arrangement::ALL {
                let arranged = arrange(&array, arrangement).unwrap();
                assert_eq!(arranged.shape(), shape);
                if arrangement != Arrangement::Expanded {
                    assert_eq!(arranged.to_vec::<f32>().unwrap(), values, "{arrangement:?} of {shape:?}");
                }
            }
        }
        let matrix = Array::new([2, 3], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(arrange(&matrix, Arrangement::Reversed).unwrap().strides(), [3, -1]);
        assert_eq!(arrange(&matrix, Arrangement::Window).unwrap().strides(), [6, 1]);
        assert_eq!(arrange(&matrix, Arrangement::Expanded).unwrap().to_vec::<f32>().unwrap(), [0., 0., 0., 3., 3., 3.]);
    }
}
