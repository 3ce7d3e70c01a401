//! What executors that attend in one kernel share: tensors of heads in four dimensions, and the definition, in f64.

use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{ArrayD, IxDyn};
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta, refuse_unless};
use ndarray::{Array2, ArrayView2, Axis, indices, s};

use super::arrays::softmax_row;
use super::promotion::cast;
use crate::prims;

/// [batch, heads, length, width] of a shape: leading dimensions become one, missing ones are of one element.
pub fn four(shape: &[usize]) -> [usize; 4] {
    let rank = shape.len();
    let heads = if rank > 2 { shape[rank - 3] } else { 1 };
    [shape[..rank.saturating_sub(3)].iter().product(), heads, shape[rank - 2], shape[rank - 1]]
}

/// A tensor of the shape that [`four`] gives.
#[track_caller]
pub fn as_four(tensor: Tensor) -> Tensor {
    if tensor.rank() == 4 { tensor } else { prims::reshape(tensor, four(&tensor.shape())) }
}

/// The meta of what [`as_four`] gives.
pub fn meta_as_four(meta: &TensorMeta) -> TensorMeta {
    meta.with_shape(four(meta.shape()))
}

/// The four extents of a mask whose leading ones may be missing.
pub fn extents_of_mask(shape: &[usize]) -> [usize; 4] {
    let missing = 4usize.saturating_sub(shape.len());
    [0, 1, 2, 3].map(|dim| if dim < missing { 1 } else { shape[dim - missing] })
}

/// A mask in four dimensions.
#[track_caller]
pub fn mask_as_four(mask: Tensor) -> Tensor {
    if mask.rank() == 4 { mask } else { prims::reshape(mask, extents_of_mask(&mask.shape())) }
}

/// Heads of a position beside each other, [B, L, H, E], in the form of `like`, whose heads are one after another.
#[track_caller]
pub fn as_before(tensor: Tensor, like: Tensor) -> Tensor {
    let apart = prims::permute(tensor, [0, 2, 1, 3]);
    if like.rank() == 4 {
        return apart;
    }
    let mut shape = like.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = apart.size(-1);
    }
    prims::reshape(apart, shape)
}

/// Whether nothing broadcasts but heads of keys that queries share, which `enable_gqa` allows.
pub fn claims_heads(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, enable_gqa: bool) -> Claim {
    let leading = |tensor: &TensorMeta| tensor.shape()[..tensor.rank().saturating_sub(3)].to_vec();
    let same = [key, value].iter().all(|t| t.rank() == query.rank() && leading(t) == leading(query));
    refuse_unless!(same, "broadcasts no batches, query is {query}, key {key}, value {value}");
    let heads = |tensor: &TensorMeta| tensor.shape().iter().rev().nth(2).copied().unwrap_or(1);
    let shared = heads(key) == heads(query) || enable_gqa;
    refuse_unless!(shared && heads(key) == heads(value), "broadcasts no heads, key is {key}, value {value}");
    Ok(())
}

/// The factor of scores: 1/√E if none is given.
pub fn factor(query: Tensor, scale: Option<f64>) -> f64 {
    scale.unwrap_or_else(|| 1.0 / (query.size(-1) as f64).sqrt())
}

/// The logarithms of sums: one number for each query of each head.
pub fn row_meta(query: &TensorMeta) -> TensorMeta {
    TensorMeta::new(&query.shape()[..3], DType::F32, query.device())
}

/// [B, H, L, E] with the heads of a position adjacent in memory: [B, L, H, E], where E is the last extent of `width`.
pub fn beside(input: &TensorMeta, width: &TensorMeta) -> TensorMeta {
    let [batch, heads, length, width] = [input.shape()[0], input.shape()[1], input.shape()[2], width.shape()[3]];
    input.with_shape([batch, length, heads, width])
}

/// How many pairs of a query [.., L, _] and a key [.., S, _] of one head are seen by causality and a window. What masks
/// and lengths hide is not known before a run, and counts.
pub fn seen_pairs(query: &TensorMeta, key: &TensorMeta, is_causal: bool, window: Option<i64>) -> u64 {
    let (queries, keys) = (query.shape()[2], key.shape()[2]);
    let of_query = |i: usize| {
        let end = if is_causal { keys.min(i + 1) } else { keys };
        let first = window.map_or(0, |window| (i + 1).saturating_sub(usize::try_from(window).unwrap_or(0)));
        end.saturating_sub(first) as u64
    };
    (0..queries).map(of_query).fold(0, u64::saturating_add)
}

/// The multiplications and additions of so many `pairs` of each head of `query` [B, H, L, E] in products: `times[0]` of
/// them sum over E, and `times[1]` over the width of `value`. Exponentials and sums beside the products are few.
pub fn term_flops([query, value]: [&TensorMeta; 2], pairs: u64, times: [u64; 2]) -> u64 {
    let widths = [query, value].map(|tensor| tensor.shape()[3] as u64);
    let terms = times[0].saturating_mul(widths[0]).saturating_add(times[1].saturating_mul(widths[1]));
    let heads = (query.shape()[0] as u64).saturating_mul(query.shape()[1] as u64);
    heads.saturating_mul(pairs).saturating_mul(terms).saturating_mul(2)
}

