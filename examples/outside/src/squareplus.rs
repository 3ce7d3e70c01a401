//! The operator.

use fulgurite::ops::prims::sqrt;
use fulgurite::prelude::*;

/// A smooth relu without exponentials, elementwise: `(x + √(x² + b)) / 2`. Barron, 2021.
#[operator]
pub mod squareplus {
    fn squareplus(input: Tensor<Floating>, #[default(4.0)] b: f64) -> Tensor;

    fn meta(input: &TensorMeta, b: f64) -> Result<TensorMeta> {
        require!(b > 0.0, PositiveB, "b is {b}, expected more than 0");
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, b: f64) -> Tensor {
        (input + sqrt(input * input + b)) * 0.5
    }

    fn reference(input: &ArrayD<f64>, b: f64) -> ArrayD<f64> {
        elementwise(input, |x| (x + (x * x + b).sqrt()) / 2.0)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-3.0, 3.0));
        s.case(with(s.normal([4, 8])).b(0.25));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(PositiveB, with(e.normal([3])).b(-1.0), "b is -1, expected more than 0");
    }
}
