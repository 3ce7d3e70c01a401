//! Attention with windows, caps and key lengths by the kernels of attention.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{Tensor, TensorMeta};

use super::attention::{Call, kernels_fit};
use super::cpu;
use fulgurite_ops::core::attention::{as_before, factor};
use fulgurite_ops::nn::attention_changes::ChangesMeta;

#[implementation(of = fulgurite_ops::nn::windowed_attention, by = cpu)]
mod windowed_attention_by_cpu {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        lengths: Option<&TensorMeta>,
        is_causal: bool,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> Claim {
        let (mask, generator, dropout_p) = (None, None, 0.0);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        kernels_fit(query, key, value, &changes)
    }

    #[track_caller]
    fn call_of(
        [query, key, value]: [Tensor; 3],
        lengths: Option<Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        window: Option<i64>,
        cap: Option<f64>,
    ) -> Call {
        let (scale, mask, generator, dropout_p) = (factor(query, scale), None, None, 0.0);
        Call { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p }
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
        as_before(call_of([query, key, value], lengths, is_causal, scale, window, cap).forward().0, query)
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
        let call = call_of([query, key, value], lengths, is_causal, scale, window, cap);
        let (out, log_sums) = call.forward();
        (as_before(out, query), move |d_out: Tensor| {
            let (d_query, d_key, d_value) = call.backward(d_out, out, log_sums);
            Grads { query: as_before(d_query, query), key: as_before(d_key, key), value: as_before(d_value, value) }
        })
    }
}
