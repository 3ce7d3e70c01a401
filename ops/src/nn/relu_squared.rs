use fulgurite_ops_macros::operator;

use crate::nn::relu;
use crate::prims;

/// The square of [`relu`](mod@super::relu), elementwise: `max(input, 0)²`. So and others, "Primer", 2021.
#[operator]
pub mod relu_squared {
    fn relu_squared(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        let positive = relu(input);
        prims::mul(positive, positive)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| if x < 0.0 { 0.0 } else { x * x })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([3], [0.0, 1.0, -1.0]))).forward_only("the kink at zero").gradients([&[0.0, 4.0, 0.0]]);
    }
}
