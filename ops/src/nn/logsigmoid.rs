use fulgurite_ops_macros::operator;

use super::logistic;
use crate::core::promotion::{accumulating, cast};
use crate::prims;

/// The logarithm of the logistic function, elementwise: `min(x, 0) - log(1 + e^-|x|)`. Computed in f32 for f16 and
/// bf16.
#[operator(torch = "nn.functional.logsigmoid")]
pub mod logsigmoid {
    fn logsigmoid(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        let x = accumulating(input);
        let small = prims::exp(prims::neg(prims::abs(x)));
        // The logarithm of what 1 + small was rounded to, times how much less the rounding added than small.
        let sum = prims::add(small, 1.0);
        let nothing = prims::eq(sum, 1.0);
        let rest = prims::div(small, prims::select(nothing, 1.0, prims::sub(sum, 1.0)));
        let log = prims::select(nothing, small, prims::mul(prims::log(sum), rest));
        cast(prims::sub(prims::minimum(x, 0.0), log), input.dtype())
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (logsigmoid(input), move |d_out: Tensor| {
            let share = logistic(prims::neg(accumulating(input)));
            Grads { input: cast(prims::mul(accumulating(d_out), share), input.dtype()) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x.min(0.0) - (-x.abs()).exp().ln_1p())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.values([6], [30.0, -30.0, 12.0, 0.5, 0.0, -1e4])));
    }
}
