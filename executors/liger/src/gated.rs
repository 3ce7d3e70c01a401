//! Gated linear units: an activation of one operand times the other. Backward recomputes the activation, and may write
//! both gradients over the operands.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::source_files;

use super::{liger, takes};
use fulgurite_executor_cuda::support::{THREADS, pack_of, type_of};
use fulgurite_ops::core::arrays::erf;
use fulgurite_ops::nn::Approximate;
use fulgurite_ops::prims::checks;

/// How many packs a thread takes.
const EACH: usize = 1;

fulgurite_runtime::attribute_enum! {
    /// What is applied to the gate.
    pub enum Activation {
        /// `x σ(x)`.
        Silu = "silu",
        /// `x Φ(x)` by the error function.
        Gelu = "gelu",
        /// `x Φ(x)` by a hyperbolic tangent.
        TanhGelu = "gelu_tanh",
    }
}

impl From<Approximate> for Activation {
    fn from(approximate: Approximate) -> Activation {
        match approximate {
            Approximate::None => Activation::Gelu,
            Approximate::Tanh => Activation::TanhGelu,
        }
    }
}

/// Launches `kernel` of `gated.cu` on tensors of equal shapes: the operands, then the results.
///
/// # Errors
/// Those of [`Plan::launch`].
pub fn each_element(plan: &mut Plan, kernel: &str, activation: Activation, tensors: &[&DeviceTensor]) -> Result<()> {
    let (dtype, count) = (tensors[0].dtype(), tensors[0].len());
    if count == 0 {
        return Ok(());
    }
    // Elements are counted through: only the tensors' own alignment matters.
    let pack = pack_of(0, dtype.size(), tensors);
    plan.source(source_files!["gated.cu"]);
    plan.define("ELEMENT", type_of(dtype));
    // The kernels know the numbers.
    let number = match activation {
        Activation::Silu => 0,
        Activation::Gelu => 1,
        Activation::TanhGelu => 2,
    };
    plan.define("ACTIVATION", number);
    plan.define("THREADS", THREADS);
    plan.define("EACH", EACH);
    plan.define("PACK", pack);
    plan.define("ALIGNED", 1);
    let mut parameters: Vec<Parameter> = tensors.iter().map(|tensor| Parameter::from(*tensor)).collect();
    parameters.push(count.into());
    let blocks = count.div_ceil(pack * EACH * THREADS as usize);
    plan.launch(kernel, LaunchShape::linear(blocks as u32, THREADS), parameters)
}

/// `silu(gate) · up`, elementwise.
#[operator(executor = liger, dtypes(f32, bf16, f16), in_place, cheap, no_grad = "the implementation that uses it has \
    a gradient of its own")]
pub mod swiglu {
    fn swiglu(gate: Tensor<Floating>, up: Tensor<Floating>) -> Tensor;

    fn meta(gate: &TensorMeta, up: &TensorMeta) -> Result<TensorMeta> {
        checks::is_like(("up", up), gate, Code::SameMeta)?;
        Ok(gate.clone())
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(gate, |x| x / (1.0 + (-x).exp())) * up
    }

    fn plan(plan: &mut Plan, gate: &DeviceTensor, up: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::each_element(plan, "gated", super::Activation::Silu, &[gate, up, out])
    }

    fn samples(s: &mut Samples) {
        for shape in super::SHAPES {
            s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape)));
        }
        s.case(with(s.values([6], super::SPECIAL), s.normal([6])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.of(DType::F32, [3]), e.of(DType::F32, [4])), "expected f32[3]");
    }
}

/// The gradients of [`swiglu`] by its operands, for the cotangent `d_out`: (d_gate, d_up).
#[operator(executor = liger, dtypes(f32, bf16, f16), in_place, no_grad = "a gradient is not differentiated again")]
pub mod swiglu_backward {
    #[results(d_gate, d_up)]
    fn swiglu_backward(gate: Tensor<Floating>, up: Tensor<Floating>, d_out: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(gate: &TensorMeta, up: &TensorMeta, d_out: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        checks::is_like(("up", up), gate, Code::SameMeta)?;
        checks::is_like(("d_out", d_out), gate, Code::Cotangent)?;
        Ok((gate.clone(), up.clone()))
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>, d_out: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let slope = elementwise(gate, |x| {
            let share = 1.0 / (1.0 + (-x).exp());
            share + x * share * (1.0 - share)
        });
        (slope * up * d_out, elementwise(gate, |x| x / (1.0 + (-x).exp())) * d_out)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, d_gate: &DeviceTensor, d_up: &DeviceTensor) -> Result<()> {
        let Args { gate, up, d_out } = args;
        let tensors = [gate, up, d_out, d_gate, d_up];
        super::each_element(plan, "gated_backward", super::Activation::Silu, &tensors)
    }

    fn samples(s: &mut Samples) {
        for shape in super::SHAPES {
            s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), s.normal(shape)));
        }
        s.case(with(s.values([6], super::SPECIAL), s.normal([6]), s.normal([6])));
    }

    fn errors(e: &mut ErrorSamples) {
        let [three, four] = [3, 4].map(|count| e.of(DType::F32, [count]));
        e.case(SameMeta, with(three.clone(), four.clone(), three.clone()), "expected f32[3]");
        e.case(Cotangent, with(three.clone(), three, four), "expected f32[3]");
    }
}

