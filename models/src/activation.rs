//! Activation functions by the names that `transformers` has for them.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use serde::{Deserialize, Serialize};

/// An elementwise function between two linear layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU by the error function.
    Gelu,
    /// GELU by the hyperbolic tangent.
    #[default]
    GeluNew,
    /// `min(max(gelu(x), -10), 10)`.
    #[serde(rename = "gelu_10")]
    ClippedGelu,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    #[serde(rename = "relu2")]
    ReluSquared,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` above 0, `0.01 x` below.
    LeakyRelu,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x · tanh(log(1 + eˣ))`.
    Mish,
    /// The hyperbolic tangent.
    Tanh,
    /// The logistic function.
    Sigmoid,
    /// `(1 + erf((x - 0.707107) / (0.282095 √2))) / 2`.
    Laplace,
    /// `x` itself.
    Linear,
}

/// The names of the ecosystem; the first of a function is the one that is written.
const NAMES: [(&str, Activation); 20] = [
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_new", Activation::GeluNew),
    ("gelu_fast", Activation::GeluNew),
    ("gelu_pytorch_tanh", Activation::GeluNew),
    ("gelu_python_tanh", Activation::GeluNew),
    ("gelu_accurate", Activation::GeluNew),
    ("gelu_10", Activation::ClippedGelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::ReluSquared),
    ("relu6", Activation::Relu6),
    ("leaky_relu", Activation::LeakyRelu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("mish", Activation::Mish),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
    ("laplace", Activation::Laplace),
    ("linear", Activation::Linear),
];

/// Mean and deviation of [`Activation::Laplace`], with the decimals of `transformers`.
#[allow(clippy::approx_constant, reason = "the constant with more digits would be another function")]
const MEAN: f64 = 0.707_107;
const DEVIATION: f64 = 0.282_095;

impl Activation {
    /// The function of a name.
    pub fn named(name: &str) -> Option<Activation> {
        NAMES.iter().find(|(own, _)| *own == name).map(|(_, function)| *function)
    }

    /// The name that files get.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, own)| *own == self).map_or("", |(name, _)| *name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// The function of `x`.
    #[track_caller]
    pub(crate) fn of(self, x: Tensor) -> Tensor {
        match self {
            Activation::Gelu => gelu(x),
            Activation::GeluNew => gelu::with(x).approximate(Approximate::Tanh).call(),
            Activation::ClippedGelu => prims::minimum(prims::maximum(gelu(x), -10.0), 10.0),
            Activation::QuickGelu => x * sigmoid(x * 1.702),
            Activation::Relu => relu(x),
            Activation::ReluSquared => relu_squared(x),
            Activation::Relu6 => prims::minimum(relu(x), 6.0),
            Activation::LeakyRelu => prims::maximum(x, 0.0) + prims::minimum(x, 0.0) * 0.01,
            Activation::Silu => silu(x),
            // The logarithm of 1 + eˣ is that of the logistic function of -x, negated.
            Activation::Mish => x * tanh(-logsigmoid(-x)),
            Activation::Tanh => tanh(x),
            Activation::Sigmoid => sigmoid(x),
            Activation::Laplace => (erf((x - MEAN) / (DEVIATION * std::f64::consts::SQRT_2)) + 1.0) * 0.5,
            Activation::Linear => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::{Array, jit};

    /// Each against its formula in f64.
    #[test]
    fn each_name_is_the_function_that_it_names() {
        let x = [-2.0_f32, -0.5, 0.3, 8.0];
        for (name, function) in NAMES {
            let compute = jit(move |x: Tensor| function.of(x));
            let found: Array = compute.call(Array::new([4], &x).unwrap()).unwrap();
            let erf = |x: f64| fulgurite_ops::core::arrays::erf(x);
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let gelu = |x: f64| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
            let tanh_gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_8 * x * (1.0 + 0.044_715 * x * x)).tanh());
            for (x, found) in x.iter().map(|x| f64::from(*x)).zip(found.to_f64().unwrap()) {
                let expected = match name {
                    "gelu" | "gelu_python" => gelu(x),
                    "gelu_10" => gelu(x).clamp(-10.0, 10.0),
                    "quick_gelu" => x * sigmoid(1.702 * x),
                    "relu" => x.max(0.0),
                    "relu2" => x.max(0.0).powi(2),
                    "relu6" => x.clamp(0.0, 6.0),
                    "leaky_relu" => {
                        if x < 0.0 {
                            0.01 * x
                        } else {
                            x
                        }
                    }
                    "silu" | "swish" => x * sigmoid(x),
                    "mish" => x * x.exp().ln_1p().tanh(),
                    "tanh" => x.tanh(),
                    "sigmoid" => sigmoid(x),
                    "laplace" => 0.5 * (1.0 + erf((x - MEAN) / (DEVIATION * std::f64::consts::SQRT_2))),
                    "linear" => x,
                    _ => tanh_gelu(x),
                };
                assert!((found - expected).abs() <= 2e-6 * expected.abs().max(1.0), "{name}({x}): {found}, {expected}");
            }
            assert_eq!(Activation::named(function.name()), Some(function));
            let stored = serde_json::to_value(function).unwrap();
            assert_eq!(stored, function.name(), "checkpoints have the same name");
        }
        assert_eq!(Activation::named("xielu"), None);
    }
}