/// bool[B, L, S]: whether position i of row b sees key j; `None` if each sees all.
#[track_caller]
pub fn seen_keys(
    extents: [usize; 3],
    device: Device,
    lengths: Option<Tensor>,
    is_causal: bool,
    window: Option<i64>,
) -> Option<Tensor> {
    let positions = |dim: usize| {
        let (zero, one) = (Scalar::Int(0), Scalar::Int(1));
        let positions = prims::iota(extents[dim], zero, one, DType::I64, device);
        prims::broadcast_in_dim(positions, extents, [dim])
    };
    let (own, other) = (positions(1), positions(2));
    let before = is_causal.then(|| prims::le(other, own));
    let near = window.map(|window| prims::gt(other, prims::sub(own, window)));
    let real =
        lengths.map(|lengths| prims::lt(other, prims::broadcast_in_dim(cast(lengths, DType::I64), extents, [0])));
    [before, near, real].into_iter().flatten().reduce(prims::logical_and)
}

/// What is attended to, for the definition.
#[derive(Clone, Copy)]
pub struct Attended<'a> {
    /// [B, H, L, E].
    pub query: &'a ArrayD<f64>,
    /// [B, H', S, E].
    pub key: &'a ArrayD<f64>,
    /// [B, H', S, V].
    pub value: &'a ArrayD<f64>,
    /// [B, H, L, S], where every extent may be 1.
    pub mask: Option<&'a ArrayD<bool>>,
    /// Whether position i sees 0 to i.
    pub is_causal: bool,
    /// The factor of scores.
    pub scale: f64,
}

/// What a problem changes about scores and weights, for the definition; nothing by default.
#[derive(Clone, Copy, Default)]
pub struct Changes<'a> {
    /// Numbers that are added to scores, [B, H, L, S], where every extent may be 1. Sums are rounded to f32, as those
    /// of the formula are: beside a number far below 0 nothing is left of a score. From the sums of a row the largest
    /// number of a key that it sees is subtracted, so that logarithms of their exponentials keep digits in f32.
    pub added: Option<&'a ArrayD<f64>>,
    /// How many of the keys of each batch are seen: [B].
    pub lengths: Option<&'a ArrayD<i64>>,
    /// Position i sees the keys after i - window alone.
    pub window: Option<i64>,
    /// Scores become `cap · tanh(score / cap)`, before anything is added.
    pub cap: Option<f64>,
    /// What weights are multiplied with, 0 for those that are dropped: [B, H, L, S].
    pub kept: Option<&'a ArrayD<f64>>,
}

/// An element of an array whose extents may be 1.
fn spread<T: Copy>(array: &ArrayD<T>, at: [usize; 4]) -> T {
    array[[0, 1, 2, 3].map(|dim| at[dim] % array.shape()[dim])]
}

/// As f32 holds it.
fn rounded(number: f64) -> f64 {
    f64::from(number as f32)
}

/// The rows of a head of a batch.
fn matrix(array: &ArrayD<f64>, batch: usize, head: usize) -> ArrayView2<'_, f64> {
    let rows = array.index_axis(Axis(0), batch).index_axis_move(Axis(0), head);
    rows.into_dimensionality().unwrap_or_else(|error| unreachable!("four dimensions: {error}"))
}

