use fulgurite_ops_macros::rewrite;

use super::{scaled_dot_product_attention, softmax};
use crate::core::{eq, masked_fill, matmul, ones, transpose, tril};

/// Causal attention that is written out: products, a triangle of ones as mask, a softmax. As one operator it may run as
/// one kernel, and its scores need not be written to memory.
#[rewrite(default)]
pub mod attention_by_hand {
    fn pattern(query: Tensor, key: Tensor, value: Tensor) -> Tensor {
        let scale = 1.0 / (query.size(-1) as f64).sqrt();
        let scores = matmul(query, transpose(key, -2, -1)) * scale;
        let ones = ones::with([query.size(-2), key.size(-2)]).device(query.device()).call();
        let hidden = eq(tril(ones), 0);
        matmul(softmax(masked_fill(scores, hidden, f64::NEG_INFINITY), -1), value)
    }

    fn replacement(query: Tensor, key: Tensor, value: Tensor) -> Tensor {
        scaled_dot_product_attention::with(query, key, value).is_causal(true).call()
    }

    fn condition(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
        // The products may broadcast more than the operator does.
        let same = query.rank() == key.rank() && key.rank() == value.rank();
        refuse_unless!(same && query.rank() >= 2, "query, key and value are of different ranks");
        // Its scale is infinite by hand, and 1 for the operator.
        refuse_unless!(query.shape().last() != Some(&0), "the width is 0");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 5, 4]), s.normal([2, 3, 5, 4]), s.normal([2, 3, 5, 4])));
        s.case(with(s.normal([1, 7, 8]), s.normal([1, 7, 8]), s.normal([1, 7, 3])));
        s.case(with(s.normal([2, 4]), s.normal([6, 4]), s.normal([6, 5])));
        s.case(with(s.normal([3, 1]), s.normal([4, 1]), s.normal([4, 2])));
    }
}
