//! Attention with windows, caps and key lengths by the kernels of attention.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{Tensor, TensorMeta};

use super::attention::{attention, kernels_fit};
use super::cpu;
use fulgurite_ops::core::attention::{as_before, factor};
use fulgurite_ops::nn::attention_changes::ChangesMeta;

#[implementation(of = fulgurite_ops::nn::windowed_attention, by = cpu)]
mod windowed_attention_by_cpu {
    fn checker(Args { query, key, value, lengths, is_causal, window, cap, .. }: Args<&TensorMeta>) -> Claim {
        let (mask, generator, dropout_p) = (None, None, 0.0);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        kernels_fit(query, key, value, &changes)
    }

    #[track_caller]
    fn call_of(args: &Args<Tensor>) -> attention::Args<Tensor> {
        let Args { query, key, value, lengths, is_causal, window, cap, .. } = *args;
        let (scale, mask, generator, dropout_p) = (factor(query, args.scale), None, None, 0.0);
        attention::Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p }
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        as_before(call_of(&args).call().0, args.query)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let call = call_of(&args);
        let (out, log_sums) = call.call();
        let Args { query, key, value, .. } = args;
        (as_before(out, query), move |d_out: Tensor| {
            let (d_query, d_key, d_value) = call.backward(d_out, out, log_sums);
            Grads { query: as_before(d_query, query), key: as_before(d_key, key), value: as_before(d_value, value) }
        })
    }
}
