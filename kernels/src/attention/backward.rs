//! The gradients of attention: weights are computed again from scores and the logarithms of their sums.

use std::ops::Range;

use rayon::prelude::*;

use super::operands::{Heads, Matrix, Results};
use super::problem::{Extents, KEYS, QUERIES, Scores, tile};
use super::products::{multiply, score};
use super::rows::{add_weighted, dot, gradients};
use super::seen::{Added, Seen};
use crate::extents;
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// From so many heads on, all of one is done by one task, with five products for each pair of tiles. With fewer, tiles
/// of keys and tiles of queries are tasks of their own, with four and three.
const MANY_HEADS: usize = 16;

/// The gradients of [`attention_forward`](super::attention_forward) for query, key and value.
///
/// `d_out` is `[batch, heads, queries, value_width]`; `attended` `[batch, queries, heads, value_width]` and `log_sums`
/// f32 `[batch, heads, queries]` are the results of the forward function. The gradient of a score needs the sum of
/// weights times their gradients over its row. It is `Σ d_out · attended` if `attended` is given, which is as exact as
/// `attended`: of f32. Results that were rounded to 16 bits lose more than gradients of 16 bits do; without `attended`
/// the sums are those of the weights in f32, for two more products. `d_query` is
/// `[batch, queries, heads, width]`, `d_key` and `d_value` are `[batch, keys, groups, ...]`. Element types are f32,
/// bf16 and f16. Panics if extents do not fit, or if a result shares memory with an operand.
#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    scores: &Scores<'_>,
    value: TensorRef<'_>,
    d_out: TensorRef<'_>,
    attended: Option<TensorRef<'_>>,
    log_sums: TensorRef<'_>,
    d_query: TensorMut<'_>,
    d_key: TensorMut<'_>,
    d_value: TensorMut<'_>,
) {
    const NAME: &str = "attention_backward";
    let extents = Extents::of(NAME, scores, &value);
    let Extents { batch, heads, groups, queries, keys, width, value_width } = extents;
    extents::shape(NAME, "d_out", d_out.shape(), &[batch, heads, queries, value_width]);
    if let Some(attended) = &attended {
        extents::shape(NAME, "attended", attended.shape(), &[batch, queries, heads, value_width]);
    }
    extents::shape(NAME, "log_sums", log_sums.shape(), &[batch, heads, queries]);
    extents::shape(NAME, "d_query", d_query.shape(), &[batch, queries, heads, width]);
    extents::shape(NAME, "d_key", d_key.shape(), &[batch, keys, groups, width]);
    extents::shape(NAME, "d_value", d_value.shape(), &[batch, keys, groups, value_width]);
    let operands =
        [("query", &scores.query), ("key", &scores.key), ("value", &value), ("d_out", &d_out), ("log_sums", &log_sums)];
    let optional = [("attended", &attended), ("mask", &scores.mask), ("lengths", &scores.lengths)];
    let optional = optional.into_iter().filter_map(|(name, operand)| Some((name, operand.as_ref()?)));
    for (name, operand) in operands.into_iter().chain(optional) {
        [&d_query, &d_key, &d_value].iter().for_each(|result| extents::apart(NAME, name, operand, result));
    }
    let log_sums: Vec<f32> = scratch::collected(crate::access::read_f64(&log_sums).into_iter().map(|sum| sum as f32));
    let operands = [scores.query, scores.key, value, d_out].map(Heads::of);
    let results = [d_query, d_key, d_value].map(Results::of);
    let added = Added::of(scores, &extents);
    let mut work = Work { scores, extents, added, operands, log_sums: &log_sums, deltas: Vec::new(), results };
    work.deltas = match attended {
        Some(attended) => deltas_of_results(&extents, &work.operands[3], attended),
        None => work.deltas_of_weights(),
    };
    let tiles = keys.div_ceil(KEYS);
    if batch * groups >= MANY_HEADS || tiles <= 1 {
        (0..batch * groups).into_par_iter().for_each(|task| {
            let (batch, group) = (task / groups, task % groups);
            // SAFETY: all of one head of keys is this task's.
            unsafe { work.clear_queries(batch, group) };
            for at in 0..tiles {
                // SAFETY: as above.
                unsafe { work.of_keys(batch, group, tile(at * KEYS, KEYS, keys), true) };
            }
        });
    } else {
        (0..batch * groups * tiles).into_par_iter().for_each(|task| {
            let (pair, keys) = (task / tiles, tile(task % tiles * KEYS, KEYS, keys));
            // SAFETY: the gradients of these keys are this task's.
            unsafe { work.of_keys(pair / groups, pair % groups, keys, false) };
        });
        let tiles = queries.div_ceil(QUERIES);
        (0..batch * heads * tiles).into_par_iter().for_each(|task| {
            let (pair, queries) = (task / tiles, tile(task % tiles * QUERIES, QUERIES, queries));
            // SAFETY: the gradients of these queries are this task's.
            unsafe { work.of_queries(pair / heads, pair % heads, queries) };
        });
    }
    work.results.into_iter().for_each(Results::finish);
}

