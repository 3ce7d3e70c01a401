use fulgurite_ops_macros::operator;

use crate::nn::{Approximate, gelu, gelu_backward, gelu_of};
use crate::prims::{self, checks::is_like};

/// The gated linear unit of [`gelu`](mod@super::gelu), elementwise: `gelu(gate) up`, with the approximation that gelu
/// is given. Both have one shape and one element type, to which `gelu(gate)` is rounded before the product. Shazeer,
/// "GLU Variants Improve Transformer", 2020.
#[operator(
    tolerance(
        consistency,
        dtype = f64,
        factor = 4096.0,
        reason = "as gelu's: 1 + erf(x) cancels for x far below zero"
    ),
)]
pub mod geglu {
    fn geglu(
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        #[default(Approximate::None)] approximate: Approximate,
    ) -> Tensor;

    fn meta(gate: &TensorMeta, up: &TensorMeta) -> Result<TensorMeta> {
        is_like(("up", up), gate, Code::SameMeta)?;
        Ok(gate.clone())
    }

    fn decomposition(gate: Tensor, up: Tensor, approximate: Approximate) -> Tensor {
        prims::mul(gelu::with(gate).approximate(approximate).call(), up)
    }

    fn grad(gate: Tensor, up: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(gate, up).approximate(approximate).call();
        (out, move |d_out: Tensor| Grads {
            gate: gelu_backward::with(prims::mul(d_out, up), gate).approximate(approximate).call(),
            up: prims::mul(d_out, gelu::with(gate).approximate(approximate).call()),
        })
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        elementwise(gate, |x| gelu_of(x, approximate)) * up
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in [&[][..], &[0], &[7], &[3, 5], &[67, 65]] {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape)).approximate(approximate));
            }
            let special = [0.0, -0.0, 30.0, -30.0, f64::NAN, 1.0];
            let case = with(s.values([6], special), s.normal([6])).approximate(approximate);
            s.case(case).forward_only("special values");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([2, 4])), "up is f32[2, 4], expected f32[2, 3]");
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([3])), "up is f32[3], expected f32[2, 3]");
    }
}
