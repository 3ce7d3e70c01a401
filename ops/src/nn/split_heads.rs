use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::promotion::constant_like;
use crate::nn::merge_heads;
use crate::prims;

/// Queries, keys and values of all heads from one tensor [B, T, 3 C]: three tensors [B, H, T, C / H]. llm.c calls it
/// permute.
#[operator]
pub mod split_heads {
    #[results(query, key, value)]
    fn split_heads(input: Tensor<Floating>, n_head: usize) -> (Tensor, Tensor, Tensor);

    fn requires(input: &TensorMeta, n_head: usize) -> Result<()> {
        require!(input.rank() == 3, InputRank, "input has shape {:?}, expected [B, T, 3 C]", input.shape());
        let width = input.shape()[2];
        require!(
            n_head > 0 && width.is_multiple_of(3) && (width / 3).is_multiple_of(n_head),
            Heads,
            "input's last extent is {width}, expected a multiple of 3 times n_head, which is {n_head}"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, n_head: usize) -> (Tensor, Tensor, Tensor) {
        heads_apart(input, n_head)
    }

    fn grad(
        Args { input, n_head }: Args<Tensor>,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let out = split_heads(input, n_head);
        (out, move |(d_query, d_key, d_value): (Option<Tensor>, Option<Tensor>, Option<Tensor>)| {
            let part = |d: Option<Tensor>| merge_heads(d.unwrap_or_else(|| constant_like(out.0, 0.0)));
            Grads { input: prims::cat([part(d_query), part(d_key), part(d_value)], 2) }
        })
    }

    fn reference(input: &ArrayD<f64>, n_head: usize) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (batch, length, channels) = (input.shape()[0], input.shape()[1], input.shape()[2] / 3);
        let size = channels / n_head;
        let part = |i: usize| {
            ArrayD::from_shape_fn(IxDyn(&[batch, n_head, length, size]), |at| {
                input[[at[0], at[2], i * channels + at[1] * size + at[3]]]
            })
        };
        (part(0), part(1), part(2))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 12]), 2));
        s.case(with(s.normal([1, 5, 9]), 3));
        s.case(with(s.normal([2, 0, 12]), 2));
        s.case(with(s.normal([3, 7, 30]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([3, 12]), 2), "expected [B, T, 3 C]");
        e.case(Heads, with(e.normal([2, 3, 12]), 3), "a multiple of 3 times n_head, which is 3");
        e.case(Heads, with(e.normal([2, 3, 12]), 0), "which is 0");
        e.case(Heads, with(e.normal([2, 3, 0]), 0), "which is 0");
        e.case(Heads, with(e.normal([2, 3, 10]), 3), "input's last extent is 10");
    }
}

/// The three tensors of [`mod@split_heads`], as views of its input.
#[track_caller]
pub fn heads_apart(input: Tensor, n_head: usize) -> (Tensor, Tensor, Tensor) {
    let (batch, length, width) = (input.size(0), input.size(1), input.size(2));
    let channels = width / 3;
    let part = |i: usize| {
        let part = prims::slice(input, [0, 0, i * channels], [batch, length, (i + 1) * channels], [1, 1, 1]);
        let heads = prims::reshape(part, [batch, length, n_head, channels / n_head]);
        prims::permute(heads, [0, 2, 1, 3])
    };
    (part(0), part(1), part(2))
}
