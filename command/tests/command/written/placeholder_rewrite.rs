use fulgurite::prelude::*;

/// PLACEHOLDER: describe the pattern and its replacement, and why the replacement is better.
#[rewrite]
pub mod placeholder_rewrite {
    // PLACEHOLDER: the pattern to find. Attributes are literals; a tensor that occurs twice must be the same value
    // twice.
    fn pattern(x: Tensor, y: Tensor) -> Tensor {
        neg(add(x, y))
    }

    // PLACEHOLDER: the replacement. The generated test fails until the two agree.
    fn replacement(x: Tensor, y: Tensor) -> Tensor {
        sub(x, y)
    }

    // PLACEHOLDER: inputs on which both sides must agree, forward and backward.
    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8])));
    }
}