/// `Σ d_out · attended` of each query of each head.
fn deltas_of_results(extents: &Extents, d_out: &Heads<'_>, attended: TensorRef<'_>) -> Vec<f32> {
    let Extents { heads, queries, value_width, .. } = *extents;
    // In the order of the others: a head after a head.
    let order = [0, 2, 1, 3];
    let (shape, strides) = (order.map(|dim| attended.shape()[dim]), order.map(|dim| attended.strides()[dim]));
    // SAFETY: the same elements, in another order of dimensions.
    let attended = &Heads::of(unsafe { attended.part(&shape, &strides, attended.as_ptr()) });
    let mut deltas = scratch::zeroed::<f32>(extents.batch * heads * queries);
    deltas.par_chunks_mut(queries.max(1)).enumerate().for_each(|(pair, deltas)| {
        let [d_out, attended] = [d_out, attended].map(|tensor| tensor.matrix(pair / heads, pair % heads));
        let mut rows = [scratch::zeroed::<f32>(value_width), scratch::zeroed(value_width)];
        for (row, delta) in deltas.iter_mut().enumerate() {
            for (values, matrix) in rows.iter_mut().zip([d_out, attended]) {
                let matrix = matrix.below(row);
                for (column, value) in values.iter_mut().enumerate() {
                    // SAFETY: an element of the row.
                    *value = unsafe { matrix.first.wrapping_offset(column as isize * matrix.columns).read() };
                }
            }
            *delta = dot(&rows[0], &rows[1]);
        }
    });
    deltas
}

