//! Heads that are read where they lie. Executors that copy them, as llm.c does, stand behind in the list.

use fulgurite::Tensor;

use super::by_both;
use crate::core::promotion::constant_like;
use crate::prims;

/// Views of the queries, keys and values [B, H, T, D] in [B, T, 3 H D].
fn split(input: Tensor, n_head: usize) -> (Tensor, Tensor, Tensor) {
    let [batch, length, channels] = [input.size(0), input.size(1), input.size(2) / 3];
    let part = |i: usize| {
        let part = prims::slice(input, [0, 0, i * channels], [batch, length, (i + 1) * channels], [1, 1, 1]);
        prims::permute(prims::reshape(part, [batch, length, n_head, channels / n_head]), [0, 2, 1, 3])
    };
    (part(0), part(1), part(2))
}

/// [B, T, H D] of [B, H, T, D]; a view of what the kernels write.
fn merge(input: Tensor) -> Tensor {
    let [batch, heads, length, size] = [0, 1, 2, 3].map(|dim| input.size(dim));
    prims::reshape(prims::permute(input, [0, 2, 1, 3]), [batch, length, heads * size])
}

by_both!(crate::nn::split_heads, split_heads_by_flash, split_heads_by_flash_tf32, {
    fn checker(input: &TensorMeta) -> Claim {
        precision::takes(input)
    }

    fn execution(input: Tensor, n_head: usize) -> (Tensor, Tensor, Tensor) {
        super::split(input, n_head)
    }

    fn grad(
        input: Tensor,
        n_head: usize,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let out = super::split(input, n_head);
        (out, move |(d_q, d_k, d_v): (Option<Tensor>, Option<Tensor>, Option<Tensor>)| {
            let part = |d: Option<Tensor>| super::merge(d.unwrap_or_else(|| constant_like(out.0, 0.0)));
            Grads { input: prims::cat([part(d_q), part(d_k), part(d_v)], 2) }
        })
    }
});

by_both!(crate::nn::merge_heads, merge_heads_by_flash, merge_heads_by_flash_tf32, {
    fn checker(input: &TensorMeta) -> Claim {
        precision::takes(input)
    }

    fn execution(input: Tensor) -> Tensor {
        super::merge(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (super::merge(input), move |d_out: Tensor| {
            let [batch, heads, length, size] = [0, 1, 2, 3].map(|dim| input.size(dim));
            Grads { input: prims::permute(prims::reshape(d_out, [batch, length, heads, size]), [0, 2, 1, 3]) }
        })
    }
});
