//! Indexing as Python writes `x[..., None, 1:5:2, ids]`, by a list of entries.

use std::ops::{Range, RangeFrom, RangeFull, RangeTo};

use fulgurite_runtime::{DType, Tensor};

use super::promotion::cast;
use super::{index_select, parts, read_as, select, unsqueeze};
use crate::prims;

/// One entry of an index. Entries are for the dimensions from the first on; dimensions that no entry is for are whole.
#[derive(Debug, Clone, Copy)]
pub enum Index {
    /// `...`: so many whole dimensions that the entries after it are for the last ones. It is there once at most.
    Rest,
    /// `None`: a new dimension of extent one.
    New,
    /// One position, which the result lacks the dimension of; a negative one counts from the end.
    At(i64),
    /// `start:end:step`. Bounds that are absent are those of the dimension, negative ones count from the end, and those
    /// beyond a dimension are its ends. A step is positive.
    Slice {
        /// The first position.
        start: Option<i64>,
        /// The position before which the slice ends.
        end: Option<i64>,
        /// The distance of its positions.
        step: usize,
    },
    /// Integers: positions, whose dimensions the result has in place of this one. Negative ones count from the end; one
    /// out of range is an error when the program runs. Like PyTorch's, the result has them where they are written,
    /// whatever single positions there are.
    Positions(Tensor),
}

impl Index {
    /// With every `step`-th position; other entries than slices stay as they are.
    pub fn step(self, step: usize) -> Index {
        match self {
            Index::Slice { start, end, .. } => Index::Slice { start, end, step },
            other => other,
        }
    }
}

impl From<i64> for Index {
    fn from(at: i64) -> Index {
        Index::At(at)
    }
}
impl From<Tensor> for Index {
    fn from(positions: Tensor) -> Index {
        Index::Positions(positions)
    }
}
impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::Slice { start: None, end: None, step: 1 }
    }
}
impl From<Range<i64>> for Index {
    fn from(range: Range<i64>) -> Index {
        Index::Slice { start: Some(range.start), end: Some(range.end), step: 1 }
    }
}
impl From<RangeFrom<i64>> for Index {
    fn from(range: RangeFrom<i64>) -> Index {
        Index::Slice { start: Some(range.start), end: None, step: 1 }
    }
}
impl From<RangeTo<i64>> for Index {
    fn from(range: RangeTo<i64>) -> Index {
        Index::Slice { start: None, end: Some(range.end), step: 1 }
    }
}

/// Tensors that are indexed.
pub trait Indexed {
    /// The elements that the entries name: `x.index([Index::Rest, Index::New, Index::from(1..5).step(2), ids.into()])`
    /// is Python's `x[..., None, 1:5:2, ids]`. More entries than dimensions, or a position out of range, are errors of
    /// the operator that an entry becomes (`select`, `slice`, `index_select`).
    #[track_caller]
    fn index(self, entries: impl AsRef<[Index]>) -> Tensor;
}

impl Indexed for Tensor {
    #[track_caller]
    fn index(self, entries: impl AsRef<[Index]>) -> Tensor {
        let entries = entries.as_ref();
        let taken = entries.iter().filter(|entry| !matches!(entry, Index::Rest | Index::New)).count();
        let rest = self.rank().saturating_sub(taken);
        let (mut x, mut dim) = (self, 0);
        for entry in entries {
            match *entry {
                Index::Rest => dim += rest,
                Index::New => {
                    x = unsqueeze(x, dim as i64);
                    dim += 1;
                }
                Index::At(at) => x = select(x, dim as i64, at),
                Index::Slice { start, end, step } => {
                    x = sliced(x, dim, (start, end), step);
                    dim += 1;
                }
                Index::Positions(positions) => {
                    x = at_positions(x, dim, positions);
                    dim += positions.rank();
                }
            }
        }
        x
    }
}

/// A slice of dimension `dim`; what is wrong with it is for the prim to say.
#[track_caller]
fn sliced(x: Tensor, dim: usize, (start, end): (Option<i64>, Option<i64>), step: usize) -> Tensor {
    let mut ends = x.shape().to_vec();
    let extent = ends.get(dim).copied().unwrap_or(0);
    let place = |at: i64| {
        let at = if at < 0 { at.saturating_add(extent as i64).max(0) } else { at };
        (at as usize).min(extent)
    };
    let (first, last) = (start.map_or(0, place), end.map_or(extent, place));
    if (first, last, step) == (0, extent, 1) && dim < ends.len() {
        return x;
    }
    ends.resize(ends.len().max(dim + 1), 0);
    let (mut starts, mut steps) = (vec![0; ends.len()], vec![1; ends.len()]);
    (starts[dim], ends[dim], steps[dim]) = (first, last.max(first), step);
    parts::slice(x, starts, ends, steps)
}

/// The slices at `positions` of dimension `dim`, which become the dimensions of `positions`.
#[track_caller]
fn at_positions(x: Tensor, dim: usize, positions: Tensor) -> Tensor {
    let shape = x.shape().to_vec();
    let extent = shape.get(dim).copied().unwrap_or(0) as i64;
    let flat = read_as(positions, &[positions.meta().len()]);
    let places = match flat.dtype() {
        dtype if dtype.is_unsigned() => flat,
        _ => {
            let flat = cast(flat, DType::I64);
            prims::select(prims::lt(flat, 0), prims::add(flat, extent), flat)
        }
    };
    let found = index_select(x, dim as i64, places);
    if dim >= shape.len() {
        return found;
    }
    read_as(found, &[&shape[..dim], &positions.shape(), &shape[dim + 1..]].concat())
}
