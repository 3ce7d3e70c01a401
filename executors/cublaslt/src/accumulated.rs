//! Products that are added to what is there already.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::cuda::cublaslt::Epilogue;
use fulgurite_runtime::precision::Precision;

use super::epilogue::Product;
use super::{compute, cublaslt, takes, tf32};
use fulgurite_ops::nn::accumulate_weight_gradient;

#[implementation(of = accumulate_weight_gradient, by = [cublaslt, tf32], in_place(total))]
mod accumulate_weight_gradient_by_cublaslt {
    fn checker(grad_output: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, grad_output.dtype())?;
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        total: &DeviceTensor,
        grad_output: &DeviceTensor,
        input: &DeviceTensor,
        out: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        // In the place of a total of 16 bits many of the library's algorithms round the product before they add, so
        // that it is added in place always: the bits do not depend on where the plan has the result.
        let (product, narrow) = (input.shape()[0] > 0, total.dtype().size() == 2);
        let moved = (narrow || !product) && !plan.lies_over(out, total);
        if moved {
            plan.copy(total, out);
        }
        if !product {
            return Ok(());
        }
        Product {
            m: grad_output.shape()[1],
            n: input.shape()[1],
            k: input.shape()[0],
            a: grad_output,
            a_transposed: true,
            b: input,
            b_transposed: false,
            c: Some(if moved { out } else { total }),
            d: out,
            compute: compute(precision, out.dtype()),
            epilogue: Epilogue::None,
            bias: None,
            aux: None,
        }
        .plan(plan)
    }
}
