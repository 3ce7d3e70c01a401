//! Walking over some dimensions of several operands at once.

use smallvec::SmallVec;

/// A set of dimensions, each with an extent and a stride for each of `N` operands.
#[derive(Debug, Clone)]
pub(crate) struct Walk<const N: usize> {
    extents: SmallVec<[usize; 6]>,
    strides: SmallVec<[[isize; N]; 6]>,
}

impl<const N: usize> Walk<N> {
    /// Dimensions in order of iteration, the last fastest. Extents of one are dropped, and neighbours that all operands
    /// walk through evenly are merged.
    pub(crate) fn new(dimensions: impl IntoIterator<Item = (usize, [isize; N])>) -> Walk<N> {
        let mut walk = Walk { extents: SmallVec::new(), strides: SmallVec::new() };
        for (extent, strides) in dimensions {
            if extent == 1 {
                continue;
            }
            if let (Some(last), Some(last_strides)) = (walk.extents.last_mut(), walk.strides.last_mut())
                && (0..N).all(|operand| last_strides[operand] == strides[operand] * extent as isize)
            {
                *last *= extent;
                *last_strides = strides;
            } else {
                walk.extents.push(extent);
                walk.strides.push(strides);
            }
        }
        walk
    }

    /// Number of positions.
    pub(crate) fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// The fastest dimension, taken out: extent one if there is none.
    pub(crate) fn pop(&mut self) -> (usize, [isize; N]) {
        match (self.extents.pop(), self.strides.pop()) {
            (Some(extent), Some(strides)) => (extent, strides),
            _ => (1, [0; N]),
        }
    }

    /// Offsets of the operands at a position.
    pub(crate) fn offsets(&self, position: usize) -> [isize; N] {
        let mut offsets = [0; N];
        let mut rest = position;
        for (&extent, strides) in self.extents.iter().zip(&self.strides).rev() {
            let index = if self.extents.len() == 1 { rest } else { rest % extent };
            rest /= extent;
            for (offset, stride) in offsets.iter_mut().zip(strides) {
                *offset += index as isize * stride;
            }
        }
        offsets
    }
}

/// The lines of tensors of one shape along `axis`: the other dimensions as a walk.
pub(crate) fn lines<const N: usize>(shape: &[usize], strides: [&[isize]; N], axis: usize) -> Walk<N> {
    Walk::new(
        (0..shape.len())
            .filter(|&other| other != axis)
            .map(|other| (shape[other], strides.map(|strides| strides[other]))),
    )
}
