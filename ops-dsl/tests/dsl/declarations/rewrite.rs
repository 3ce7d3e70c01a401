/// Applies the rotation to queries and keys at once.
#[rewrite(default)]
mod merge_rope {
    fn pattern(
        q: Tensor,
        k: Tensor,
        #[rank(1..=2)] cos: Tensor,
        #[rank(1..)] sin: Tensor,
        interleaved: bool,
    ) -> (Tensor, Tensor) {
        (apply_rope(q, cos, sin, interleaved), apply_rope(k, cos, sin, interleaved))
    }

    fn replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> (Tensor, Tensor) {
        rope(q, k, cos, sin, interleaved)
    }

    fn condition(q: &TensorMeta, k: &TensorMeta, interleaved: bool) -> Claim {
        refuse_unless!(q.dtype() == k.dtype(), "q and k differ in dtype");
        refuse_unless!(!interleaved, "pairs are interleaved");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 4]), s.normal([2, 4]), s.normal([4]), s.normal([4]), false));
    }
}
