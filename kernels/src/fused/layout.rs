//! The order of iteration: few dimensions, each operand with its strides.

use smallvec::SmallVec;

use super::program::OutputLayout;
use super::values::Space;

type Extents = SmallVec<[usize; 6]>;
type Strides = SmallVec<[isize; 6]>;

/// The strides of one operand, in elements.
#[derive(Debug, Clone, Default)]
pub struct OperandLayout {
    /// From row to row, for each outer dimension.
    pub outer: Strides,
    /// From element to element of a row.
    pub inner: isize,
}

/// Rows (an odometer of outer dimensions) of `width` elements.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Extents of the outer dimensions.
    pub outer: Extents,
    /// Elements of a row.
    pub width: usize,
    /// Inputs, then outputs.
    pub operands: Vec<OperandLayout>,
    /// For each output, whether it has one value a row.
    pub per_row: Vec<bool>,
}

impl Layout {
    /// Drops extents of one and merges dimensions that every operand walks through evenly. Without a reduction the
    /// dimensions are first ordered by the strides of the first output, so that writes are sequential; with one, the
    /// last dimension stays by itself.
    pub fn new(shape: &[usize], inputs: &[&[isize]], outputs: &[OutputLayout<'_>], reduces: bool) -> Layout {
        let stride = |operand: usize, axis: usize| -> isize {
            match operand.checked_sub(inputs.len()) {
                None => inputs[operand][axis],
                Some(output) if outputs[output].shape[axis] == 1 && shape[axis] != 1 => 0,
                Some(output) => outputs[output].strides[axis],
            }
        };
        let count = inputs.len() + outputs.len();
        let kept_apart = usize::from(reduces && !shape.is_empty());
        let mut axes: SmallVec<[usize; 6]> = (0..shape.len() - kept_apart).filter(|&axis| shape[axis] != 1).collect();
        if !reduces && !outputs.is_empty() {
            axes.sort_by_key(|&axis| std::cmp::Reverse(stride(inputs.len(), axis).unsigned_abs()));
        }

        let mut extents = Extents::new();
        let mut strides: Vec<Strides> = vec![Strides::new(); count];
        for &axis in &axes {
            let last = extents.len().wrapping_sub(1);
            let mergeable = !extents.is_empty()
                && (0..count).all(|operand| strides[operand][last] == stride(operand, axis) * shape[axis] as isize);
            if mergeable {
                extents[last] *= shape[axis];
            } else {
                extents.push(shape[axis]);
            }
            for (operand, strides) in strides.iter_mut().enumerate() {
                if mergeable {
                    strides[last] = stride(operand, axis);
                } else {
                    strides.push(stride(operand, axis));
                }
            }
        }

        let (width, inner): (usize, Vec<isize>) = if kept_apart == 1 {
            let axis = shape.len() - 1;
            (shape[axis], (0..count).map(|operand| stride(operand, axis)).collect())
        } else if reduces || extents.is_empty() {
            (1, vec![0; count])
        } else {
            (extents.pop().unwrap_or(1), strides.iter_mut().map(|strides| strides.pop().unwrap_or(0)).collect())
        };
        let operands = strides.into_iter().zip(inner).map(|(outer, inner)| OperandLayout { outer, inner }).collect();
        let per_row = outputs
            .iter()
            .map(|output| kept_apart == 1 && output.shape.last() == Some(&1) && shape.last() != Some(&1))
            .collect();
        Layout { outer: extents, width, operands, per_row }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.outer.iter().product()
    }

    /// Where an operand varies.
    pub fn space(&self, operand: usize) -> Space {
        let layout = &self.operands[operand];
        if layout.inner != 0 || self.width <= 1 {
            Space::Full
        } else if layout.outer.iter().all(|&stride| stride == 0) {
            Space::Uniform
        } else {
            Space::Row
        }
    }

    /// Whether `rows` whole rows of the operand are adjacent, without gaps.
    pub fn is_block(&self, operand: usize, rows: usize) -> bool {
        let layout = &self.operands[operand];
        (layout.inner == 1 || self.width == 1)
            && (rows == 1 || (layout.outer.len() == 1 && layout.outer[0] == self.width as isize))
    }

    /// Offset of the first element of a row.
    pub fn row_offset(&self, operand: usize, row: usize) -> isize {
        let strides = &self.operands[operand].outer;
        match strides.len() {
            0 => 0,
            1 => row as isize * strides[0],
            _ => {
                let mut rest = row;
                let mut offset = 0;
                for (&extent, &stride) in self.outer.iter().zip(strides).rev() {
                    offset += (rest % extent) as isize * stride;
                    rest /= extent;
                }
                offset
            }
        }
    }
}
