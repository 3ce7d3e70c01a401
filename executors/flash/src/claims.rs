//! What `flash` and `flash_tf32` take of the operators of attention.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::tracer::wants_gradient;
use fulgurite_runtime::{Tensor, TensorMeta, refuse_unless};

use super::changes::changes_fit;
use super::symbols::{attention, attention_backward, kernels_fit};
use super::{flash, flash_tf32, takes};
use fulgurite_ops::core::attention::{
    as_before, as_four, claims_heads, extents_of_mask, factor, mask_as_four, meta_as_four,
};
use fulgurite_ops::nn::attention_changes::{ChangesMeta, Numbers};
use fulgurite_ops::nn::scaled_dot_product_attention;
use fulgurite_ops::with_changes;

impl attention::Args<Tensor> {
    /// The call that computes scaled_dot_product_attention.
    #[track_caller]
    fn of_dot_products(args: &scaled_dot_product_attention::Args<Tensor>, tf32: bool) -> attention::Args<Tensor> {
        let [query, key, value] = [args.query, args.key, args.value].map(as_four);
        attention::Args {
            query,
            key,
            value,
            is_causal: args.is_causal,
            scale: factor(args.query, args.scale),
            mask: args.attn_mask.map(mask_as_four),
            lengths: None,
            generator: args.generator.filter(|_| args.dropout_p > 0.0),
            window: None,
            cap: None,
            dropout_p: args.dropout_p,
            tf32,
        }
    }

    /// The gradients for query, key and value.
    #[track_caller]
    fn backward(&self, d_out: Tensor, out: Tensor, log_sums: Tensor) -> (Tensor, Tensor, Tensor) {
        let attention::Args { query, key, value, is_causal, scale, tf32, .. } = *self;
        let call = attention_backward::with(d_out, query, key, value, out, log_sums, is_causal, scale).tf32(tf32);
        with_changes!(call, self).call()
    }

    /// The parts of the gradient of a mask of numbers. The generator is absent where nothing is dropped.
    fn of_numbers(&self, mask: Tensor) -> Numbers {
        let attention::Args { query, key, value, generator, dropout_p, scale, .. } = *self;
        let dropped = generator.map(|generator| (generator, dropout_p));
        Numbers { mask, query, key, value, dropped, scale }
    }
}

#[implementation(of = fulgurite_ops::nn::scaled_dot_product_attention, by = [flash, flash_tf32])]
mod attention_by_flash {
    fn checker(args: Args<&TensorMeta>, precision: Precision) -> Claim {
        let Args { query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, generator, .. } = args;
        takes(precision, query)?;
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
        let (mask, lengths, window, cap) = (mask.as_ref(), None, None, None);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        changes_fit(&changes, &query, &key)
    }

    fn execution(args: Args<Tensor>, precision: Precision) -> Tensor {
        as_before(attention::Args::of_dot_products(&args, precision == Precision::Tf32).call().0, args.query)
    }

    fn grad(args: Args<Tensor>, precision: Precision) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let call = attention::Args::of_dot_products(&args, precision == Precision::Tf32);
        let (out, log_sums) = call.call();
        let Args { query, key, value, attn_mask, .. } = args;
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
}

#[implementation(of = fulgurite_ops::nn::windowed_attention, by = [flash, flash_tf32])]
mod windowed_by_flash {
    fn checker(
        Args { query, key, value, lengths, is_causal, window, cap, .. }: Args<&TensorMeta>,
        precision: Precision,
    ) -> Claim {
        takes(precision, query)?;
        kernels_fit(query, key, value)?;
        let none = ChangesMeta { mask: None, lengths, generator: None, is_causal, window, cap, dropout_p: 0.0 };
        changes_fit(&none, query, key)
    }

    fn execution(
        Args { query, key, value, lengths, is_causal, scale, window, cap }: Args<Tensor>,
        precision: Precision,
    ) -> Tensor {
        let call = attention::with(query, key, value, is_causal, factor(query, scale));
        as_before(call.lengths(lengths).window(window).cap(cap).tf32(precision == Precision::Tf32).call().0, query)
    }

    fn grad(args: Args<Tensor>, precision: Precision) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { query, key, value, lengths, is_causal, scale, window, cap } = args;
        let scale = factor(query, scale);
        let call = attention::with(query, key, value, is_causal, scale);
        let (out, log_sums) = call.lengths(lengths).window(window).cap(cap).tf32(precision == Precision::Tf32).call();
        (as_before(out, query), move |d_out: Tensor| {
            let call = attention_backward::with(d_out, query, key, value, out, log_sums, is_causal, scale);
            let (d_query, d_key, d_value) =
                call.lengths(lengths).window(window).cap(cap).tf32(precision == Precision::Tf32).call();
            Grads { query: as_before(d_query, query), key: as_before(d_key, key), value: as_before(d_value, value) }
        })
    }
}
