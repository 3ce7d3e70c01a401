use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use fulgurite_ops_macros::operator;

use crate::core::promotion::{accumulating, cast};
use crate::nn::{Approximate, GELU_CUBE_WEIGHT, GELU_INNER_SCALE, sigmoidal};
use crate::prims::{self, checks::is_like};

/// The gradient of [`gelu`](mod@super::gelu) at `input`, times `grad_output`, elementwise, computed in f32 for f16 and
/// bf16: `grad_output (Φ(x) + x Φ'(x))`, with the approximation's own derivative for `approximate = "tanh"`. It needs
/// nothing of the forward pass but its input.
#[operator(
    tolerance(
        consistency,
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero: one unit in the last place of a device's erf shows 2^11 times \
                  enlarged, in a tensor of one such element as well"
    ),
)]
pub mod gelu_backward {
    fn gelu_backward(
        grad_output: Tensor<Floating>,
        input: Tensor<Floating>,
        #[default(Approximate::None)] approximate: Approximate,
    ) -> Tensor;

    fn meta(grad_output: &TensorMeta, input: &TensorMeta) -> Result<TensorMeta> {
        is_like(("grad_output", grad_output), input, Code::SameMeta)?;
        Ok(input.clone())
    }

    fn decomposition(grad_output: Tensor, input: Tensor, approximate: Approximate) -> Tensor {
        let (x, d) = (accumulating(input), accumulating(grad_output));
        let (s, squared) = (sigmoidal(x, approximate), prims::mul(x, x));
        // d/dx of x/2 (1 + s(x)) is (1 + s)/2 + x/2 s'.
        let slope = match approximate {
            Approximate::None => {
                let density = prims::exp(prims::mul(squared, -0.5));
                prims::mul(prims::mul(x, density), 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2)
            }
            Approximate::Tanh => {
                let inner =
                    prims::add(GELU_INNER_SCALE, prims::mul(squared, 3.0 * GELU_INNER_SCALE * GELU_CUBE_WEIGHT));
                let outer = prims::sub(1.0, prims::mul(s, s));
                prims::mul(prims::mul(prims::mul(x, 0.5), outer), inner)
            }
        };
        let value = prims::mul(prims::add(1.0, s), 0.5);
        cast(prims::mul(d, prims::add(value, slope)), input.dtype())
    }

    fn reference(grad_output: &ArrayD<f64>, input: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        let slope = elementwise(input, |x| match approximate {
            Approximate::None => {
                let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
                0.5 * (1.0 + crate::core::arrays::erf(x / 2f64.sqrt())) + x * density
            }
            Approximate::Tanh => {
                let root = (2.0 / std::f64::consts::PI).sqrt();
                let tanh = (root * (x + 0.044715 * x.powi(3))).tanh();
                (1.0 + tanh) / 2.0 + x / 2.0 * (1.0 - tanh * tanh) * root * (1.0 + 3.0 * 0.044715 * x * x)
            }
        });
        slope * grad_output
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in [&[][..], &[0], &[3, 7], &[2, 3, 259]] {
                s.case(with(s.normal(shape), s.uniform(-6.0, 6.0, shape)).approximate(approximate));
            }
            s.case(with(s.normal([4]), s.values([4], [0.0, -0.0, 20.0, -20.0])).approximate(approximate));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([3]), e.normal([4])), "grad_output is f32[3], expected f32[4]");
    }
}