/// What all tasks read, and where they write.
struct Work<'a> {
    scores: &'a Scores<'a>,
    extents: Extents,
    added: Added<'a>,
    /// Query, key, value and the gradient of the result.
    operands: [Heads<'a>; 4],
    log_sums: &'a [f32],
    /// What is subtracted from the gradients of weights of each query of each head.
    deltas: Vec<f32>,
    /// The gradients of query, key and value.
    results: [Results<'a>; 3],
}

/// Weights and gradients of scores of a pair of tiles.
struct Pair {
    weights: Vec<f32>,
    d_scores: Vec<f32>,
    /// Derivatives of capped scores, where there is a cap.
    slopes: Vec<f32>,
    /// What weights are multiplied with, where some are dropped.
    factors: Vec<f32>,
}

impl Work<'_> {
    fn pair(&self) -> Pair {
        let count = QUERIES.min(self.extents.queries) * KEYS.min(self.extents.keys);
        let of = |has: bool| scratch::zeroed(if has { count } else { 0 });
        let (slopes, factors) = (of(self.scores.cap.is_some()), of(self.scores.dropped.is_some()));
        Pair { weights: of(true), d_scores: of(true), slopes, factors }
    }

    /// Sums over keys of weights times their gradients, of each query of each head.
    fn deltas_of_weights(&self) -> Vec<f32> {
        let Extents { batch, heads, queries, .. } = self.extents;
        let mut deltas = scratch::zeroed::<f32>(batch * heads * queries);
        // A head has so many tiles, of which the last may be shorter.
        let tiles = deltas.chunks_mut(queries.max(1)).enumerate();
        let tiles = tiles.flat_map(|(pair, deltas)| deltas.chunks_mut(QUERIES).enumerate().map(move |at| (pair, at)));
        tiles.collect::<Vec<_>>().into_par_iter().for_each(|(place, (at, deltas))| {
            let (batch, head) = (place / heads, place % heads);
            let queries = tile(at * QUERIES, QUERIES, queries);
            let seen = Seen::of(self.scores, &self.added, batch, head);
            let mut pair = self.pair();
            let all = seen.keys(&queries);
            for start in all.clone().step_by(KEYS) {
                let keys = tile(start, KEYS, all.end);
                let count = queries.len() * keys.len();
                // SAFETY: nobody writes to the operands.
                unsafe { self.score_pair(&mut pair, [batch, head], &seen, &queries, &keys) };
                let (scores, d_weights) = (&pair.weights[..count], &pair.d_scores[..count]);
                let log_sums = &self.log_sums[place * self.extents.queries..][queries.clone()];
                add_weighted(scores, d_weights, keys.len(), log_sums, deltas);
            }
        });
        deltas
    }

    /// Fills a pair of tiles with scores and gradients of weights, slopes where there is a cap, and factors where
    /// weights are dropped.
    ///
    /// # Safety
    /// Nobody writes to the operands.
    unsafe fn score_pair(
        &self,
        pair: &mut Pair,
        [batch, head]: [usize; 2],
        seen: &Seen<'_>,
        queries: &Range<usize>,
        keys: &Range<usize>,
    ) {
        let Extents { width, value_width, .. } = self.extents;
        let group = head / self.extents.times();
        let [query, key, value, d_out] = &self.operands;
        let count = queries.len() * keys.len();
        let (scores, d_weights) = (&mut pair.weights[..count], &mut pair.d_scores[..count]);
        let slopes = self.scores.cap.map(|_| &mut pair.slopes[..count]);
        let matrices = (query.matrix(batch, head), key.matrix(batch, group));
        let extents = [queries.len(), value_width, keys.len()];
        let target = Matrix::of_rows(d_weights.as_mut_ptr(), keys.len());
        let d_out = d_out.matrix(batch, head).below(queries.start);
        let value = value.matrix(batch, group).below(keys.start).turned();
        // SAFETY: the operands of one head; the slices have an element for each pair.
        unsafe {
            score(scores, slopes, (queries, keys), matrices, width, self.scores, seen);
            multiply(extents, target, false, d_out, value, 1.0);
        }
        if let Some(dropped) = self.scores.dropped {
            let factors = &mut pair.factors[..count];
            dropped.factors(&self.extents, [batch, head], (queries, keys), factors);
            d_weights.iter_mut().zip(&*factors).for_each(|(d_weight, factor)| *d_weight *= factor);
        }
    }

    /// Fills a pair of tiles: weights without those that are dropped, and gradients of scores; both as matrices with a
    /// row for each query.
    ///
    /// # Safety
    /// Nobody writes to the operands.
    unsafe fn fill(
        &self,
        pair: &mut Pair,
        [batch, head]: [usize; 2],
        seen: &Seen<'_>,
        queries: &Range<usize>,
        keys: &Range<usize>,
    ) -> [Matrix; 2] {
        // SAFETY: the caller's promise.
        unsafe { self.score_pair(pair, [batch, head], seen, queries, keys) };
        let scale = self.scores.scale as f32;
        let count = queries.len() * keys.len();
        let (weights, d_scores) = (&mut pair.weights[..count], &mut pair.d_scores[..count]);
        let slopes = self.scores.cap.map(|_| &pair.slopes[..count]);
        let factors = self.scores.dropped.map(|_| &pair.factors[..count]);
        let first = (batch * self.extents.heads + head) * self.extents.queries;
        let rows = first + queries.start..first + queries.end;
        gradients(weights, d_scores, keys.len(), &self.log_sums[rows.clone()], &self.deltas[rows], scale);
        for (values, by) in [(&mut *d_scores, slopes), (&mut *weights, factors)] {
            if let Some(by) = by {
                values.iter_mut().zip(by).for_each(|(value, factor)| *value *= *factor);
            }
        }
        [weights, d_scores].map(|tile| Matrix::of_rows(tile.as_mut_ptr(), keys.len()))
    }

    /// Whether tiles of keys are passed by, so that which one is the first for a query is not known before.
    fn clears_queries(&self) -> bool {
        self.scores.window.is_some() || self.scores.lengths.is_some()
    }

    /// Sets the gradients of the queries of some heads to 0, if they are sums from the first tile of keys on.
    ///
    /// # Safety
    /// Nobody else uses them.
    unsafe fn clear_queries(&self, batch: usize, group: usize) {
        if !self.clears_queries() {
            return;
        }
        for head in group * self.extents.times()..(group + 1) * self.extents.times() {
            // SAFETY: the caller's promise.
            unsafe { clear(self.results[0].matrix(batch, head), self.extents.queries, self.extents.width) };
        }
    }

    /// The gradients of some keys and their values, of all heads that read them; if asked for, what these keys bring to
    /// the gradients of queries: those of the first keys come first, and begin the sums unless these were cleared.
    ///
    /// # Safety
    /// Nobody else uses these rows of gradients.
    unsafe fn of_keys(&self, batch: usize, group: usize, keys: Range<usize>, with_queries: bool) {
        let Extents { width, value_width, queries, .. } = self.extents;
        let [query, key, _, d_out] = &self.operands;
        let [d_query, d_key, d_value] = &self.results;
        let d_key = d_key.matrix(batch, group).below(keys.start);
        let d_value = d_value.matrix(batch, group).below(keys.start);
        let mut pair = self.pair();
        let mut first = true;
        for head in group * self.extents.times()..(group + 1) * self.extents.times() {
            let seen = Seen::of(self.scores, &self.added, batch, head);
            let all = seen.queries(&keys, queries);
            for start in all.clone().step_by(QUERIES) {
                let rows = tile(start, QUERIES, all.end);
                // SAFETY: the operands of this head; the gradients are the caller's.
                unsafe {
                    let [weights, d_scores] = self.fill(&mut pair, [batch, head], &seen, &rows, &keys);
                    let d_out = d_out.matrix(batch, head).below(start);
                    let own = query.matrix(batch, head).below(start);
                    multiply([keys.len(), rows.len(), value_width], d_value, !first, weights.turned(), d_out, 1.0);
                    multiply([keys.len(), rows.len(), width], d_key, !first, d_scores.turned(), own, 1.0);
                    if with_queries {
                        let d_query = d_query.matrix(batch, head).below(start);
                        let key = key.matrix(batch, group).below(keys.start);
                        let read = keys.start > 0 || self.clears_queries();
                        multiply([rows.len(), keys.len(), width], d_query, read, d_scores, key, 1.0);
                    }
                }
                first = false;
            }
        }
        if first {
            // Nobody sees these keys.
            for (matrix, width) in [(d_key, width), (d_value, value_width)] {
                // SAFETY: rows of the caller's gradients.
                unsafe { clear(matrix, keys.len(), width) };
            }
        }
    }

    /// The gradients of some queries.
    ///
    /// # Safety
    /// Nobody else uses these rows of gradients.
    unsafe fn of_queries(&self, batch: usize, head: usize, queries: Range<usize>) {
        let seen = Seen::of(self.scores, &self.added, batch, head);
        let [_, key, ..] = &self.operands;
        let d_query = self.results[0].matrix(batch, head).below(queries.start);
        let mut pair = self.pair();
        let all = seen.keys(&queries);
        if all.is_empty() {
            // SAFETY: rows of the caller's gradients.
            unsafe { clear(d_query, queries.len(), self.extents.width) };
        }
        for start in all.clone().step_by(KEYS) {
            let keys = tile(start, KEYS, all.end);
            // SAFETY: the operands of this head; the gradients are the caller's.
            unsafe {
                let [_, d_scores] = self.fill(&mut pair, [batch, head], &seen, &queries, &keys);
                let key = key.matrix(batch, head / self.extents.times()).below(start);
                let extents = [queries.len(), keys.len(), self.extents.width];
                multiply(extents, d_query, start > all.start, d_scores, key, 1.0);
            }
        }
    }
}

/// Writes zeros.
///
/// # Safety
/// All elements can be written.
unsafe fn clear(matrix: Matrix, rows: usize, columns: usize) {
    for row in 0..rows {
        let row = matrix.below(row);
        for column in 0..columns {
            // SAFETY: the caller's promise.
            unsafe { row.first.wrapping_offset(column as isize * row.columns).write(0.0) };
        }
    }
}
