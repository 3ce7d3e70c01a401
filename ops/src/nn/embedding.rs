use fulgurite_ops_macros::operator;

use crate::core::arrays::rearranged;
use crate::core::detach;
use crate::core::promotion::{broadcast, differs_from};
use crate::prims;

/// The rows of `weight` [V, C] that `input` names: input of any shape, out [..., C]. The gradient adds the rows of one
/// index in the order of `input`; the row `padding_idx` gets none. An index out of range is an error when the
/// program runs.
#[operator(torch = "nn.functional.embedding", waive(padding_idx = "it decides about the gradient of weight alone"))]
pub mod embedding {
    fn embedding(input: Tensor<Integer>, weight: Tensor, #[default(None)] padding_idx: Option<i64>) -> Tensor;

    fn meta(input: &TensorMeta, weight: &TensorMeta, padding_idx: Option<i64>) -> Result<TensorMeta> {
        require!(weight.rank() == 2, WeightRank, "weight has shape {:?}, expected [rows, channels]", weight.shape());
        let rows = weight.shape()[0] as i64;
        if let Some(index) = padding_idx {
            require!(
                (-rows..rows).contains(&index),
                PaddingIndex,
                "padding_idx is {index}, expected {} to {}",
                -rows,
                rows - 1
            );
        }
        let mut shape = input.shape().to_vec();
        shape.push(weight.shape()[1]);
        Ok(weight.with_shape(shape))
    }

    fn decomposition(input: Tensor, weight: Tensor, padding_idx: Option<i64>) -> Tensor {
        let mut shape = input.shape().to_vec();
        let count: usize = shape.iter().product();
        shape.push(weight.size(1));
        let index = prims::reshape(input, [count]);
        let mut rows = prims::index_select(weight, 0, index);
        if let Some(padding) = padding_idx
            && weight.dtype().is_floating()
        {
            // A constant for derivatives: what opens the operator has the same gradient.
            rows = prims::select(kept_rows(index, padding, weight), rows, detach(rows));
        }
        prims::reshape(rows, shape)
    }

    /// Whether each row of [count, C] is another one than `padding` of `weight`.
    fn kept_rows(index: Tensor, padding: i64, weight: Tensor) -> Tensor {
        let padding = if padding < 0 { padding + weight.size(0) as i64 } else { padding };
        let count = index.size(0);
        let kept = prims::reshape(differs_from(index, padding), [count, 1]);
        broadcast(kept, &[count, weight.size(1)])
    }

    fn grad(input: Tensor, weight: Tensor, padding_idx: Option<i64>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, weight).padding_idx(padding_idx).call();
        (out, move |d_out: Tensor| {
            let (rows, channels) = (weight.size(0), weight.size(1));
            let count: usize = input.shape().iter().product();
            let index = prims::reshape(input, [count]);
            let mut d_rows = prims::reshape(d_out, [count, channels]);
            if let Some(padding) = padding_idx {
                d_rows = prims::select(kept_rows(index, padding, weight), d_rows, 0.0);
            }
            let zeros = prims::full([rows, channels], 0.0, weight.dtype(), weight.device());
            Grads { weight: prims::index_add(zeros, 0, index, d_rows) }
        })
    }

    fn reference(input: &ArrayD<i64>, weight: &ReferenceTensor) -> Result<ReferenceTensor> {
        let rows = weight.shape()[0] as i64;
        if let Some(index) = input.iter().find(|index| !(0..rows).contains(*index)) {
            return Err(Failure::new("IndexOutOfRange", format!("input holds {index}, weight has {rows} rows")));
        }
        let mut shape = input.shape().to_vec();
        shape.push(weight.shape()[1]);
        Ok(rearranged(weight, &shape, 0.0, |at| {
            let (last, rest) = at.split_last()?;
            Some(vec![input[rest] as usize, *last])
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.integers(0, 7, [4, 3]), s.normal([7, 5])));
        s.case(with(s.integers(0, 7, []), s.normal([7, 5])));
        s.case(with(s.integers(0, 7, [0]), s.normal([7, 5])));
        s.case(with(s.integers(0, 50, [67]).cast(DType::I32), s.normal([50, 65])));
        s.case(with(s.integers(0, 3, [9]), s.normal([3, 4])).padding_idx(1))
            .forward_only("padding_idx changes the gradient alone, which is then not that of the function");
        for (padding, gradient) in [
            (0, [0.0, 0.0, 5.0, 6.0, 10.0, 12.0]),
            (1, [1.0, 2.0, 0.0, 0.0, 10.0, 12.0]),
            (-1, [1.0, 2.0, 5.0, 6.0, 0.0, 0.0]),
            (-3, [0.0, 0.0, 5.0, 6.0, 10.0, 12.0]),
        ] {
            let input = s.values([4], [0.0, 2.0, 1.0, 2.0]).cast(DType::I64);
            s.case(with(input, s.normal([3, 2])).padding_idx(padding))
                .forward_only("the gradient is not that of the function")
                .gradients([&gradient]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(WeightRank, with(e.integers(0, 2, [2]), e.normal([2])), "weight has shape [2]");
        e.case(PaddingIndex, with(e.integers(0, 2, [2]), e.normal([2, 3])).padding_idx(2), "expected -2 to 1");
        e.case(PaddingIndex, with(e.integers(0, 2, [2]), e.normal([2, 3])).padding_idx(-3), "expected -2 to 1");
        for index in [2.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(index, e.normal([2, 3])), "of size 2");
        }
    }
}
