//! The Gaussian error linear unit by a hyperbolic tangent.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, source_files};

use super::{define_threads, llmc, pack_of, takes};
use fulgurite_executor_cuda::support::{THREADS, type_of};
use fulgurite_ops::nn::Approximate;
use fulgurite_ops::prims::checks;

/// How many packs a thread takes; the kernels know it too.
const EACH: usize = 2;

/// Launches `kernel` on tensors of equal shapes.
fn each_element(plan: &mut Plan, kernel: &str, tensors: &[&DeviceTensor]) -> Result<()> {
    let (dtype, count): (DType, usize) = (tensors[0].dtype(), tensors[0].len());
    if count == 0 {
        return Ok(());
    }
    // Elements are counted through: only the tensors' own alignment matters.
    let pack = pack_of(0, dtype.size(), tensors);
    plan.source(source_files!["gelu.cu"]);
    plan.define("ELEMENT", type_of(dtype));
    define_threads(plan);
    plan.define("PACK", pack);
    plan.define("ALIGNED", 1);
    let mut parameters: Vec<Parameter> = tensors.iter().map(|tensor| Parameter::from(*tensor)).collect();
    parameters.push(count.into());
    let blocks = count.div_ceil(pack * EACH * THREADS as usize);
    plan.launch(kernel, LaunchShape::linear(blocks as u32, THREADS), parameters)
}

/// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`, elementwise.
#[operator(executor = llmc, dtypes(f32, bf16, f16), in_place, cheap, no_grad = "the implementation that uses it has \
    a gradient of its own")]
pub mod gelu {
    fn gelu(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x / 2.0 * (1.0 + super::inner(x).tanh()))
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::each_element(plan, "gelu", &[input, out])
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 8], &[0], &[3, 2051]] {
            s.case(with(s.uniform(-6.0, 6.0, shape)));
        }
        s.case(with(s.values([6], [0.0, -0.0, 30.0, -30.0, f64::NAN, f64::INFINITY])));
    }
}

/// The gradient of [`mod@gelu`] at `input`, times `d_out`.
#[operator(
    executor = llmc,
    dtypes(f32, bf16, f16),
    in_place,
    no_grad = "a gradient is not differentiated again"
)]
pub mod gelu_backward {
    fn gelu_backward(input: Tensor<Floating>, d_out: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, d_out: &TensorMeta) -> Result<TensorMeta> {
        checks::is_like(("d_out", d_out), input, Code::Cotangent)?;
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>, d_out: &ArrayD<f64>) -> ArrayD<f64> {
        let slope = elementwise(input, |x| {
            let tanh = super::inner(x).tanh();
            let rate = super::SCALE * (1.0 + 3.0 * super::CUBIC * x * x);
            (1.0 + tanh) / 2.0 + x / 2.0 * (1.0 - tanh * tanh) * rate
        });
        slope * d_out
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, d_out: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::each_element(plan, "gelu_backward", &[input, d_out, out])
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 8], &[0], &[3, 2051]] {
            s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape)));
        }
        s.case(with(s.values([4], [0.0, 30.0, -30.0, f64::NAN]), s.normal([4])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Cotangent, with(e.of(DType::F32, [3]), e.of(DType::F32, [4])), "expected f32[3]");
    }
}

const SCALE: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const CUBIC: f64 = 0.044715;

fn inner(x: f64) -> f64 {
    SCALE * (x + CUBIC * x * x * x)
}

#[implementation(of = fulgurite_ops::nn::gelu, by = llmc)]
mod gelu_by_llmc {
    fn checker(input: &TensorMeta, approximate: Approximate) -> Claim {
        takes(input)?;
        refuse_unless!(approximate == Approximate::Tanh, "approximate is {approximate:?}, takes Tanh");
        Ok(())
    }

    fn execution(input: Tensor, _approximate: Approximate) -> Tensor {
        super::gelu(input)
    }

    fn grad(input: Tensor, _approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (super::gelu(input), move |d_out: Tensor| Grads { input: gelu_backward(input, d_out) })
    }
}
