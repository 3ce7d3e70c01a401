use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::promotion::{accumulating, cast};
use crate::nn::gelu_backward;
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// How the Gaussian distribution function is computed.
    pub enum Approximate {
        /// By the error function.
        None = "none",
        /// By a hyperbolic tangent.
        Tanh = "tanh",
    }
}

/// Gaussian error linear unit, elementwise, computed in f32 for f16 and bf16: `x Φ(x) = x/2 (1 + erf(x/√2))`, or
/// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))` with `approximate = "tanh"`. Hendrycks & Gimpel, 2016.
#[operator(
    torch = "nn.functional.gelu",
    tolerance(
        consistency,
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero: one unit in the last place of a device's erf shows 2^11 times \
                  enlarged, in a tensor of one such element as well"
    ),
)]
pub mod gelu {
    fn gelu(input: Tensor<Floating>, #[default(Approximate::None)] approximate: Approximate) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, approximate: Approximate) -> Tensor {
        let x = accumulating(input);
        let half = prims::mul(x, 0.5);
        let s = super::sigmoidal(x, approximate);
        cast(prims::mul(half, prims::add(1.0, s)), input.dtype())
    }

    fn grad(input: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input).approximate(approximate).call();
        (out, move |d_out: Tensor| Grads { input: gelu_backward::with(d_out, input).approximate(approximate).call() })
    }

    fn reference(input: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        elementwise(input, |x| super::gelu_of(x, approximate))
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-6.0, 6.0));
        for approximate in [Approximate::None, Approximate::Tanh] {
            s.case(with(s.normal([3, 7])).approximate(approximate));
            s.case(with(s.normal([0])).approximate(approximate));
            let special = [0.0, -0.0, 30.0, -30.0, f64::NAN, f64::NEG_INFINITY];
            s.case(with(s.values([6], special)).approximate(approximate)).forward_only("special values");
        }
    }
}

/// √(2/π), the scale of what the hyperbolic tangent of `gelu` is taken of.
pub const GELU_INNER_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The weight of the cube in what the hyperbolic tangent of `gelu` is taken of.
pub const GELU_CUBE_WEIGHT: f64 = 0.044715;

/// For references: [`gelu`] of one element, in f64.
pub(crate) fn gelu_of(x: f64, approximate: Approximate) -> f64 {
    match approximate {
        Approximate::None => x / 2.0 * (1.0 + crate::core::arrays::erf(x / 2f64.sqrt())),
        Approximate::Tanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / 2.0 * (1.0 + inner.tanh())
        }
    }
}

/// `2 Φ(x) - 1`, or what stands for it.
#[track_caller]
pub(crate) fn sigmoidal(x: Tensor, approximate: Approximate) -> Tensor {
    match approximate {
        Approximate::None => prims::erf(prims::mul(x, FRAC_1_SQRT_2)),
        Approximate::Tanh => {
            let cube = prims::mul(prims::mul(x, x), x);
            let inner = prims::add(x, prims::mul(cube, GELU_CUBE_WEIGHT));
            prims::tanh(prims::mul(inner, GELU_INNER_SCALE))
        }
    }
}
