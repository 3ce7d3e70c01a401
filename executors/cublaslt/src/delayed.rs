//! Layers of 8 bits whose factors are known before their operands are read: one pass over each operand.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::cuda::cublaslt::{Epilogue, Format};
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::refuse_unless;

use super::eight_bits::{Expected, Forms, Quantized, has_products, look, product, takes};
use super::epilogue::Product;
use fulgurite_ops::nn::{delayed_linear, delayed_linear_backward};

/// Bytes of a number of `largest`.
const NUMBER: u64 = size_of::<f32>() as u64;

/// input and weight are rounded to E4M3.
#[implementation(of = delayed_linear, by = crate::fp8)]
mod delayed_linear_by_fp8 {
    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        refuse_unless!(!input.is_empty(), "has nothing to multiply, input is {input}");
        takes(input.dtype(), &[("weight's rows", weight.shape()[0]), ("its columns", weight.shape()[1])])
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, weight, largest, bias } = args;
        let epilogue = if bias.is_some() { Epilogue::Bias } else { Epilogue::None };
        let plain = Product::linear(input, weight, out, crate::compute(Precision::Exact, out.dtype()));
        let plain = Product { epilogue, bias, ..plain };
        if !has_products(plan) {
            return plain.plan(plan);
        }
        let as_it_is = Forms { plain: true, transposed: false };
        let expected = |at: u64| Expected { largest: largest.address.offset(at * NUMBER), seen: None };
        let input = Quantized::delayed(plan, input, Format::E4M3, as_it_is, expected(0))?;
        let weight = Quantized::delayed(plan, weight, Format::E4M3, as_it_is, expected(1))?;
        product(plan, (input, false), (weight, false), bias, out, plain)
    }
}

/// grad_output is rounded to E5M2, weight and input to E4M3.
#[implementation(of = delayed_linear_backward, by = crate::fp8)]
mod delayed_linear_backward_by_fp8 {
    fn checker(grad_output: &TensorMeta, weight: &TensorMeta) -> Claim {
        let [rows, outputs, inputs] = [grad_output.shape()[0], weight.shape()[0], weight.shape()[1]];
        takes(grad_output.dtype(), &[("grad_output's rows", rows), ("weight's rows", outputs), ("its columns", inputs)])
    }

    fn plan(
        plan: &mut Plan,
        Args { grad_output, weight, input, largest }: Args<&DeviceTensor>,
        d_input: &DeviceTensor,
        d_weight: &DeviceTensor,
        seen: &DeviceTensor,
    ) -> Result<()> {
        let compute = crate::compute(Precision::Exact, d_input.dtype());
        let (plain, of_weight) = Product::of_gradients(grad_output, weight, input, d_input, d_weight, compute);
        // The bits of magnitudes are ordered as they are; those of 0 are the least.
        plan.fill(seen, 0);
        if !has_products(plan) {
            for (at, operand) in [input, weight, grad_output].into_iter().enumerate() {
                look(plan, operand, seen.address.offset(at as u64 * NUMBER))?;
            }
            plain.plan(plan)?;
            return of_weight.plan(plan);
        }
        let expected = |at: u64| Expected {
            largest: largest.address.offset(at * NUMBER),
            seen: Some(seen.address.offset(at * NUMBER)),
        };
        let both = Forms { plain: true, transposed: true };
        let turned = Forms { plain: false, transposed: true };
        let gradient = Quantized::delayed(plan, grad_output, Format::E5M2, both, expected(2))?;
        let weight = Quantized::delayed(plan, weight, Format::E4M3, turned, expected(1))?;
        let input = Quantized::delayed(plan, input, Format::E4M3, turned, expected(0))?;
        product(plan, (gradient, false), (weight, true), None, d_input, plain)?;
        product(plan, (gradient, true), (input, true), None, d_weight, of_weight)
    }
}