/// For references: the definition.
impl Attended<'_> {
    fn extents(&self) -> [usize; 5] {
        let shape = self.query.shape();
        [shape[0], shape[1], shape[2], self.key.shape()[2], shape[1] / self.key.shape()[1]]
    }

    /// The scores [L, S] of a head, -infinity for what may not be seen, and the derivatives of them by the products.
    fn scores(&self, changes: &Changes, batch: usize, head: usize) -> [Array2<f64>; 2] {
        let shared = head / self.extents()[4];
        let mut scores = matrix(self.query, batch, head).dot(&matrix(self.key, batch, shared).t()) * self.scale;
        let mut slopes = Array2::from_elem(scores.dim(), self.scale);
        for (((i, j), score), slope) in scores.indexed_iter_mut().zip(&mut slopes) {
            let at = [batch, head, i, j];
            let hidden = self.is_causal && j > i
                || self.mask.is_some_and(|mask| !spread(mask, at))
                || changes.window.is_some_and(|window| j as i64 <= i as i64 - window)
                || changes.lengths.is_some_and(|lengths| j as i64 >= lengths[[batch]]);
            if hidden {
                (*score, *slope) = (f64::NEG_INFINITY, 0.0);
                continue;
            }
            if let Some(cap) = changes.cap {
                let bent = (*score / cap).tanh();
                *score = cap * bent;
                *slope *= 1.0 - bent * bent;
            }
        }
        if let Some(added) = changes.added {
            for (i, mut row) in scores.rows_mut().into_iter().enumerate() {
                let number = |j: usize| spread(added, [batch, head, i, j]);
                let seen = (0..row.len()).filter(|j| row[*j] > f64::NEG_INFINITY).map(number);
                let largest = seen.fold(f64::NEG_INFINITY, f64::max);
                let base = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
                row.indexed_iter_mut().for_each(|(j, score)| *score = rounded(*score + number(j)) - base);
            }
        }
        [scores, slopes]
    }

    /// The results [B, L, H, V], and the logarithm of the sum of each row's exponentials [B, H, L], +infinity for a
    /// query that sees nothing.
    pub fn forward(&self) -> (ArrayD<f64>, ArrayD<f64>) {
        self.forward_with(&Changes::default())
    }

    /// The same, with changed scores and weights.
    pub fn forward_with(&self, changes: &Changes) -> (ArrayD<f64>, ArrayD<f64>) {
        let [batch, heads, queries, _, times] = self.extents();
        let mut out = ArrayD::zeros(IxDyn(&[batch, queries, heads, self.value.shape()[3]]));
        let mut log_sums = ArrayD::zeros(IxDyn(&[batch, heads, queries]));
        for (b, h) in indices([batch, heads]) {
            let [mut weights, _] = self.scores(changes, b, h);
            for (i, mut row) in weights.rows_mut().into_iter().enumerate() {
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if row.iter().all(|score| *score == f64::NEG_INFINITY) {
                    log_sums[[b, h, i]] = f64::INFINITY;
                    row.fill(0.0);
                    continue;
                }
                log_sums[[b, h, i]] = top + row.iter().map(|score| (score - top).exp()).sum::<f64>().ln();
                let new = softmax_row(&row.to_vec());
                row.iter_mut().zip(new).for_each(|(to, from)| *to = from);
            }
            if let Some(kept) = changes.kept {
                weights *= &matrix(kept, b, h);
            }
            out.slice_mut(s![b, .., h, ..]).assign(&weights.dot(&matrix(self.value, b, h / times)));
        }
        (out, log_sums)
    }

    /// The gradients of query [B, L, H, E], key [B, S, H', E] and value [B, S, H', V]; `d_out` is [B, H, L, V], and
    /// `attended` and `log_sums` are what [`Self::forward`] gives.
    pub fn backward(&self, d_out: &ArrayD<f64>, attended: &ArrayD<f64>, log_sums: &ArrayD<f64>) -> [ArrayD<f64>; 3] {
        self.backward_with(&Changes::default(), d_out, Some(attended), log_sums)
    }

    /// The same, with changed scores and weights. Without `attended` the row sums of weights times their gradients are
    /// computed of these.
    pub fn backward_with(
        &self,
        changes: &Changes,
        d_out: &ArrayD<f64>,
        attended: Option<&ArrayD<f64>>,
        log_sums: &ArrayD<f64>,
    ) -> [ArrayD<f64>; 3] {
        let [batch, heads, queries, keys, times] = self.extents();
        let [width, value_width] = [self.query, self.value].map(|array| array.shape()[3]);
        let groups = heads / times;
        let mut d_query = ArrayD::zeros(IxDyn(&[batch, queries, heads, width]));
        let mut d_key = ArrayD::zeros(IxDyn(&[batch, keys, groups, width]));
        let mut d_value = ArrayD::zeros(IxDyn(&[batch, keys, groups, value_width]));
        for (b, h) in indices([batch, heads]) {
            let shared = h / times;
            let [scores, slopes] = self.scores(changes, b, h);
            let d_out = matrix(d_out, b, h);
            let mut weights = scores;
            for (mut row, log_sum) in weights.rows_mut().into_iter().zip(log_sums.slice(s![b, h, ..])) {
                row.mapv_inplace(|score| (score - log_sum).exp());
            }
            let mut d_weights = d_out.dot(&matrix(self.value, b, shared).t());
            let mut kept_weights = weights.clone();
            if let Some(kept) = changes.kept {
                let kept = matrix(kept, b, h);
                d_weights *= &kept;
                kept_weights *= &kept;
            }
            let terms = match attended {
                Some(attended) => &d_out * &attended.slice(s![b, .., h, ..]),
                None => &weights * &d_weights,
            };
            let delta = terms.sum_axis(Axis(1)).insert_axis(Axis(1));
            let d_scores = weights * (d_weights - delta) * slopes;
            d_query.slice_mut(s![b, .., h, ..]).assign(&d_scores.dot(&matrix(self.key, b, shared)));
            let mut d_key = d_key.slice_mut(s![b, .., shared, ..]);
            d_key += &d_scores.t().dot(&matrix(self.query, b, h));
            let mut d_value = d_value.slice_mut(s![b, .., shared, ..]);
            d_value += &kept_weights.t().dot(&d_out);
        }
        [d_query, d_key, d_value]
    }
}
