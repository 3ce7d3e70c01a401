//! Scaled dot-product attention in tiles: scores of some queries and some keys exist at a time, and none are kept.
//! Memory grows with the lengths, not with their product (Dao et al., "FlashAttention", 2022).
//!
//! All is computed in f32. How the work is cut depends on shapes alone, and each part of a result is summed by one
//! task, in the order of keys or of queries: so results have the same bits for any number of threads.

mod backward;
mod forward;
mod operands;
mod rows;
#[cfg(test)]
mod tests;

pub use backward::attention_backward;
pub use forward::attention_forward;

use crate::dtype::DType;
use crate::extents;
use crate::gemm::{self, Parallelism};
use crate::view::TensorRef;
use operands::Matrix;

/// Queries of a tile.
const QUERIES: usize = 128;
/// Keys of a tile.
const KEYS: usize = 128;

/// What scores are computed from, and who sees whom.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    /// `[batch, heads, queries, width]`.
    pub query: TensorRef<'a>,
    /// `[batch, groups, keys, width]`; `groups` divides `heads`, whose first `heads / groups` read the first group.
    pub key: TensorRef<'a>,
    /// Booleans `[batch, heads, queries, keys]` that say who is seen, where every extent may be 1 instead.
    pub mask: Option<TensorRef<'a>>,
    /// Whether query i sees the keys 0 to i alone.
    pub is_causal: bool,
    /// The factor of the products of queries and keys.
    pub scale: f64,
}

/// Extents that were checked.
#[derive(Clone, Copy)]
struct Extents {
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

impl Extents {
    /// Panics if the operands do not fit each other.
    fn of(function: &str, scores: &Scores<'_>, value: &TensorRef<'_>) -> Extents {
        let Scores { query, key, mask, .. } = scores;
        for (name, operand) in [("query", query), ("key", key), ("value", value)] {
            extents::rank(function, name, operand.shape(), 4);
        }
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let [groups, keys, value_width] = [key.shape()[1], key.shape()[2], value.shape()[3]];
        extents::shape(function, "key", key.shape(), &[batch, groups, keys, width]);
        extents::shape(function, "value", value.shape(), &[batch, groups, keys, value_width]);
        assert!(groups > 0 && heads.is_multiple_of(groups), "{function}: {heads} heads for {groups} of keys");
        if let Some(mask) = mask {
            extents::dtype(function, "mask", mask.dtype(), DType::Bool);
            extents::rank(function, "mask", mask.shape(), 4);
            let full = [batch, heads, queries, keys];
            let fits = mask.shape().iter().zip(full).all(|(own, full)| *own == 1 || *own == full);
            assert!(fits, "{function}: mask has shape {:?}, expected {full:?}, or 1 in their places", mask.shape());
        }
        Extents { batch, heads, groups, queries, keys, width, value_width }
    }

    /// Heads that read the same keys.
    fn times(&self) -> usize {
        self.heads / self.groups
    }

    fn nothing(&self) -> bool {
        [self.batch, self.heads, self.queries, self.value_width].contains(&0)
    }
}

/// A run of the extent `0..extent` that begins at `from`.
fn tile(from: usize, length: usize, extent: usize) -> std::ops::Range<usize> {
    from..extent.min(from + length)
}

/// `target = factor · left · right`, and what the target was before if `read` is set. `left` is `rows` x `inner`,
/// `right` `inner` x `columns`.
///
/// # Safety
/// All elements of the matrices can be read, those of the target written by nobody else.
unsafe fn multiply(
    [rows, inner, columns]: [usize; 3],
    target: Matrix,
    read: bool,
    left: Matrix,
    right: Matrix,
    factor: f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            target.first,
            target.columns,
            target.rows,
            read,
            left.first.cast_const(),
            left.columns,
            left.rows,
            right.first.cast_const(),
            right.columns,
            right.rows,
            1.0f32,
            factor,
            Parallelism::None,
        );
    }
}

/// Scores of the queries of one tile with the keys of another: `scores[i * keys.len() + j]`, -infinity where key j is
/// not seen.
///
/// # Safety
/// The matrices are those of the head, and can be read.
unsafe fn score(
    scores: &mut [f32],
    (queries, keys): (&std::ops::Range<usize>, &std::ops::Range<usize>),
    (query, key): (Matrix, Matrix),
    width: usize,
    scale: f32,
    hidden: &Hidden<'_>,
) {
    let extents = [queries.len(), width, keys.len()];
    let target = Matrix::of_rows(scores.as_mut_ptr(), keys.len());
    // SAFETY: the slice holds a score for each pair; the operands are the caller's.
    unsafe { multiply(extents, target, false, query.below(queries.start), key.below(keys.start).turned(), scale) };
    hidden.hide(scores, queries, keys);
}

/// Who does not see whom in one head.
struct Hidden<'a> {
    is_causal: bool,
    mask: Option<HeadMask<'a>>,
}

/// The booleans of one head.
struct HeadMask<'a> {
    first: *const u8,
    /// Strides of queries and keys.
    strides: [isize; 2],
    memory: std::marker::PhantomData<&'a u8>,
}

impl<'a> Hidden<'a> {
    fn of(scores: &Scores<'a>, batch: usize, head: usize) -> Hidden<'a> {
        let mask = scores.mask.map(|mask| {
            let stride = |dim: usize| if mask.shape()[dim] == 1 { 0 } else { mask.strides()[dim] };
            let offset = batch as isize * stride(0) + head as isize * stride(1);
            HeadMask {
                first: mask.as_ptr().wrapping_offset(offset),
                strides: [stride(2), stride(3)],
                memory: std::marker::PhantomData,
            }
        });
        Hidden { is_causal: scores.is_causal, mask }
    }

    /// The keys behind the last one that some of the queries see.
    fn keys_end(&self, queries: &std::ops::Range<usize>, keys: usize) -> usize {
        if self.is_causal { keys.min(queries.end) } else { keys }
    }

    /// Whether a row of scores may be -infinity everywhere and still be meant.
    fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    fn hide(&self, scores: &mut [f32], queries: &std::ops::Range<usize>, keys: &std::ops::Range<usize>) {
        if self.is_causal && keys.end > queries.start + 1 {
            for (i, row) in queries.clone().zip(scores.chunks_exact_mut(keys.len())) {
                let seen = (i + 1).saturating_sub(keys.start).min(keys.len());
                row[seen..].fill(f32::NEG_INFINITY);
            }
        }
        if let Some(mask) = &self.mask {
            for (i, row) in queries.clone().zip(scores.chunks_exact_mut(keys.len())) {
                for (j, score) in keys.clone().zip(row) {
                    let at = i as isize * mask.strides[0] + j as isize * mask.strides[1];
                    // SAFETY: the mask has an element for each pair, or one for all of a dimension.
                    if unsafe { mask.first.wrapping_offset(at).read() } == 0 {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
