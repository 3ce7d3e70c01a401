use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cublaslt::Epilogue;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{TensorMeta, refuse_unless};

use super::epilogue::Product;
use super::{compute, cublaslt, takes, tf32};
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

#[implementation(of = weight_gradients, by = [cublaslt, tf32])]
mod weight_gradients_by_cublaslt {
    fn checker(grad_output: &TensorMeta, input: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, grad_output.dtype())?;
        refuse_unless!(input.shape()[1] > 0, "has no product to sum beside, input is {input}");
        refuse_unless!(grad_output.dtype() != DType::F64, "has no sums of f64 beside a product");
        let [rows, outputs] = [grad_output.shape()[0], grad_output.shape()[1]];
        refuse_unless!(rows > 0 && outputs > 1, "has nothing to sum, or a single sum: grad_output is {grad_output}");
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        d_weight: &DeviceTensor,
        d_bias: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        let Args { grad_output, input } = args;
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
            compute: compute(precision, d_weight.dtype()),
            epilogue: Epilogue::BiasGradA,
            bias: Some(d_bias),
            aux: None,
        }
        .plan(plan)
    }
}

/// From so many rows of gradients on, a product by itself and a sum by itself take less time, if the sums are of
/// as many columns as [`COLUMNS_SUMMED_APART`] says.
///
/// The library's kernels that sum beside a product are slower ones. H100 80GB, cuBLASLt 13.1, bf16, 16384 rows, cold
/// caches, the best algorithm of the heuristics: 2304 x 768 in 147 us against 87, 3072 x 768 in 156 against 108,
/// 768 x 3072 in 125 against 109, 768 x 768 in 59 against 42. A pass of its own over the gradients takes 8 to 33 us,
/// and most sums need none: they are computed by the region that gives the gradients, which takes sums from 1024 rows
/// and 256 columns on. In TF32 it is as much: of a step of GPT-2 124M, 4096 rows, the 48 products with sums took 4.7 ms
/// on an H200, at 147 TFLOP/s, where the products without sums made 308. Exact f32, whose products take eight times as
/// long, was not measured: there a pass more is a small part.
const SUMMED_APART: usize = 1024;

/// The columns of which `fusion` computes sums in a region, which are also those that were measured.
const COLUMNS_SUMMED_APART: std::ops::RangeInclusive<usize> = 256..=8192;

/// Whether the sums of gradients [..., columns] are to be computed beside the product.
fn sums_beside(grad_output: &TensorMeta) -> Claim {
    let (columns, leading) = grad_output.shape().split_last().map_or((1, &[][..]), |(last, leading)| (*last, leading));
    let rows: usize = leading.iter().product();
    refuse_unless!(
        rows < SUMMED_APART || !COLUMNS_SUMMED_APART.contains(&columns),
        "grad_output is {grad_output}: sums of {SUMMED_APART} rows and more of {} to {} columns take less time apart",
        COLUMNS_SUMMED_APART.start(),
        COLUMNS_SUMMED_APART.end()
    );
    Ok(())
}

/// The two gradients, as the pullback of a linear layer of matrices writes them.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod gradients_of_weight_and_bias {
    fn pattern(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(prims::permute(grad_output, [1, 0]), input), prims::sum(grad_output, [0]))
    }

    fn replacement(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        weight_gradients(grad_output, input)
    }

    fn condition(grad_output: &TensorMeta) -> Claim {
        sums_beside(grad_output)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 16]), s.normal([4, 8])));
        s.case(with(s.normal([7, 5]), s.normal([7, 3])));
    }
}

/// The two gradients, as the pullback of a linear layer of sequences writes them.
#[rewrite(executor = cublaslt, executor = tf32, keep_inner)]
pub mod gradients_of_weight_and_bias_of_sequences {
    fn rows_of(sequences: Tensor) -> Tensor {
        let [batch, length, width] = [0, 1, 2].map(|dim| sequences.size(dim));
        prims::reshape(sequences, [batch * length, width])
    }

    fn pattern(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        (prims::matmul(prims::permute(rows_of(grad_output), [1, 0]), input), prims::sum(grad_output, [0, 1]))
    }

    fn replacement(grad_output: Tensor, input: Tensor) -> (Tensor, Tensor) {
        weight_gradients(rows_of(grad_output), input)
    }

    fn condition(grad_output: &TensorMeta) -> Claim {
        sums_beside(grad_output)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 16]), s.normal([6, 8])));
        s.case(with(s.normal([1, 7, 5]), s.normal([7, 3])));
    }
}
