/// Applies the rotation to queries and keys at once.
#[rewrite(default)]
mod merge_rope {
    fn pattern(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        (apply_rope(q, cos, sin), apply_rope(k, cos, sin))
    }

    fn replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        rope(q, k, cos, sin)
    }

    fn condition(q: &TensorMeta, k: &TensorMeta) -> Claim {
        refuse_unless!(q.dtype() == k.dtype(), "q and k differ in dtype");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 4]), s.normal([2, 4]), s.normal([4]), s.normal([4])));
    }
}
