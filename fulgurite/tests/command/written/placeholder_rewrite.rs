use fulgurite::prelude::*;

/// PLACEHOLDER: say which arrangement becomes which, and why that is better.
#[rewrite]
pub mod placeholder_rewrite {
    // PLACEHOLDER: what is looked for. Attributes are written out; a tensor that occurs twice must be the same value
    // twice.
    fn pattern(x: Tensor, y: Tensor) -> Tensor {
        neg(add(x, y))
    }

    // PLACEHOLDER: what takes its place. The generated test fails until the two agree.
    fn replacement(x: Tensor, y: Tensor) -> Tensor {
        sub(x, y)
    }

    // PLACEHOLDER: inputs on which both sides must agree, forward and backward.
    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8])));
    }
}
