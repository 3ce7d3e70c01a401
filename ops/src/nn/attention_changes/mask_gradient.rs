//! The gradient of a mask of numbers.

use fulgurite_runtime::{DType, Tensor};

use crate::core::attention::{extents_of_mask, mask_as_four};
use crate::core::promotion::{accumulating, broadcast, cast};
use crate::prims;

/// Attention with a mask of numbers: query [B, H, L, E], key [B, H', S, E], value [B, H', S, V].
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// The mask; it spreads to [B, H, L, S], and leading extents may be missing.
    pub mask: Tensor,
    /// The queries.
    pub query: Tensor,
    /// The keys.
    pub key: Tensor,
    /// The values.
    pub value: Tensor,
    /// The generator, and the probability of a weight to be dropped, which is above 0.
    pub dropped: Option<(Tensor, f64)>,
    /// The factor of products of queries and keys.
    pub scale: f64,
}

impl Numbers {
    /// The gradient of the mask: the gradients of scores, summed over what the mask is the same for. They are as large
    /// as scores, and written only for this. d_out is [B, H, L, V]; the logarithms of sums [B, H, L] are what forward
    /// gave.
    #[track_caller]
    pub fn gradient(self, d_out: Tensor, log_sums: Tensor) -> Tensor {
        let mask = self.mask;
        let [batch, heads, queries] = [0, 1, 2].map(|dim| self.query.size(dim));
        let (shared, keys) = (self.key.size(1), self.key.size(2));
        let times = heads / shared;
        // The heads that share keys are rows of one product.
        let rows = |x: Tensor| prims::reshape(x, [batch, shared, times * queries, x.size(-1)]);
        let products = |one: Tensor, other: Tensor| {
            let sums = one.dtype().accumulator();
            let sums = (sums != one.dtype()).then_some(sums);
            let all = prims::matmul::with(rows(one), prims::permute(other, [0, 1, 3, 2])).out_dtype(sums).call();
            prims::reshape(all, [batch, heads, queries, keys])
        };
        let extents = [batch, heads, queries, keys];
        let spread = |row: Tensor| prims::broadcast_in_dim(row, extents, [0, 1, 2]);
        let added = broadcast(accumulating(mask), &extents);
        // As the kernels add them, and subtract the largest of each row.
        let sums = prims::add(prims::mul(products(self.query, self.key), self.scale), added);
        let largest = prims::amax(mask_as_four(accumulating(mask)), [3]);
        let bases = prims::select(prims::eq(largest, f64::NEG_INFINITY), 0.0, largest);
        let scores = prims::sub(sums, broadcast_rows(bases, &extents));
        let weights = prims::exp(prims::sub(scores, spread(log_sums)));
        let mut d_weights = products(d_out, self.value);
        if let Some((generator, probability)) = self.dropped {
            let drawn = prims::uniform(extents, 0.0, 1.0, DType::F32, generator);
            let scaled = prims::mul(d_weights, 1.0 / (1.0 - probability));
            d_weights = prims::select(prims::ge(drawn, probability), scaled, 0.0);
        }
        // Not of the result, which may be rounded to 16 bits.
        let delta = prims::sum(prims::mul(weights, d_weights), [3]);
        let d_scores = prims::mul(weights, prims::sub(d_weights, spread(delta)));
        let four = extents_of_mask(&mask.shape());
        let same: Vec<usize> = (0..4).filter(|dim| four[*dim] == 1 && extents[*dim] > 1).collect();
        let sum = if same.is_empty() { d_scores } else { prims::sum(d_scores, same) };
        cast(prims::reshape(sum, mask.shape()), mask.dtype())
    }
}

/// A number for each row, [B, H, L] where every extent may be 1, for all keys of the row.
#[track_caller]
fn broadcast_rows(rows: Tensor, extents: &[usize; 4]) -> Tensor {
    let mut shape = rows.shape().to_vec();
    shape.push(1);
    broadcast(prims::reshape(rows, shape), extents)
}
