//! Scaled dot-product attention in tiles: scores of some queries and some keys exist at a time, and none are kept.
//! Memory grows with the lengths, not with their product (Dao et al., "FlashAttention", 2022).
//!
//! All is computed in f32. How the work is cut depends on shapes, windows and lengths alone, and each part of a result
//! is summed by one task, in the order of keys or of queries: so results have the same bits for any number of threads.
//! Tiles of keys that no query of a tile sees are passed by. Masks of 16-bit numbers are read as a copy in f32.

mod backward;
mod dropped;
mod forward;
mod operands;
mod rows;
mod seen;
#[cfg(test)]
mod tests;

pub use backward::attention_backward;
pub use dropped::Dropped;
pub use forward::attention_forward;

use std::ops::Range;

use crate::dtype::DType;
use crate::extents;
use crate::gemm::{self, Parallelism};
use crate::vector;
use crate::view::TensorRef;
use operands::Matrix;
use seen::{Added, Seen};

/// Queries of a tile.
const QUERIES: usize = 128;
/// Keys of a tile.
const KEYS: usize = 128;

/// What scores and weights are computed from, and who sees whom.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    /// `[batch, heads, queries, width]`.
    pub query: TensorRef<'a>,
    /// `[batch, groups, keys, width]`; `groups` divides `heads`, whose first `heads / groups` read the first group.
    pub key: TensorRef<'a>,
    /// Booleans `[batch, heads, queries, keys]` that say who is seen, or numbers of f32, bf16 or f16 that are added to
    /// scores; every extent may be 1 instead. Weights stay the same if a query has the same number taken from all of
    /// its own: the largest of those that it sees is, so that numbers far below 0 leave the digits of scores.
    pub mask: Option<TensorRef<'a>>,
    /// How many keys each of the batch sees, integers `[batch]`.
    pub lengths: Option<TensorRef<'a>>,
    /// Whether query i sees the keys 0 to i alone.
    pub is_causal: bool,
    /// Query i sees the keys behind `i - window` alone.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`, before numbers are added.
    pub cap: Option<f64>,
    /// Weights that are dropped.
    pub dropped: Option<Dropped>,
    /// The factor of the products of queries and keys.
    pub scale: f64,
}

impl<'a> Scores<'a> {
    /// Everybody sees everybody, and scores are products times `scale`.
    pub fn new(query: TensorRef<'a>, key: TensorRef<'a>, scale: f64) -> Scores<'a> {
        let (mask, lengths, window, cap, dropped) = (None, None, None, None, None);
        Scores { query, key, mask, lengths, is_causal: false, window, cap, dropped, scale }
    }
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
        let Scores { query, key, mask, lengths, .. } = scores;
        for (name, operand) in [("query", query), ("key", key), ("value", value)] {
            extents::rank(function, name, operand.shape(), 4);
        }
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let [groups, keys, value_width] = [key.shape()[1], key.shape()[2], value.shape()[3]];
        extents::shape(function, "key", key.shape(), &[batch, groups, keys, width]);
        extents::shape(function, "value", value.shape(), &[batch, groups, keys, value_width]);
        assert!(groups > 0 && heads.is_multiple_of(groups), "{function}: {heads} heads for {groups} of keys");
        if let Some(mask) = mask {
            let known = [DType::Bool, DType::F32, DType::BF16, DType::F16].contains(&mask.dtype());
            assert!(known, "{function}: mask is {}, expected bool, f32, bf16 or f16", mask.dtype());
            extents::rank(function, "mask", mask.shape(), 4);
            let full = [batch, heads, queries, keys];
            let fits = mask.shape().iter().zip(full).all(|(own, full)| *own == 1 || *own == full);
            assert!(fits, "{function}: mask has shape {:?}, expected {full:?}, or 1 in their places", mask.shape());
        }
        if let Some(lengths) = lengths {
            let dtype = lengths.dtype();
            assert!(dtype.is_integer(), "{function}: lengths is {dtype}, expected integers");
            extents::shape(function, "lengths", lengths.shape(), &[batch]);
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
/// not seen. Where scores are capped, `slopes` has their derivatives by what they were before, 0 for what is not seen.
///
/// # Safety
/// The matrices are those of the head, and can be read.
unsafe fn score(
    scores: &mut [f32],
    mut slopes: Option<&mut [f32]>,
    (queries, keys): (&Range<usize>, &Range<usize>),
    (query, key): (Matrix, Matrix),
    width: usize,
    how: &Scores<'_>,
    seen: &Seen<'_>,
) {
    let extents = [queries.len(), width, keys.len()];
    let target = Matrix::of_rows(scores.as_mut_ptr(), keys.len());
    let (query, key, scale) = (query.below(queries.start), key.below(keys.start).turned(), how.scale as f32);
    // SAFETY: the slice holds a score for each pair; the operands are the caller's.
    unsafe { multiply(extents, target, false, query, key, scale) };
    if let Some(cap) = how.cap {
        bend(scores, slopes.as_deref_mut(), cap as f32);
    }
    seen.apply(scores, queries, keys);
    for (slope, score) in slopes.into_iter().flatten().zip(scores) {
        // A product that is not seen may be no number.
        if *score == f32::NEG_INFINITY {
            *slope = 0.0;
        }
    }
}

/// Scores become `cap · tanh(score / cap)`, and `slopes` the derivatives of that: `1 / cosh²(x)` is
/// `4·e / (1 + e)²` with `e = exp(-2·|x|)`, which keeps its digits where tanh is near 1.
fn bend(scores: &mut [f32], slopes: Option<&mut [f32]>, cap: f32) {
    let mut over: Vec<f32> = scores.iter().map(|score| score / cap).collect();
    vector::tanh(&over, scores);
    scores.iter_mut().for_each(|score| *score *= cap);
    if let Some(slopes) = slopes {
        over.iter_mut().for_each(|x| *x = -2.0 * x.abs());
        vector::exp(&over, slopes);
        slopes.iter_mut().for_each(|e| *e = 4.0 * *e / ((1.0 + *e) * (1.0 + *e)));
    }
}
