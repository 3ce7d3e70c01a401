use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::kernels::cuda::cublaslt::Epilogue;
use fulgurite_runtime::precision::Precision;

use super::epilogue::{Product, takes_gelu};
use super::{compute, cublaslt, takes, takes_approximations, tf32};
use fulgurite_ops::nn::{Approximate, gelu_backward};
use fulgurite_ops::prims;

/// The gradient of GELU (by a hyperbolic tangent) at `before`, times the gradient of a linear layer:
/// `grad_output · weight` elementwise times the slope. grad_output [rows, out], weight [out, in], before and result
/// [..., in] with as many rows. One product.
#[operator(name = "cublaslt::matmul_gelu_backward")]
pub mod matmul_gelu_backward {
    fn matmul_gelu_backward(
        grad_output: Tensor<Floating>,
        weight: Tensor<Floating>,
        before: Tensor<Floating>,
    ) -> Tensor;

    fn decomposition(grad_output: Tensor, weight: Tensor, before: Tensor) -> Tensor {
        let product = prims::reshape(prims::matmul(grad_output, weight), before.shape());
        gelu_backward::with(product, before).approximate(Approximate::Tanh).call()
    }

    fn reference(grad_output: &ArrayD<f64>, weight: &ArrayD<f64>, before: &ArrayD<f64>) -> ArrayD<f64> {
        let (sums, columns) = (weight.shape()[0], weight.shape()[1]);
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let values = before.iter().enumerate().map(|(at, x)| {
            let (row, column) = (at / columns, at % columns);
            let product: f64 = (0..sums).map(|k| grad_output[[row, k]] * weight[[k, column]]).sum();
            let tanh = (root * (x + 0.044715 * x.powi(3))).tanh();
            let slope = (1.0 + tanh) / 2.0 + x / 2.0 * (1.0 - tanh * tanh) * root * (1.0 + 3.0 * 0.044715 * x * x);
            product * slope
        });
        fulgurite_ops::core::arrays::array(before.shape(), values.collect())
    }

    fn samples(s: &mut Samples) {
        let shapes: [(&[usize], usize); 6] =
            [(&[4, 16], 8), (&[2, 3, 8], 5), (&[33, 72], 64), (&[0, 8], 4), (&[4, 3], 8), (&[4, 8], 0)];
        for (shape, sums) in shapes {
            let columns = shape[shape.len() - 1];
            let rows: usize = shape[..shape.len() - 1].iter().product();
            s.case(with(s.normal([rows, sums]), s.normal([sums, columns]), s.normal(shape)));
        }
    }
}

#[implementation(of = matmul_gelu_backward, by = [cublaslt, tf32])]
mod matmul_gelu_backward_by_cublaslt {
    fn checker(weight: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, weight.dtype())?;
        takes_approximations(precision, weight.dtype())?;
        refuse_unless!(weight.shape()[0] > 0, "has nothing to multiply, weight is {weight}");
        takes_gelu(weight.dtype(), weight.shape()[1])
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor, precision: Precision) -> Result<()> {
        let Args { grad_output, weight, before } = args;
        let [k, n] = [weight.shape()[0], weight.shape()[1]];
        Product {
            m: grad_output.shape()[0],
            n,
            k,
            a: grad_output,
            a_transposed: false,
            b: weight,
            b_transposed: false,
            c: None,
            d: out,
            compute: compute(precision, out.dtype()),
            epilogue: Epilogue::DGelu,
            bias: None,
            aux: Some(before),
        }
        .plan(plan)
    }
}

/// From so many rows of gradients on, a product by itself and a region that does the rest take less time: the region
/// computes GELU again for the weight's gradient, and the sums of the bias's, from what it reads anyway. H100 80GB,
/// cuBLASLt 13.1, bf16, 16384 rows of 3072: 160 us with the slope, 111 without. TF32, 4096 rows, H200: 166 us at 118
/// TFLOP/s, where products without it make 308. H200, 256 rows, product and slope: 13.3 us by one kernel and 11.4 by
/// two in bf16, 18.8 and 16.3 in TF32.
const REGION: usize = 256;

/// The gradient of GELU after that of a linear layer.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod matmul_then_gelu_backward {
    fn pattern(grad_output: Tensor, weight: Tensor, before: Tensor) -> Tensor {
        let product = prims::reshape(prims::matmul(grad_output, weight), before.shape());
        gelu_backward::with(product, before).approximate(Approximate::Tanh).call()
    }

    fn replacement(grad_output: Tensor, weight: Tensor, before: Tensor) -> Tensor {
        matmul_gelu_backward(grad_output, weight, before)
    }

    fn condition(grad_output: &TensorMeta, weight: &TensorMeta) -> Claim {
        refuse_unless!(
            grad_output.rank() == 2 && weight.rank() == 2,
            "grad_output is {grad_output}, weight {weight}: takes matrices"
        );
        refuse_unless!(
            grad_output.shape()[0] < REGION,
            "grad_output is {grad_output}: from {REGION} rows on a region computes the slope, GELU and sums together"
        );
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([8, 16]), s.normal([4, 16])));
        s.case(with(s.normal([6, 5]), s.normal([5, 8]), s.normal([2, 3, 8])));
    }
}
