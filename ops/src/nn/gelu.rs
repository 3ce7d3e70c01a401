use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use fulgurite_ops_macros::operator;

use crate::core::promotion::{accumulating, cast, constant_like};
use crate::prims;

fulgurite::attribute_enum! {
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
        executor = "cuda",
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero, so one unit in the last place of the device's erf shows 2^11 times enlarged"
    ),
    tolerance(
        consistency,
        executor = "fusion",
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero, so one unit in the last place of the device's erf shows 2^11 times enlarged"
    ),
    tolerance(
        consistency,
        executor = "cublaslt",
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero, so one unit in the last place of the device's erf shows 2^11 times enlarged"
    ),
    tolerance(
        consistency,
        executor = "optim",
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero, so one unit in the last place of the device's erf shows 2^11 times enlarged"
    ),
    tolerance(
        consistency,
        executor = "llmc",
        dtype = f64,
        factor = 4096.0,
        reason = "1 + erf(x) cancels for x far below zero, so one unit in the last place of the device's erf shows 2^11 times enlarged"
    ),
)]
pub mod gelu {
    fn gelu(input: Tensor<Floating>, #[default(Approximate::None)] approximate: Approximate) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, approximate: Approximate) -> Tensor {
        let x = accumulating(input);
        let half = prims::mul(x, constant_like(x, 0.5));
        let s = super::sigmoidal(x, approximate);
        cast(prims::mul(half, prims::add(constant_like(x, 1.0), s)), input.dtype())
    }

    fn grad(input: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input).approximate(approximate).call();
        (out, move |d_out: Tensor| {
            let (x, d) = (accumulating(input), accumulating(d_out));
            let number = |value: f64| constant_like(x, value);
            let (s, squared) = (super::sigmoidal(x, approximate), prims::mul(x, x));
            // d/dx of x/2 (1 + s(x)) is (1 + s)/2 + x/2 s'.
            let slope = match approximate {
                Approximate::None => {
                    let density = prims::exp(prims::mul(squared, number(-0.5)));
                    prims::mul(prims::mul(x, density), number(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2))
                }
                Approximate::Tanh => {
                    let inner = prims::add(
                        number(super::SCALE),
                        prims::mul(squared, number(3.0 * super::SCALE * super::CUBIC)),
                    );
                    let outer = prims::sub(number(1.0), prims::mul(s, s));
                    prims::mul(prims::mul(prims::mul(x, number(0.5)), outer), inner)
                }
            };
            let value = prims::mul(prims::add(number(1.0), s), number(0.5));
            Grads { input: cast(prims::mul(d, prims::add(value, slope)), input.dtype()) }
        })
    }

    fn reference(input: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        input.mapv(|x| match approximate {
            Approximate::None => x / 2.0 * (1.0 + crate::core::error_function(x / 2f64.sqrt())),
            Approximate::Tanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                x / 2.0 * (1.0 + inner.tanh())
            }
        })
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

const SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const CUBIC: f64 = 0.044715;

/// `2 Φ(x) - 1`, or what stands for it.
#[track_caller]
fn sigmoidal(x: fulgurite::Tensor, approximate: Approximate) -> fulgurite::Tensor {
    let number = |value: f64| constant_like(x, value);
    match approximate {
        Approximate::None => prims::erf(prims::mul(x, number(FRAC_1_SQRT_2))),
        Approximate::Tanh => {
            let cube = prims::mul(prims::mul(x, x), x);
            let inner = prims::add(x, prims::mul(cube, number(CUBIC)));
            prims::tanh(prims::mul(inner, number(SCALE)))
        }
    }
}
