use fulgurite_ops_macros::operator;

use super::logistic;
use crate::core::promotion::{accumulating, cast};
use crate::prims;

/// Sigmoid linear unit, elementwise: `x / (1 + e⁻ˣ)`, computed in f32 for f16 and bf16. Elfwing, Uchibe & Doya, 2017.
#[operator(torch = "nn.functional.silu")]
pub mod silu {
    fn silu(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        let x = accumulating(input);
        cast(prims::mul(x, logistic(x)), input.dtype())
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (silu(input), move |d_out: Tensor| {
            let (x, d) = (accumulating(input), accumulating(d_out));
            let gate = logistic(x);
            let slope = prims::mul(gate, prims::add(1.0, prims::mul(x, prims::sub(1.0, gate))));
            Grads { input: cast(prims::mul(d, slope), input.dtype()) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x / (1.0 + (-x).exp()))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}
