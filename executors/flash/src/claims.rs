//! What `flash` and `flash_tf32` take of the operators of attention.

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::tracer::wants_gradient;
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::by_both;
use super::changes::ChangesMeta;
use super::symbols::{attention, attention_backward, kernels_fit};
use fulgurite_ops::core::attention::{LEAST_ADDED, MOST_BELOW, as_before, as_four, claims_heads, factor, meta_as_four};
use fulgurite_ops::core::promotion::{accumulating, broadcast, cast};
use fulgurite_ops::prims;

/// The four extents of a mask whose leading ones may be missing.
fn extents_of_mask(shape: &[usize]) -> [usize; 4] {
    let missing = 4usize.saturating_sub(shape.len());
    [0, 1, 2, 3].map(|dim| if dim < missing { 1 } else { shape[dim - missing] })
}

/// A mask in four dimensions.
#[track_caller]
fn mask_as_four(mask: Tensor) -> Tensor {
    if mask.rank() == 4 { mask } else { prims::reshape(mask, extents_of_mask(&mask.shape())) }
}

/// What [`mod@attention`] was called with, and returned.
#[derive(Clone, Copy)]
struct Call {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    generator: Option<Tensor>,
    dropout_p: f64,
    is_causal: bool,
    scale: f64,
    tf32: bool,
}

impl Call {
    #[track_caller]
    fn forward(self) -> (Tensor, Tensor) {
        let Call { query, key, value, mask, generator, dropout_p, is_causal, scale, tf32 } = self;
        let call = attention::with(query, key, value, is_causal, scale);
        call.mask(mask).generator(generator).dropout_p(dropout_p).tf32(tf32).call()
    }

    #[track_caller]
    fn backward(self, d_out: Tensor, out: Tensor, log_sums: Tensor) -> (Tensor, Tensor, Tensor) {
        let Call { query, key, value, mask, generator, dropout_p, is_causal, scale, tf32 } = self;
        let call = attention_backward::with(d_out, query, key, value, out, log_sums, is_causal, scale);
        call.mask(mask).generator(generator).dropout_p(dropout_p).tf32(tf32).call()
    }

    /// The gradient of a mask of numbers: the gradients of scores, summed over what the mask is the same for. They are
    /// as large as scores, and written only for this.
    #[track_caller]
    fn gradient_of_mask(self, mask: Tensor, d_out: Tensor, out: Tensor, log_sums: Tensor) -> Tensor {
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| self.query.size(dim));
        let (shared, keys) = (self.key.size(1), self.key.size(2));
        let times = heads / shared;
        // The heads that share keys are rows of one product.
        let rows = |x: Tensor| prims::reshape(x, [batch, shared, times * queries, width]);
        let products = |one: Tensor, other: Tensor| {
            let sums = one.dtype().accumulator();
            let sums = (sums != one.dtype()).then_some(sums);
            let all = prims::matmul::with(rows(one), prims::permute(other, [0, 1, 3, 2])).out_dtype(sums).call();
            prims::reshape(all, [batch, heads, queries, keys])
        };
        let extents = [batch, heads, queries, keys];
        let spread = |row: Tensor| prims::broadcast_in_dim(row, extents, [0, 1, 2]);
        let added = broadcast(accumulating(mask), &extents);
        let scores = prims::mul(products(self.query, self.key), self.scale);
        // As the kernels add them.
        let hides = prims::logical_and(prims::lt(added, LEAST_ADDED), prims::gt(added, f64::NEG_INFINITY));
        let bounded = prims::maximum(prims::minimum(scores, MOST_BELOW), -MOST_BELOW);
        let scores = prims::select(hides, prims::add(bounded, LEAST_ADDED), prims::add(scores, added));
        let weights = prims::exp(prims::sub(scores, spread(log_sums)));
        let mut d_weights = products(d_out, self.value);
        if let Some(generator) = self.generator.filter(|_| self.dropout_p > 0.0) {
            let drawn = prims::uniform(extents, 0.0, 1.0, DType::F32, generator);
            let scaled = prims::mul(d_weights, 1.0 / (1.0 - self.dropout_p));
            d_weights = prims::select(prims::ge(drawn, self.dropout_p), scaled, 0.0);
        }
        let out = accumulating(prims::permute(out, [0, 2, 1, 3]));
        let delta = prims::sum(prims::mul(accumulating(d_out), out), [3]);
        let d_scores = prims::mul(weights, prims::sub(d_weights, spread(delta)));
        let four = extents_of_mask(&mask.shape());
        let same: Vec<usize> = (0..4).filter(|dim| four[*dim] == 1 && extents[*dim] > 1).collect();
        let sum = if same.is_empty() { d_scores } else { prims::sum(d_scores, same) };
        cast(prims::reshape(sum, mask.shape()), mask.dtype())
    }
}

