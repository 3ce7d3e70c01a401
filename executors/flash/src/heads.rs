//! Heads that are read through their strides. Executors that copy them, as llm.c does, come later in the list.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::precision::Precision;

use super::{flash, flash_tf32, takes};
use fulgurite_ops::core::promotion::constant_like;
use fulgurite_ops::nn::{heads_apart, heads_beside};
use fulgurite_ops::prims;

#[implementation(of = fulgurite_ops::nn::split_heads, by = [flash, flash_tf32])]
mod split_heads_by_flash {
    fn checker(input: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input)
    }

    fn execution(input: Tensor, n_head: usize) -> (Tensor, Tensor, Tensor) {
        heads_apart(input, n_head)
    }

    fn grad(
        Args { input, n_head }: Args<Tensor>,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let out = heads_apart(input, n_head);
        (out, move |(d_query, d_key, d_value): (Option<Tensor>, Option<Tensor>, Option<Tensor>)| {
            let part = |d: Option<Tensor>| heads_beside(d.unwrap_or_else(|| constant_like(out.0, 0.0)));
            Grads { input: prims::cat([part(d_query), part(d_key), part(d_value)], 2) }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::merge_heads, by = [flash, flash_tf32])]
mod merge_heads_by_flash {
    fn checker(input: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input)
    }

    fn execution(input: Tensor) -> Tensor {
        heads_beside(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (heads_beside(input), move |d_out: Tensor| {
            let [batch, heads, length, size] = [0, 1, 2, 3].map(|dim| input.size(dim));
            Grads { input: prims::permute(prims::reshape(d_out, [batch, length, heads, size]), [0, 2, 1, 3]) }
        })
    }
}
