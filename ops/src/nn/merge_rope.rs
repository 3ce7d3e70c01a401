use fulgurite_ops_macros::rewrite;

use super::{apply_rope, rope};

/// Rotates queries and keys at once: two `apply_rope` with the same `cos` and the same `sin`, neither of which needs
/// the other's result, become one `rope`, where an executor has a kernel for it.
#[rewrite(default, claimed)]
pub mod merge_rope {
    fn pattern(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        (apply_rope(q, cos, sin), apply_rope(k, cos, sin))
    }

    fn replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        rope(q, k, cos, sin)
    }

    fn condition(q: &TensorMeta, k: &TensorMeta) -> Claim {
        refuse_unless!(q.dtype() == k.dtype(), "q is {}, k is {}", q.dtype(), k.dtype());
        Ok(())
    }

    fn samples(s: &mut Samples) {
        let table = |shape: &[usize]| s.uniform(-1.0, 1.0, shape);
        let grouped = with(s.normal([2, 6, 4, 8]), s.normal([2, 2, 4, 8]), table(&[4, 8]), table(&[4, 8]));
        let ranks = with(s.normal([5, 2]), s.normal([3, 5, 2]), table(&[5, 2]), table(&[2]));
        let mixed = with(s.normal([3, 4]), s.of(DType::BF16, [3, 4]), table(&[4]), table(&[4]));
        for sample in [grouped, ranks, mixed] {
            s.case(sample);
        }
    }
}
