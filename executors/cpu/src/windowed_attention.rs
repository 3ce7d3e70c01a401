//! Attention with windows and key lengths by the kernels of attention, with a mask of booleans.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::attention::{attention, attention_backward, kernels_fit};
use super::cpu;
use fulgurite_ops::core::attention::{as_before, factor, seen_keys};
use fulgurite_ops::prims;

/// What the kernels are told of who sees whom: a mask of booleans, or that position i sees 0 to i.
#[derive(Clone, Copy)]
struct Seen {
    mask: Option<Tensor>,
    is_causal: bool,
}

impl Seen {
    #[track_caller]
    fn of(query: Tensor, key: Tensor, lengths: Option<Tensor>, is_causal: bool, window: Option<i64>) -> Seen {
        if window.is_none() && lengths.is_none() {
            return Seen { mask: None, is_causal };
        }
        let rows = if lengths.is_some() { query.size(0) } else { 1 };
        let (length, positions) = (query.size(2), key.size(2));
        let seen = seen_keys([rows, length, positions], query.device(), lengths, is_causal, window);
        // Causality is part of it.
        Seen { mask: seen.map(|seen| prims::reshape(seen, [rows, 1, length, positions])), is_causal: false }
    }
}

#[implementation(of = fulgurite_ops::nn::windowed_attention, by = cpu)]
mod windowed_attention_by_cpu {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        lengths: Option<&TensorMeta>,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> Claim {
        if let Some(cap) = cap {
            refuse_unless!(false, "has no caps of scores, cap is {cap}");
        }
        let mask = (lengths.is_some() || window.is_some()).then(|| {
            let rows = if lengths.is_some() { query.shape()[0] } else { 1 };
            TensorMeta::new([rows, 1, query.shape()[2], key.shape()[2]], DType::Bool, query.device())
        });
        kernels_fit(query, key, value, mask.as_ref())
    }

    fn execution(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Option<Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        window: Option<i64>,
        _cap: Option<f64>,
    ) -> Tensor {
        let seen = Seen::of(query, key, lengths, is_causal, window);
        as_before(attention(query, key, value, seen.mask, seen.is_causal, factor(query, scale)).0, query)
    }

    fn grad(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Option<Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        window: Option<i64>,
        _cap: Option<f64>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Seen { mask, is_causal } = Seen::of(query, key, lengths, is_causal, window);
        let scale = factor(query, scale);
        let (out, log_sums) = attention(query, key, value, mask, is_causal, scale);
        (as_before(out, query), move |d_out: Tensor| {
            let (d_query, d_key, d_value) =
                attention_backward(d_out, query, key, value, out, log_sums, mask, is_causal, scale);
            Grads { query: as_before(d_query, query), key: as_before(d_key, key), value: as_before(d_value, value) }
        })
    }
}
