use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::promotion::{accumulating, cast, floating};
use crate::prims;

/// The logistic function, elementwise: `1 / (1 + e⁻ˣ)`. Integers and booleans become f32.
#[operator(torch = "sigmoid")]
pub mod sigmoid {
    fn sigmoid(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(floating(input.dtype())))
    }

    fn decomposition(input: Tensor) -> Tensor {
        let dtype = floating(input.dtype());
        cast(super::logistic(accumulating(cast(input, dtype))), dtype)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = sigmoid(input);
        (out, move |d_out: Tensor| {
            let (y, d) = (accumulating(out), accumulating(d_out));
            let slope = prims::mul(y, prims::sub(1.0, y));
            Grads { input: cast(prims::mul(d, slope), out.dtype()) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| 1.0 / (1.0 + (-x).exp()))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

/// The logistic function in the element type of `input`.
#[track_caller]
pub(crate) fn logistic(input: Tensor) -> Tensor {
    prims::reciprocal(prims::add(1.0, prims::exp(prims::neg(input))))
}
