use fulgurite::prelude::*;

/// PLACEHOLDER: describe the pattern and its replacement, and why the replacement is better.
#[rewrite]
pub mod placeholder_rewrite {
    // PLACEHOLDER: the pattern to find. What occurs twice must be the same twice. `scale` stands for any number that a
    // program has there; other attributes are literals. `#[rank(2)]` before a tensor says how many dimensions it has.
    fn pattern(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        mul(add(x, y), scale)
    }

    // PLACEHOLDER: the replacement. The generated test fails until the two agree.
    fn replacement(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        mul(sub(x, y), scale)
    }

    // PLACEHOLDER: which matches to refuse, and why: `trace show --explain` prints the reason. Remove it if there are
    // none.
    fn condition(x: &TensorMeta, scale: f64) -> Claim {
        refuse_unless!(x.dtype() != DType::F64, "x is {x}, f64 is refused");
        refuse_unless!(scale.is_finite(), "scale is {scale}, takes finite numbers");
        Ok(())
    }

    // PLACEHOLDER: inputs on which both sides must agree, forward and backward.
    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), 0.5));
    }
}
