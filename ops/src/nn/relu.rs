use fulgurite_ops_macros::operator;

use crate::prims;

/// The larger of each element and zero; NaN stays NaN. The subgradient at zero is zero.
#[operator(torch = "relu")]
pub mod relu {
    fn relu(input: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        prims::maximum(input, 0)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = relu(input);
        (out, move |d_out: Tensor| Grads { input: prims::select(prims::le(out, 0.0), 0.0, d_out) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| if x < 0.0 { 0.0 } else { x })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([3], [0.0, 1.0, -1.0]))).forward_only("the kink at zero").gradients([&[0.0, 2.0, 0.0]]);
    }
}
