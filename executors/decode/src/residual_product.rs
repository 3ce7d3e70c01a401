use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::TensorMeta;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::refuse_unless;

use super::{Product, decode, is_worth_it, product_fits, rows_times};
use fulgurite_ops::core::add;
use fulgurite_ops::nn::linear;

/// `residual + input · weightᵀ`, in the place of the residual: input [..., in], weight [out, in], residual and out
/// [..., out].
#[operator(name = "decode::residual_product")]
pub mod residual_product {
    fn residual_product(residual: Tensor<Floating>, input: Tensor<Floating>, weight: Tensor<Floating>) -> Tensor;

    fn decomposition(residual: Tensor, input: Tensor, weight: Tensor) -> Tensor {
        add(residual, linear(input, weight))
    }

    fn reference(residual: &ArrayD<f64>, input: &ArrayD<f64>, weight: &ArrayD<f64>) -> ArrayD<f64> {
        rows_times(input, weight, None) + residual
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs) in [(1, 64, 40), (8, 32, 33), (16, 96, 17), (17, 32, 3)] {
            s.case(with(s.normal([rows, outputs]), s.normal([rows, inputs]), s.normal([outputs, inputs])));
        }
        s.case(with(s.normal([2, 3, 24]), s.normal([2, 3, 64]), s.normal([24, 64])));
        // Many steps, for the kernel.
        if s.dtype().size() == 2 {
            s.case(with(s.normal([3, 7]), s.normal([3, 544]), s.normal([7, 544])));
        }
    }
}

#[implementation(of = residual_product, by = decode, strided, in_place(residual))]
mod residual_product_by_decode {
    fn checker(residual: &TensorMeta, input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::product_fits(input, weight)?;
        super::same_form(residual, input, weight)
    }

    fn plan(plan: &mut Plan, Args { residual, input, weight }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::Product { input, weights: &[weight], norm: None, bias: None, residual: Some(residual), quantized: None }
            .plan(plan, out)
    }
}

/// Whether the residual has the form of the layer's result: nothing is broadcast or converted.
pub(crate) fn same_form(residual: &TensorMeta, input: &TensorMeta, weight: &TensorMeta) -> Claim {
    let mut shape = input.shape().to_vec();
    shape.pop();
    shape.push(weight.shape()[0]);
    let result = input.with_shape(shape);
    refuse_unless!(*residual == result, "residual is {residual}, the layer gives {result}");
    Ok(())
}

/// A linear layer that is added to a residual.
#[rewrite(executor = decode)]
pub mod residual_of_linear {
    fn pattern(residual: Tensor, input: Tensor, weight: Tensor) -> Tensor {
        add(residual, linear(input, weight))
    }

    fn replacement(residual: Tensor, input: Tensor, weight: Tensor) -> Tensor {
        residual_product(residual, input, weight)
    }

    fn condition(residual: &TensorMeta, input: &TensorMeta, weight: &TensorMeta) -> Claim {
        is_worth_it(weight)?;
        super::same_form(residual, input, weight)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 16]), s.normal([4, 8]), s.normal([16, 8])));
        s.case(with(s.normal([2, 3, 8]), s.normal([2, 3, 5]), s.normal([8, 5])));
    }
}
