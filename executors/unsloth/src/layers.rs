//! Layers whose contracts are Liger's as well: its symbols run them.

use fulgurite_ops_macros::implementation;

use super::unsloth;
use fulgurite_executor_liger as liger;
use fulgurite_ops::core::promotion::constant_like;
use fulgurite_ops::nn::{Approximate, Casting, rope_table_gradients};
use fulgurite_ops::prims;

#[implementation(of = fulgurite_ops::nn::swiglu, by = unsloth)]
mod swiglu_by_unsloth {
    fn checker(gate: &TensorMeta) -> Claim {
        liger::takes("gate", gate)
    }

    fn execution(gate: Tensor, up: Tensor) -> Tensor {
        liger::swiglu(gate, up)
    }

    fn grad(gate: Tensor, up: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (liger::swiglu(gate, up), move |d_out: Tensor| {
            let (gate, up) = liger::swiglu_backward(gate, up, d_out);
            Grads { gate, up }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::geglu, by = unsloth)]
mod geglu_by_unsloth {
    fn checker(gate: &TensorMeta) -> Claim {
        liger::takes("gate", gate)
    }

    fn execution(gate: Tensor, up: Tensor, approximate: Approximate) -> Tensor {
        liger::geglu(gate, up, approximate)
    }

    fn grad(gate: Tensor, up: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (liger::geglu(gate, up, approximate), move |d_out: Tensor| {
            let (gate, up) = liger::geglu_backward(gate, up, d_out, approximate);
            Grads { gate, up }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::rope, by = unsloth)]
mod rope_by_unsloth {
    fn checker(q: &TensorMeta, k: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Claim {
        liger::rope_fits(q, k, cos, sin)
    }

    fn execution(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        liger::rope(q, k, cos, sin, false)
    }

    fn grad(args: Args<Tensor>) -> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads) {
        let Args { q, k, cos, sin } = args;
        let out = liger::rope(q, k, cos, sin, false);
        (out, move |(d_query, d_key): (Option<Tensor>, Option<Tensor>)| {
            let d_query = d_query.unwrap_or_else(|| constant_like(out.0, 0.0));
            let d_key = d_key.unwrap_or_else(|| constant_like(out.1, 0.0));
            let (d_q, d_k) = liger::rope(d_query, d_key, cos, sin, true);
            let [of_query, of_key] =
                [(d_query, q), (d_key, k)].map(|(d_out, input)| rope_table_gradients(d_out, input, cos, sin));
            let [d_cos, d_sin] = [0, 1].map(|table: usize| prims::add(of_query[table], of_key[table]));
            Grads { q: d_q, k: d_k, cos: d_cos, sin: d_sin }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::rms_norm, by = unsloth)]
mod rms_norm_by_unsloth {
    fn checker(Args { input, normalized_shape, weight, offset, casting, .. }: Args<&TensorMeta>) -> Claim {
        let Some(weight) = weight else {
            return Err("takes a weight".into());
        };
        refuse_unless!(offset == 0.0 || offset == 1.0, "offset is {offset}, takes 0, and 1 as Gemma has it");
        refuse_unless!(casting != Casting::None, "computes the statistics in f32");
        liger::rms_norm_fits(input, &normalized_shape, weight)
    }

    fn execution(Args { input, normalized_shape, weight, eps, offset, casting }: Args<Tensor>) -> Tensor {
        let weight = liger::given(weight);
        liger::rms_norm(input, normalized_shape, weight, liger::eps_or_default(input, eps), offset, casting).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, normalized_shape, weight, eps, offset, casting } = args;
        let (weight, eps) = (liger::given(weight), liger::eps_or_default(input, eps));
        let (out, rstd) = liger::rms_norm(input, &normalized_shape, weight, eps, offset, casting);
        let of = liger::Normalized { input, shape: normalized_shape, weight, rstd, offset, casting };
        (out, move |d_out: Tensor| {
            let (d_input, d_weight) = liger::rms_norm_gradients(d_out, of);
            Grads { input: d_input, weight: d_weight }
        })
    }
}
