use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::kernels::cuda::cublaslt::Format;
use fulgurite_runtime::precision::Precision;

use super::eight_bits::{Forms, Quantized, has_products, product, takes};
use super::epilogue::Product;
use super::fp8;
use fulgurite_ops::prims;

/// The gradients of a linear layer's input and weight: (`grad_output · weight` `[rows, in]`, `grad_outputᵀ · input`
/// `[out, in]`). grad_output `[rows, out]`, weight `[out, in]`, input `[rows, in]`. Two products of what is read and
/// rounded once.
#[operator(name = "fp8::linear_gradients")]
pub mod linear_gradients {
    #[results(d_input, d_weight)]
    fn linear_gradients(
        grad_output: Tensor<Floating>,
        weight: Tensor<Floating>,
        input: Tensor<Floating>,
    ) -> (Tensor, Tensor);

    fn decomposition(grad_output: Tensor, weight: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(grad_output, weight), prims::matmul(prims::permute(grad_output, [1, 0]), input))
    }

    fn reference(grad_output: &ArrayD<f64>, weight: &ArrayD<f64>, input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let product = fulgurite_ops::core::arrays::product;
        (product(grad_output, weight), product(&grad_output.t().to_owned(), input))
    }

    fn samples(s: &mut Samples) {
        for (rows, outputs, inputs) in [(32, 16, 48), (64, 80, 16), (16, 16, 16), (144, 208, 80), (7, 5, 3), (0, 16, 8)]
        {
            s.case(with(s.normal([rows, outputs]), s.normal([outputs, inputs]), s.normal([rows, inputs])));
        }
    }
}

/// grad_output is rounded to E5M2, weight and input to E4M3.
#[implementation(of = linear_gradients, by = crate::fp8)]
mod linear_gradients_by_fp8 {
    fn checker(grad_output: &TensorMeta, weight: &TensorMeta) -> Claim {
        let [rows, outputs, inputs] = [grad_output.shape()[0], weight.shape()[0], weight.shape()[1]];
        takes(grad_output.dtype(), &[("grad_output's rows", rows), ("weight's rows", outputs), ("its columns", inputs)])
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, d_input: &DeviceTensor, d_weight: &DeviceTensor) -> Result<()> {
        let Args { grad_output, weight, input } = args;
        let compute = crate::compute(Precision::Exact, d_input.dtype());
        let (plain, of_weight) = Product::of_gradients(grad_output, weight, input, d_input, d_weight, compute);
        if !has_products(plan) {
            plain.plan(plan)?;
            return of_weight.plan(plan);
        }
        let gradient = Quantized::new(plan, grad_output, Format::E5M2, Forms { plain: true, transposed: true })?;
        let turned = Forms { plain: false, transposed: true };
        let weight = Quantized::new(plan, weight, Format::E4M3, turned)?;
        let input = Quantized::new(plan, input, Format::E4M3, turned)?;
        product(plan, (gradient, false), (weight, true), None, d_input, plain)?;
        product(plan, (gradient, true), (input, true), None, d_weight, of_weight)
    }
}

/// Both gradients, as a linear layer's pullback writes them.
#[rewrite(executor = fp8)]
pub mod gradients_of_linear {
    fn pattern(grad_output: Tensor, weight: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(grad_output, weight), prims::matmul(prims::permute(grad_output, [1, 0]), input))
    }

    fn replacement(grad_output: Tensor, weight: Tensor, input: Tensor) -> (Tensor, Tensor) {
        linear_gradients(grad_output, weight, input)
    }

    fn condition(grad_output: &TensorMeta, weight: &TensorMeta, input: &TensorMeta) -> Claim {
        let ranks = [grad_output, weight, input].map(|operand| operand.rank());
        refuse_unless!(ranks == [2; 3], "grad_output is {grad_output}, weight {weight}, input {input}: takes matrices");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([16, 32]), s.normal([32, 48]), s.normal([16, 48])));
        s.case(with(s.normal([7, 5]), s.normal([5, 3]), s.normal([7, 3])));
    }
}
