use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::logistic;
use crate::core::promotion::{accumulating, cast};
use crate::nn::silu;
use crate::prims::{self, checks::is_like};

/// The gated linear unit of [`silu`](mod@super::silu), elementwise: `silu(gate) up`. Both have one shape and one
/// element type, to which `silu(gate)` is rounded before the product. Gradients are computed in f32 for f16 and bf16,
/// from the two operands alone. Shazeer, "GLU Variants Improve Transformer", 2020.
#[operator]
pub mod swiglu {
    fn swiglu(gate: Tensor<Floating>, up: Tensor<Floating>) -> Tensor;

    fn meta(gate: &TensorMeta, up: &TensorMeta) -> Result<TensorMeta> {
        is_like(("up", up), gate, Code::SameMeta)?;
        Ok(gate.clone())
    }

    fn decomposition(gate: Tensor, up: Tensor) -> Tensor {
        prims::mul(silu(gate), up)
    }

    fn grad(gate: Tensor, up: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (swiglu(gate, up), move |d_out: Tensor| {
            let [gate, up] = super::swiglu_gradient(gate, up, d_out);
            Grads { gate, up }
        })
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(gate, |x| x / (1.0 + (-x).exp())) * up
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[0], &[7], &[3, 5], &[2, 3, 8], &[67, 65]] {
            s.case(with(s.normal(shape), s.normal(shape)));
        }
        let special = [0.0, -0.0, 30.0, -30.0, f64::NAN, 1.0];
        s.case(with(s.values([6], special), s.normal([6]))).forward_only("special values");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([2, 4])), "up is f32[2, 4], expected f32[2, 3]");
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([3])), "up is f32[3], expected f32[2, 3]");
    }
}

/// The gradients of [`mod@swiglu`] by both operands, for the cotangent `d_out`.
#[track_caller]
pub fn swiglu_gradient(gate: Tensor, up: Tensor, d_out: Tensor) -> [Tensor; 2] {
    let [x, other, d] = [gate, up, d_out].map(accumulating);
    let share = logistic(x);
    let value = prims::mul(x, share);
    // silu' = s (1 + x (1 - s)) = s + x s (1 - s).
    let slope = prims::add(share, prims::mul(value, prims::sub(1.0, share)));
    let d_gate = cast(prims::mul(prims::mul(d, other), slope), gate.dtype());
    [d_gate, cast(prims::mul(d, value), up.dtype())]
}
