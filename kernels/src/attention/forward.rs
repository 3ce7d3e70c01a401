//! Attention, a tile of queries a task.

use rayon::prelude::*;

use super::operands::{Heads, Matrix, Results};
use super::problem::{Extents, KEYS, QUERIES, Scores, tile};
use super::products::{multiply, score};
use super::rows::{scale_rows, soften};
use super::seen::{Added, Seen};
use crate::elementwise::convert;
use crate::extents;
use crate::parallel::Shared;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// `softmax(scores) · value`.
///
/// `value` is `[batch, groups, keys, value_width]`, `out` `[batch, queries, heads, value_width]`. `log_sums`, `[batch,
/// heads, queries]`, gets the logarithm of the sum of each row's exponentials, of scores less the largest number that a
/// mask adds in the row ([`Scores::mask`]); [`attention_backward`](super::attention_backward) takes it. It is
/// +infinity, for weights of 0, where a mask, a window or a length hides all keys: the result is 0 there. Element types
/// are f32, bf16 and f16. Panics if extents do not fit, or if a result shares memory with an operand.
pub fn attention_forward(scores: &Scores<'_>, value: TensorRef<'_>, out: TensorMut<'_>, log_sums: TensorMut<'_>) {
    const NAME: &str = "attention_forward";
    let extents = Extents::of(NAME, scores, &value);
    let Extents { batch, heads, queries, .. } = extents;
    extents::shape(NAME, "out", out.shape(), &[batch, queries, heads, extents.value_width]);
    extents::shape(NAME, "log_sums", log_sums.shape(), &[batch, heads, queries]);
    for (name, operand) in [("query", &scores.query), ("key", &scores.key), ("value", &value)] {
        extents::apart(NAME, name, operand, &out);
        extents::apart(NAME, name, operand, &log_sums);
    }
    for (name, operand) in [("mask", &scores.mask), ("lengths", &scores.lengths)] {
        for result in [&out, &log_sums] {
            operand.iter().for_each(|operand| extents::apart(NAME, name, operand, result));
        }
    }
    if extents.nothing() {
        return;
    }
    let mut all_sums = scratch::zeroed::<f32>(log_sums.len());
    let sums = Shared::new(all_sums.as_mut_ptr().cast());
    let [query, key, value] = [scores.query, scores.key, value].map(Heads::of);
    let (results, added) = (Results::of(out), Added::of(scores, &extents));
    let tiles = queries.div_ceil(QUERIES);
    (0..batch * heads * tiles).into_par_iter().for_each(|task| {
        let (pair, queries) = (task / tiles, tile(task % tiles * QUERIES, QUERIES, queries));
        let (batch, head) = (pair / heads, pair % heads);
        let group = head / extents.times();
        let operands = [query.matrix(batch, head), key.matrix(batch, group), value.matrix(batch, group)];
        let first = pair * extents.queries + queries.start;
        // SAFETY: the sums of these queries, which no other task has.
        let sums = unsafe { std::slice::from_raw_parts_mut(sums.get().cast::<f32>().add(first), queries.len()) };
        let seen = Seen::of(scores, &added, batch, head);
        let target = results.matrix(batch, head).below(queries.start);
        // SAFETY: the matrices are those of the head; the rows of the target are this task's.
        unsafe { of_tile((scores, &extents), operands, [batch, head], &seen, &queries, target, sums) };
    });
    results.finish();
    let (shape, strides) = (log_sums.shape(), contiguous_strides(log_sums.shape()));
    convert(TensorRef::from_slice(&all_sums, shape, &strides), log_sums);
}

/// One tile of queries with all keys that they see.
///
/// # Safety
/// The matrices are those of one head, and nobody else uses the rows of the target.
unsafe fn of_tile(
    (how, extents): (&Scores<'_>, &Extents),
    [query, key, value]: [Matrix; 3],
    place: [usize; 2],
    seen: &Seen<'_>,
    queries: &std::ops::Range<usize>,
    target: Matrix,
    log_sums: &mut [f32],
) {
    let (rows, width) = (queries.len(), extents.value_width);
    let all = seen.keys(queries);
    let mut scores = scratch::zeroed::<f32>(rows * KEYS.min(all.len()));
    let mut factors = scratch::zeroed::<f32>(if how.dropped.is_some() { scores.len() } else { 0 });
    let mut sums = scratch::zeroed::<f32>(rows * width);
    let (mut top, mut sum, mut factor) =
        (scratch::filled(f32::NEG_INFINITY, rows), scratch::zeroed::<f32>(rows), scratch::zeroed::<f32>(rows));
    for start in all.clone().step_by(KEYS) {
        let keys = tile(start, KEYS, all.end);
        let scores = &mut scores[..rows * keys.len()];
        // SAFETY: the caller's matrices.
        unsafe { score(scores, None, (queries, &keys), (query, key), extents.width, how, seen) };
        soften(scores, keys.len(), &mut top, &mut sum, &mut factor);
        if start > all.start {
            scale_rows(&mut sums, width, &factor);
        }
        if let Some(dropped) = how.dropped {
            let factors = &mut factors[..scores.len()];
            dropped.factors(extents, place, (queries, &keys), factors);
            scores.iter_mut().zip(factors).for_each(|(weight, factor)| *weight *= *factor);
        }
        let weights = Matrix::of_rows(scores.as_mut_ptr(), keys.len());
        let to = Matrix::of_rows(sums.as_mut_ptr(), width);
        // SAFETY: a weight for each query and key of the tiles, and a row of sums for each query.
        unsafe { multiply([rows, keys.len(), width], to, start > all.start, weights, value.below(start), 1.0) };
    }
    for (row, sums) in sums.chunks_exact(width).enumerate() {
        // A query that is shown nothing gets zeros; a row of scores that are -infinity by themselves has no softmax.
        let nothing = seen.hides_rows && top[row] == f32::NEG_INFINITY && sum[row] == 0.0;
        log_sums[row] = if nothing { f32::INFINITY } else { top[row] + sum[row].ln() };
        let target = target.below(row);
        for (column, value) in sums.iter().enumerate() {
            let value = if nothing { 0.0 } else { value / sum[row] };
            // SAFETY: an element of the target.
            unsafe { target.first.wrapping_offset(column as isize * target.columns).write(value) };
        }
    }
}
