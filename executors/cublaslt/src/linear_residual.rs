use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cublaslt::Epilogue;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{TensorMeta, refuse_unless};

use super::epilogue::Product;
use super::{compute, cublaslt, rows_times, takes, takes_linear, tf32};
use fulgurite_ops::core::add;
use fulgurite_ops::nn::linear;
use fulgurite_ops::prims;

/// `residual + input · weightᵀ + bias`: input `[..., in]`, weight `[out, in]`, bias `[out]`, residual and out
/// `[..., out]`. One product, whose sums start from the residual.
#[operator(name = "cublaslt::linear_residual")]
pub mod linear_residual {
    fn linear_residual(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        bias: Tensor<Floating>,
        residual: Tensor<Floating>,
    ) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor {
        prims::add(residual, linear::with(input, weight).bias(bias).call())
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: &ArrayD<f64>, residual: &ArrayD<f64>) -> ArrayD<f64> {
        rows_times(input, weight, bias) + residual
    }

    fn samples(s: &mut Samples) {
        let sample = |shape: &[usize], outputs: usize| {
            let (inputs, mut wide) = (shape[shape.len() - 1], shape.to_vec());
            wide[shape.len() - 1] = outputs;
            with(s.normal(shape), s.normal([outputs, inputs]), s.normal([outputs]), s.normal(&wide))
        };
        let shapes =
            [(&[4, 8][..], 16), (&[2, 3, 5], 7), (&[33, 64], 72), (&[6], 24), (&[0, 4], 8), (&[4, 8], 1), (&[3, 0], 8)];
        let samples = shapes.map(|(shape, outputs)| sample(shape, outputs));
        for sample in samples {
            s.case(sample);
        }
    }
}

// In the place of a residual of 16 bits many of the library's algorithms round the product before they add: the same
// call would have other bits than with a result in memory of its own. `tf32` has f32 alone, where both are the same.
#[implementation(of = linear_residual, by = [cublaslt, tf32(in_place(residual))])]
mod linear_residual_by_cublaslt {
    fn checker(input: &TensorMeta, weight: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())?;
        takes_linear(weight)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor, precision: Precision) -> Result<()> {
        let Args { input, weight, bias, residual } = args;
        let product = Product::linear(input, weight, out, compute(precision, out.dtype()));
        Product { epilogue: Epilogue::Bias, bias: Some(bias), c: Some(residual), ..product }.plan(plan)
    }
}

/// Whether the residual has the form of the layer's result: nothing is broadcast or converted.
fn same_form(input: &TensorMeta, weight: &TensorMeta, residual: &TensorMeta) -> Claim {
    let mut shape = input.shape().to_vec();
    shape.pop();
    shape.push(weight.shape()[0]);
    let result = input.with_shape(shape);
    refuse_unless!(*residual == result, "residual is {residual}, the layer gives {result}");
    Ok(())
}

/// A linear layer added to a residual in either order, as autodiff leaves it.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod residual_plus_linear {
    fn pattern(input: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor {
        prims::add(residual, linear::with(input, weight).bias(bias).call())
    }

    fn replacement(input: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor {
        linear_residual(input, weight, bias, residual)
    }

    fn condition(input: &TensorMeta, weight: &TensorMeta, residual: &TensorMeta) -> Claim {
        same_form(input, weight, residual)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([16, 8]), s.normal([16]), s.normal([4, 16])));
        s.case(with(s.normal([2, 3, 5]), s.normal([8, 5]), s.normal([8]), s.normal([2, 3, 8])));
    }
}

/// As [`residual_plus_linear`], in a program that was not differentiated.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod residual_add_linear {
    fn pattern(input: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor {
        add(residual, linear::with(input, weight).bias(bias).call())
    }

    fn replacement(input: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor {
        linear_residual(input, weight, bias, residual)
    }

    fn condition(input: &TensorMeta, weight: &TensorMeta, residual: &TensorMeta) -> Claim {
        same_form(input, weight, residual)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([16, 8]), s.normal([16]), s.normal([4, 16])));
        s.case(with(s.normal([2, 3, 5]), s.normal([8, 5]), s.normal([8]), s.normal([2, 3, 8])));
    }
}
