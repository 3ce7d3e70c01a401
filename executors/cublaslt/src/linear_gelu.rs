use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cublaslt::Epilogue;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::epilogue::{Product, takes_gelu};
use super::{compute, cublaslt, takes, takes_approximations, takes_linear, tf32};
use fulgurite_ops::nn::{Approximate, gelu, linear};

/// `gelu(input · weightᵀ + bias)` with the approximation by a hyperbolic tangent: input `[..., in]`, weight
/// `[out, in]`, bias `[out]`; out `[..., out]`. One product.
#[operator(name = "cublaslt::linear_gelu")]
pub mod linear_gelu {
    fn linear_gelu(input: Tensor<Floating>, weight: Tensor<Floating>, bias: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor {
        activated(linear::with(input, weight).bias(bias).call())
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: &ArrayD<f64>) -> ArrayD<f64> {
        rows_times(input, weight, bias).mapv(gelu_of)
    }

    fn samples(s: &mut Samples) {
        for (shape, outputs) in shapes() {
            let inputs = shape[shape.len() - 1];
            s.case(with(s.normal(&shape), s.normal([outputs, inputs]), s.normal([outputs])));
        }
    }
}

/// As [`mod@linear_gelu`], and what GELU was applied to, which its gradient needs: (out, `input · weightᵀ + bias`).
#[operator(name = "cublaslt::linear_gelu_aux")]
pub mod linear_gelu_aux {
    #[results(out, aux)]
    fn linear_gelu_aux(input: Tensor<Floating>, weight: Tensor<Floating>, bias: Tensor<Floating>) -> (Tensor, Tensor);

    fn decomposition(input: Tensor, weight: Tensor, bias: Tensor) -> (Tensor, Tensor) {
        let before = linear::with(input, weight).bias(bias).call();
        (activated(before), before)
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let before = rows_times(input, weight, bias);
        (before.mapv(gelu_of), before)
    }

    fn samples(s: &mut Samples) {
        for (shape, outputs) in shapes() {
            let inputs = shape[shape.len() - 1];
            s.case(with(s.normal(&shape), s.normal([outputs, inputs]), s.normal([outputs])));
        }
    }
}

#[track_caller]
fn activated(x: fulgurite_runtime::Tensor) -> fulgurite_runtime::Tensor {
    gelu::with(x).approximate(Approximate::Tanh).call()
}

fn gelu_of(x: f64) -> f64 {
    x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

/// `input · weightᵀ + bias`, one number after the other.
pub(crate) fn rows_times(
    input: &ndarray::ArrayD<f64>,
    weight: &ndarray::ArrayD<f64>,
    bias: &ndarray::ArrayD<f64>,
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
        products.sum::<f64>() + bias[[output]]
    })
}

/// Whether the library can apply GELU to a linear layer, if it takes the element type.
fn takes_linear_gelu(input: &TensorMeta, weight: &TensorMeta) -> Claim {
    takes_linear(weight)?;
    takes_gelu(input.dtype(), weight.shape()[0])
}

/// Shapes of inputs, and numbers of outputs: such as the library takes, and such as it does not.
fn shapes() -> Vec<(Vec<usize>, usize)> {
    vec![
        (vec![4, 8], 16),
        (vec![2, 3, 5], 8),
        (vec![33, 64], 72),
        (vec![6], 24),
        (vec![0, 4], 8),
        (vec![4, 8], 3),
        (vec![3, 0], 8),
    ]
}

#[implementation(of = linear_gelu, by = [cublaslt, tf32])]
mod linear_gelu_by_cublaslt {
    fn checker(input: &TensorMeta, weight: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())?;
        takes_approximations(precision, input.dtype())?;
        takes_linear_gelu(input, weight)
    }

    fn plan(
        plan: &mut Plan,
        Args { input, weight, bias }: Args<&DeviceTensor>,
        out: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        let product = Product::linear(input, weight, out, compute(precision, out.dtype()));
        Product { epilogue: Epilogue::GeluBias, bias: Some(bias), ..product }.plan(plan)
    }
}

#[implementation(of = linear_gelu_aux, by = [cublaslt, tf32])]
mod linear_gelu_aux_by_cublaslt {
    fn checker(input: &TensorMeta, weight: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())?;
        takes_approximations(precision, input.dtype())?;
        takes_linear_gelu(input, weight)
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        out: &DeviceTensor,
        aux: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        let Args { input, weight, bias } = args;
        let product = Product::linear(input, weight, out, compute(precision, out.dtype()));
        Product { epilogue: Epilogue::GeluAuxBias, bias: Some(bias), aux: Some(aux), ..product }.plan(plan)
    }
}

/// GELU of a linear layer whose result has no other reader.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod linear_then_gelu {
    fn pattern(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor {
        activated(linear::with(input, weight).bias(bias).call())
    }

    fn replacement(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor {
        linear_gelu(input, weight, bias)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([16, 8]), s.normal([16])));
        s.case(with(s.normal([2, 3, 5]), s.normal([8, 5]), s.normal([8])));
    }
}

/// Numbers of rows. With so many of f32, a product and a region take less time than one kernel that multiplies, applies
/// GELU and keeps what it was applied to. TF32 on an H200, 256 rows: 14.3 us in place of 17.3, and 22.5 in place of
/// 34.6 beside other arithmetic; in bf16 it is 11.0 in place of 9.4. Of 4096 rows one kernel takes 96 us, the product
/// alone 75.
const FASTER_APART: std::ops::Range<usize> = 256..1024;

/// GELU of a linear layer whose result the backward pass reads too.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod linear_then_gelu_kept {
    fn pattern(input: Tensor, weight: Tensor, bias: Tensor) -> (Tensor, Tensor) {
        let before = linear::with(input, weight).bias(bias).call();
        (activated(before), before)
    }

    fn replacement(input: Tensor, weight: Tensor, bias: Tensor) -> (Tensor, Tensor) {
        linear_gelu_aux(input, weight, bias)
    }

    fn condition(input: &TensorMeta) -> Claim {
        let rows = input.len() / input.shape().last().copied().unwrap_or(1).max(1);
        refuse_unless!(
            input.dtype() != DType::F32 || !FASTER_APART.contains(&rows),
            "input is {input}: of {} to {} rows of f32, GELU takes less time apart",
            FASTER_APART.start,
            FASTER_APART.end - 1
        );
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([16, 8]), s.normal([16])));
        s.case(with(s.normal([2, 3, 5]), s.normal([8, 5]), s.normal([8])));
    }
}
