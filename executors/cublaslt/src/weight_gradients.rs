use fulgurite_ops_macros::{operator, rewrite};
use fulgurite_runtime::rules::fulgurite_kernels::cuda::cublaslt::Epilogue;

use super::epilogue::Product;
use super::{by_both, cublaslt, tf32};
use fulgurite_ops::prims;

/// The gradients of a linear layer's weight and bias: (`grad_outputᵀ · input` `[out, in]`, the sum of the rows
/// of `grad_output` `[out]`). grad_output `[rows, out]`, input `[rows, in]`. One product, which sums what it reads.
#[operator(name = "cublaslt::weight_gradients")]
pub mod weight_gradients {
    #[results(d_weight, d_bias)]
    fn weight_gradients(grad_output: Tensor<Floating>, input: Tensor<Floating>) -> (Tensor, Tensor);

    fn decomposition(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(prims::permute(grad_output, [1, 0]), input), prims::sum(grad_output, [0]))
    }

    fn reference(grad_output: &ArrayD<f64>, input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let (rows, outputs, inputs) = (input.shape()[0], grad_output.shape()[1], input.shape()[1]);
        let weight = ArrayD::from_shape_fn(IxDyn(&[outputs, inputs]), |at| {
            (0..rows).map(|row| grad_output[[row, at[0]]] * input[[row, at[1]]]).sum()
        });
        let bias = ArrayD::from_shape_fn(IxDyn(&[outputs]), |at| (0..rows).map(|row| grad_output[[row, at[0]]]).sum());
        (weight, bias)
    }

    fn samples(s: &mut Samples) {
        for (rows, outputs, inputs) in [(4, 16, 8), (7, 5, 3), (65, 72, 64), (1, 8, 8), (0, 4, 8), (6, 1, 5), (3, 8, 0)]
        {
            s.case(with(s.normal([rows, outputs]), s.normal([rows, inputs])));
        }
    }
}

by_both!(weight_gradients, weight_gradients_by_cublaslt, weight_gradients_by_tf32, [], {
    fn checker(grad_output: &TensorMeta, input: &TensorMeta) -> Claim {
        precision::takes(grad_output.dtype())?;
        refuse_unless!(input.shape()[1] > 0, "has no product to sum beside, input is {input}");
        refuse_unless!(grad_output.dtype() != DType::F64, "has no sums of f64 beside a product");
        let [rows, outputs] = [grad_output.shape()[0], grad_output.shape()[1]];
        refuse_unless!(rows > 0 && outputs > 1, "has nothing to sum, or a single sum: grad_output is {grad_output}");
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        grad_output: &DeviceTensor,
        input: &DeviceTensor,
        d_weight: &DeviceTensor,
        d_bias: &DeviceTensor,
    ) -> Result<()> {
        Product {
            m: grad_output.shape()[1],
            n: input.shape()[1],
            k: input.shape()[0],
            a: grad_output,
            a_transposed: true,
            b: input,
            b_transposed: false,
            c: None,
            d: d_weight,
            compute: precision::compute(d_weight.dtype()),
            epilogue: Epilogue::BiasGradA,
            bias: Some(d_bias),
            aux: None,
        }
        .plan(plan)
    }
});

/// The two gradients, as a linear layer's pullback writes them.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod gradients_of_weight_and_bias {
    fn pattern(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(prims::permute(grad_output, [1, 0]), input), prims::sum(grad_output, [0]))
    }

    fn replacement(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        weight_gradients(grad_output, input)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 16]), s.normal([4, 8])));
        s.case(with(s.normal([7, 5]), s.normal([7, 3])));
    }
}
