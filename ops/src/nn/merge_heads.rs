use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::prims;

/// The heads of [B, H, T, D] side by side: [B, T, H D]. llm.c calls it unpermute.
#[operator]
pub mod merge_heads {
    fn merge_heads(input: Tensor<Floating>) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(input.rank() == 4, InputRank, "input has shape {:?}, expected [B, H, T, D]", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor) -> Tensor {
        heads_beside(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let shape = input.shape();
        let size = shape[3];
        ArrayD::from_shape_fn(IxDyn(&[shape[0], shape[2], shape[1] * size]), |at| {
            input[[at[0], at[2] / size, at[1], at[2] % size]]
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4, 5])));
        s.case(with(s.normal([1, 1, 7, 3])));
        s.case(with(s.normal([2, 3, 0, 5])));
        s.case(with(s.normal([3, 4, 9, 8])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([2, 3, 4])), "input has shape [2, 3, 4], expected [B, H, T, D]");
    }
}

/// The result of [`mod@merge_heads`]; a view if the heads of a position are adjacent in memory.
#[track_caller]
pub fn heads_beside(input: Tensor) -> Tensor {
    let (batch, heads, length, size) = (input.size(0), input.size(1), input.size(2), input.size(3));
    prims::reshape(prims::permute(input, [0, 2, 1, 3]), [batch, length, heads * size])
}