/// `gelu(gate) · up` with the approximation that is named, elementwise.
#[operator(executor = liger, dtypes(f32, bf16, f16), in_place, cheap, no_grad = "the implementation that uses it has \
    a gradient of its own")]
pub mod geglu {
    fn geglu(gate: Tensor<Floating>, up: Tensor<Floating>, approximate: Approximate) -> Tensor;

    fn meta(gate: &TensorMeta, up: &TensorMeta) -> Result<TensorMeta> {
        checks::is_like(("up", up), gate, Code::SameMeta)?;
        Ok(gate.clone())
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        elementwise(gate, |x| super::gelu(x, approximate)[0]) * up
    }

    fn plan(plan: &mut Plan, Args { gate, up, approximate }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::each_element(plan, "gated", approximate.into(), &[gate, up, out])
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in super::SHAPES {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), approximate));
            }
            s.case(with(s.values([6], super::SPECIAL), s.normal([6]), approximate));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = with(e.of(DType::F32, [3]), e.of(DType::F32, [4]), Approximate::Tanh);
        e.case(SameMeta, call, "expected f32[3]");
    }
}

/// The gradients of [`geglu`] by its operands, for the cotangent `d_out`: (d_gate, d_up).
#[operator(executor = liger, dtypes(f32, bf16, f16), in_place, no_grad = "a gradient is not differentiated again")]
pub mod geglu_backward {
    #[results(d_gate, d_up)]
    fn geglu_backward(
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        d_out: Tensor<Floating>,
        approximate: Approximate,
    ) -> (Tensor, Tensor);

    fn meta(gate: &TensorMeta, up: &TensorMeta, d_out: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        checks::is_like(("up", up), gate, Code::SameMeta)?;
        checks::is_like(("d_out", d_out), gate, Code::Cotangent)?;
        Ok((gate.clone(), up.clone()))
    }

    fn reference(Args { gate, up, d_out, approximate }: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        let part = |which: usize| elementwise(gate, |x| super::gelu(x, approximate)[which]);
        (part(1) * up * d_out, part(0) * d_out)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, d_gate: &DeviceTensor, d_up: &DeviceTensor) -> Result<()> {
        let Args { gate, up, d_out, approximate } = args;
        super::each_element(plan, "gated_backward", approximate.into(), &[gate, up, d_out, d_gate, d_up])
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in super::SHAPES {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), s.normal(shape), approximate));
            }
            s.case(with(s.values([6], super::SPECIAL), s.normal([6]), s.normal([6]), approximate));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let [three, four] = [3, 4].map(|count| e.of(DType::F32, [count]));
        e.case(SameMeta, with(three.clone(), four.clone(), three.clone(), Approximate::Tanh), "expected f32[3]");
        e.case(Cotangent, with(three.clone(), three, four, Approximate::Tanh), "expected f32[3]");
    }
}

/// For references: `x Φ(x)` and its derivative.
pub fn gelu(x: f64, approximate: Approximate) -> [f64; 2] {
    match approximate {
        Approximate::None => {
            let part = 0.5 * (1.0 + erf(x / 2f64.sqrt()));
            [x * part, part + x * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()]
        }
        Approximate::Tanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let tanh = (root * (x + 0.044715 * x.powi(3))).tanh();
            let rate = root * (1.0 + 3.0 * 0.044715 * x * x);
            [x / 2.0 * (1.0 + tanh), (1.0 + tanh) / 2.0 + x / 2.0 * (1.0 - tanh * tanh) * rate]
        }
    }
}

/// Shapes of samples: none, few, packs with a rest, several blocks.
const SHAPES: [&[usize]; 5] = [&[], &[0], &[7], &[4, 8], &[3, 2051]];
/// Numbers far from zero, and what is none.
const SPECIAL: [f64; 6] = [0.0, -0.0, 30.0, -30.0, f64::NAN, 1.0];

#[implementation(of = fulgurite_ops::nn::swiglu, by = liger)]
mod swiglu_by_liger {
    fn checker(gate: &TensorMeta) -> Claim {
        takes("gate", gate)
    }

    fn execution(gate: Tensor, up: Tensor) -> Tensor {
        super::swiglu(gate, up)
    }

    fn grad(gate: Tensor, up: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (super::swiglu(gate, up), move |d_out: Tensor| {
            let (gate, up) = swiglu_backward(gate, up, d_out);
            Grads { gate, up }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::geglu, by = liger)]
mod geglu_by_liger {
    fn checker(gate: &TensorMeta) -> Claim {
        takes("gate", gate)
    }

    fn execution(gate: Tensor, up: Tensor, approximate: Approximate) -> Tensor {
        super::geglu(gate, up, approximate)
    }

    fn grad(gate: Tensor, up: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (super::geglu(gate, up, approximate), move |d_out: Tensor| {
            let (gate, up) = geglu_backward(gate, up, d_out, approximate);
            Grads { gate, up }
        })
    }
}
