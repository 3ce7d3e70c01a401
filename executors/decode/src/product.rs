use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{TensorMeta, refuse_unless, source_files};

use super::{decode, readable, takes};
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::nn::linear;

/// The most rows: columns of two results of the tensor cores.
const MOST_ROWS: usize = 16;
/// Outputs of a block: rows of a result of the tensor cores.
const OUTPUTS: usize = 16;
/// Inputs that are multiplied at a time: as many as four threads read at once.
const STEP: usize = 32;
/// The smallest weight, in elements, whose time is that of reading it.
const LEAST_WEIGHT: usize = 1 << 18;

/// Whether the kernel is written for `input` [..., in] times `weight` [out, in].
pub(crate) fn product_fits(input: &TensorMeta, weight: &TensorMeta) -> Claim {
    takes("input", input)?;
    refuse_unless!(weight.rank() == 2, "multiplies by matrices, weight is {weight}");
    let [outputs, inputs] = [0, 1].map(|dim| weight.shape()[dim]);
    refuse_unless!(
        inputs > 0 && inputs.is_multiple_of(STEP) && outputs > 0,
        "takes multiples of {STEP} inputs, weight is {weight}"
    );
    let rows = input.len() / inputs;
    refuse_unless!((1..=MOST_ROWS).contains(&rows), "takes 1 to {MOST_ROWS} rows, input is {input}");
    refuse_unless!(outputs <= i32::MAX as usize / inputs, "counts elements by an int, weight is {weight}");
    Ok(())
}

/// Whether the weight is so large that its product is worth a kernel of its own.
pub(crate) fn is_large(weight: &TensorMeta) -> Claim {
    refuse_unless!(weight.len() >= LEAST_WEIGHT, "leaves products with less than {LEAST_WEIGHT} weights to libraries");
    Ok(())
}

/// Plans `input · weightᵀ + bias`, or of two weights `swiglu(input · firstᵀ, input · secondᵀ)`.
pub(crate) fn plan_product(
    plan: &mut Plan,
    input: &DeviceTensor,
    weights: &[&DeviceTensor],
    bias: Option<&DeviceTensor>,
    out: &DeviceTensor,
) -> Result<()> {
    let [outputs, inputs] = [0, 1].map(|dim| weights[0].shape()[dim]);
    let mut operands = Vec::new();
    for tensor in [input].iter().chain(weights).copied().chain(bias) {
        operands.push(readable(plan, tensor)?);
    }
    // Warps share the inputs of a block's outputs; each has several steps, so that many reads are on their way.
    let warps = (inputs / STEP / 8).next_power_of_two().clamp(2, 16);
    plan.source(source_files!["tensor_cores.cuh", "product.cu"]);
    plan.define("ELEMENT", type_of(out.dtype()));
    plan.define("ROWS", input.len() / inputs);
    plan.define("INPUTS", inputs);
    plan.define("OUTPUTS", outputs);
    plan.define("WARPS", warps);
    plan.define("GATED", u8::from(weights.len() == 2));
    plan.define("BIAS", u8::from(bias.is_some()));
    let parameters = operands.iter().chain([out]).map(Parameter::from).collect();
    let shape = LaunchShape::linear(outputs.div_ceil(OUTPUTS) as u32, 32 * warps as u32);
    plan.launch("product", shape, parameters)
}

/// `input · weightᵀ + bias` of few rows: input [..., in], weight [out, in], bias [out]; out [..., out].
#[operator(name = "decode::product")]
pub mod product {
    fn product(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        #[default(None)] bias: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
        linear::with(input, weight).bias(bias).call()
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: Option<&ArrayD<f64>>) -> ArrayD<f64> {
        rows_times(input, weight, bias)
    }

    fn samples(s: &mut Samples) {
        // One row, and as many as fit; outputs that end within a block.
        for (rows, inputs, outputs) in [(1, 64, 40), (2, 32, 16), (8, 96, 33), (9, 32, 17), (16, 64, 64)] {
            s.case(with(s.normal([rows, inputs]), s.normal([outputs, inputs])));
        }
        s.case(with(s.normal([2, 3, 64]), s.normal([24, 64])).bias(s.normal([24])));
        // Many steps, for the kernel.
        if s.dtype().size() == 2 {
            s.case(with(s.normal([5, 544]), s.normal([7, 544])));
            s.case(with(s.normal([1, 4096]), s.normal([3, 4096])).bias(s.normal([3])));
        }
        // What the kernel leaves to others.
        s.case(with(s.normal([17, 32]), s.normal([3, 32])));
        s.case(with(s.normal([2, 33]), s.normal([3, 33])));
    }
}

/// For references: `input · weightᵀ + bias`, one number after the other.
pub(crate) fn rows_times(
    input: &ndarray::ArrayD<f64>,
    weight: &ndarray::ArrayD<f64>,
    bias: Option<&ndarray::ArrayD<f64>>,
) -> ndarray::ArrayD<f64> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let mut shape = input.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs;
    }
    ndarray::ArrayD::from_shape_fn(ndarray::IxDyn(&shape), |index| {
        let mut at = ndarray::Dimension::slice(&index).to_vec();
        let (end, output) = (at.len() - 1, at[at.len() - 1]);
        let products = (0..inputs).map(|i| {
            at[end] = i;
            input[at.as_slice()] * weight[[output, i]]
        });
        products.sum::<f64>() + bias.map_or(0.0, |bias| bias[[output]])
    })
}

#[implementation(of = product, by = decode, strided)]
mod product_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::product_fits(input, weight)
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        weight: &DeviceTensor,
        bias: Option<&DeviceTensor>,
        out: &DeviceTensor,
    ) -> Result<()> {
        super::plan_product(plan, input, &[weight], bias, out)
    }
}

#[implementation(of = linear, by = decode)]
mod linear_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::product_fits(input, weight)?;
        super::is_large(weight)
    }

    fn execution(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
        super::product::with(input, weight).bias(bias).call()
    }
}
