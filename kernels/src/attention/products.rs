//! Products of tiles, and the scores that are made of them.

use std::ops::Range;

use super::operands::Matrix;
use super::problem::Scores;
use super::seen::Seen;
use crate::gemm::{self, Parallelism};
use crate::scratch;
use crate::vector;

/// `target = factor · left · right`, and what the target was before if `read` is set. `left` is `rows` x `inner`,
/// `right` `inner` x `columns`.
///
/// # Safety
/// All elements of the matrices can be read, those of the target written by nobody else.
pub(super) unsafe fn multiply(
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
pub(super) unsafe fn score(
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
    let mut over: Vec<f32> = scratch::collected(scores.iter().map(|score| score / cap));
    vector::tanh(&over, scores);
    scores.iter_mut().for_each(|score| *score *= cap);
    if let Some(slopes) = slopes {
        over.iter_mut().for_each(|x| *x = -2.0 * x.abs());
        vector::exp(&over, slopes);
        slopes.iter_mut().for_each(|e| *e = 4.0 * *e / ((1.0 + *e) * (1.0 + *e)));
    }
}
