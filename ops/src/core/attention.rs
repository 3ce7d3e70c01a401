//! What executors that attend in one kernel share: tensors of heads in four dimensions, and the definition, in f64.

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{ArrayD, IxDyn};
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::arrays::softmax_row;
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

/// Heads of a position beside each other, [B, L, H, E], in the form of `like`, whose heads lie one after another.
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

impl Attended<'_> {
    fn extents(&self) -> [usize; 5] {
        let shape = self.query.shape();
        [shape[0], shape[1], shape[2], self.key.shape()[2], shape[1] / self.key.shape()[1]]
    }

    /// The scores of each query of each head; those that it may not see are -infinity.
    fn scores(&self) -> ArrayD<f64> {
        let Attended { query, key, mask, .. } = self;
        let [batch, heads, queries, keys, times] = self.extents();
        ArrayD::from_shape_fn(IxDyn(&[batch, heads, queries, keys]), |at| {
            let of_mask = |mask: &ArrayD<bool>| mask[[0, 1, 2, 3].map(|dim| at[dim] % mask.shape()[dim])];
            if self.is_causal && at[3] > at[2] || mask.is_some_and(|mask| !of_mask(mask)) {
                return f64::NEG_INFINITY;
            }
            let width = query.shape()[3];
            let products = (0..width).map(|e| query[[at[0], at[1], at[2], e]] * key[[at[0], at[1] / times, at[3], e]]);
            products.sum::<f64>() * self.scale
        })
    }

    /// The results [B, L, H, V], and the logarithm of the sum of each row's exponentials [B, H, L], +infinity for who
    /// sees nothing.
    pub fn forward(&self) -> (ArrayD<f64>, ArrayD<f64>) {
        let [batch, heads, queries, keys, times] = self.extents();
        let mut weights = self.scores();
        let mut log_sums = ArrayD::zeros(IxDyn(&[batch, heads, queries]));
        for (mut row, sum) in weights.lanes_mut(ndarray::Axis(3)).into_iter().zip(&mut log_sums) {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if self.mask.is_some() && top == f64::NEG_INFINITY {
                *sum = f64::INFINITY;
                row.fill(0.0);
                continue;
            }
            *sum = top + row.iter().map(|score| (score - top).exp()).sum::<f64>().ln();
            let new = softmax_row(&row.to_vec());
            row.iter_mut().zip(new).for_each(|(to, from)| *to = from);
        }
        let width = self.value.shape()[3];
        let out = ArrayD::from_shape_fn(IxDyn(&[batch, queries, heads, width]), |at| {
            let weighed =
                (0..keys).map(|j| weights[[at[0], at[2], at[1], j]] * self.value[[at[0], at[2] / times, j, at[3]]]);
            weighed.sum()
        });
        (out, log_sums)
    }

    /// The gradients of query [B, L, H, E], key [B, S, H', E] and value [B, S, H', V]; `d_out` is [B, H, L, V], and
    /// `attended` and `log_sums` are what [`Self::forward`] gives.
    pub fn backward(&self, d_out: &ArrayD<f64>, attended: &ArrayD<f64>, log_sums: &ArrayD<f64>) -> [ArrayD<f64>; 3] {
        let [batch, heads, queries, keys, times] = self.extents();
        let [width, value_width] = [self.query, self.value].map(|array| array.shape()[3]);
        let groups = heads / times;
        let mut d_query = ArrayD::zeros(IxDyn(&[batch, queries, heads, width]));
        let mut d_key = ArrayD::zeros(IxDyn(&[batch, keys, groups, width]));
        let mut d_value = ArrayD::zeros(IxDyn(&[batch, keys, groups, value_width]));
        for (at, score) in self.scores().indexed_iter() {
            let (b, h, i, j) = (at[0], at[1], at[2], at[3]);
            let shared = h / times;
            let weight = (score - log_sums[[b, h, i]]).exp();
            let sum = |f: &dyn Fn(usize) -> f64| (0..value_width).map(f).sum::<f64>();
            let delta = sum(&|e| d_out[[b, h, i, e]] * attended[[b, i, h, e]]);
            let d_weight = sum(&|e| d_out[[b, h, i, e]] * self.value[[b, shared, j, e]]);
            let d_score = weight * (d_weight - delta) * self.scale;
            for e in 0..value_width {
                d_value[[b, j, shared, e]] += weight * d_out[[b, h, i, e]];
            }
            for e in 0..width {
                d_query[[b, i, h, e]] += d_score * self.key[[b, shared, j, e]];
                d_key[[b, j, shared, e]] += d_score * self.query[[b, h, i, e]];
            }
        }
        [d_query, d_key, d_value]
    }
}