by_both!(fulgurite_ops::nn::scaled_dot_product_attention, attention_by_flash, attention_by_flash_tf32, {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        attn_mask: Option<&TensorMeta>,
        dropout_p: f64,
        is_causal: bool,
        enable_gqa: bool,
        generator: Option<&TensorMeta>,
    ) -> Claim {
        precision::takes(query)?;
        claims_heads(query, key, value, enable_gqa)?;
        let batches = query.rank().saturating_sub(3);
        let [query, key, value] = [query, key, value].map(meta_as_four);
        kernels_fit(&query, &key, &value)?;
        let mask = match attn_mask {
            Some(mask) => {
                // The batch of the kernels is that of all leading dimensions.
                refuse_unless!(mask.rank() <= 4, "attn_mask is {mask}, takes masks of at most four dimensions");
                let one_batch = mask.rank() < 4 || batches <= 1;
                refuse_unless!(one_batch, "query is {query} with attn_mask {mask}, takes one dimension of batches");
                Some(mask.with_shape(super::extents_of_mask(mask.shape())))
            }
            None => None,
        };
        let changes = ChangesMeta {
            mask: mask.as_ref(),
            lengths: None,
            generator,
            is_causal,
            window: None,
            cap: None,
            dropout_p,
        };
        changes.fit(&query, &key)
    }

    fn execution(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Option<Tensor>,
        dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        generator: Option<Tensor>,
    ) -> Tensor {
        let [q, k, v] = [query, key, value].map(as_four);
        let (mask, scale) = (attn_mask.map(super::mask_as_four), factor(query, scale));
        let generator = generator.filter(|_| dropout_p > 0.0);
        let tf32 = precision::TF32;
        let call = super::Call { query: q, key: k, value: v, mask, generator, dropout_p, is_causal, scale, tf32 };
        as_before(call.forward().0, query)
    }

    fn grad(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Option<Tensor>,
        dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        generator: Option<Tensor>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let [q, k, v] = [query, key, value].map(as_four);
        let (mask, scale) = (attn_mask.map(super::mask_as_four), factor(query, scale));
        let generator = generator.filter(|_| dropout_p > 0.0);
        let tf32 = precision::TF32;
        let call = super::Call { query: q, key: k, value: v, mask, generator, dropout_p, is_causal, scale, tf32 };
        let (out, log_sums) = call.forward();
        (as_before(out, query), move |d_out: Tensor| {
            let d_out = as_four(d_out);
            let (d_query, d_key, d_value) = call.backward(d_out, out, log_sums);
            let numbers = attn_mask.filter(|mask| mask.dtype().is_floating() && wants_gradient(*mask));
            Grads {
                query: as_before(d_query, query),
                key: as_before(d_key, key),
                value: as_before(d_value, value),
                attn_mask: numbers.map(|mask| call.gradient_of_mask(mask, d_out, out, log_sums)),
            }
        })
    }
});

by_both!(fulgurite_ops::nn::windowed_attention, windowed_by_flash, windowed_by_flash_tf32, {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        lengths: Option<&TensorMeta>,
        is_causal: bool,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> Claim {
        precision::takes(query)?;
        kernels_fit(query, key, value)?;
        let none = ChangesMeta { mask: None, lengths, generator: None, is_causal, window, cap, dropout_p: 0.0 };
        none.fit(query, key)
    }

    fn execution(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Option<Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> Tensor {
        let call = attention::with(query, key, value, is_causal, factor(query, scale));
        as_before(call.lengths(lengths).window(window).cap(cap).tf32(precision::TF32).call().0, query)
    }

    fn grad(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Option<Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let scale = factor(query, scale);
        let call = attention::with(query, key, value, is_causal, scale);
        let (out, log_sums) = call.lengths(lengths).window(window).cap(cap).tf32(precision::TF32).call();
        (as_before(out, query), move |d_out: Tensor| {
            let call = attention_backward::with(d_out, query, key, value, out, log_sums, is_causal, scale);
            let (d_query, d_key, d_value) = call.lengths(lengths).window(window).cap(cap).tf32(precision::TF32).call();
            Grads { query: as_before(d_query, query), key: as_before(d_key, key), value: as_before(d_value, value) }
        })
    }
});
