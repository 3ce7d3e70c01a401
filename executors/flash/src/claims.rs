//! What `flash` and `flash_tf32` take of the operators of attention.

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::tracer::wants_gradient;
use fulgurite_runtime::{Tensor, TensorMeta, refuse_unless};

use super::by_both;
use super::changes::changes_fit;
use super::symbols::{attention, attention_backward, kernels_fit};
use fulgurite_ops::core::attention::{
    as_before, as_four, claims_heads, extents_of_mask, factor, mask_as_four, meta_as_four,
};
use fulgurite_ops::nn::attention_changes::{ChangesMeta, Numbers};

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

    fn of_numbers(self, mask: Tensor) -> Numbers {
        let Call { query, key, value, generator, dropout_p, scale, .. } = self;
        Numbers {
            mask,
            bases: None,
            query,
            key,
            value,
            dropped: generator.map(|generator| (generator, dropout_p)),
            scale,
        }
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
                Some(mask.with_shape(extents_of_mask(mask.shape())))
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
        changes_fit(&changes, &query, &key)
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
        let (mask, scale) = (attn_mask.map(mask_as_four), factor(query, scale));
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
        let (mask, scale) = (attn_mask.map(mask_as_four), factor(query, scale));
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
                attn_mask: numbers.map(|mask| call.of_numbers(mask).gradient(d_out, log_sums)),
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
        changes_fit(&none, query, key)
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
