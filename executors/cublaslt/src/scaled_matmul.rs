use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::precision::Precision;

use super::{compute, cublaslt, product, takes, tf32};
use fulgurite_ops::prims;

/// `factor · input · other`, matrices or batches of them: input [..., m, k], other [..., k, n]. The factor is the
/// product's own.
#[operator(name = "cublaslt::scaled_matmul")]
pub mod scaled_matmul {
    fn scaled_matmul(input: Tensor<Floating>, other: Tensor<Floating>, factor: f64) -> Tensor;

    fn decomposition(input: Tensor, other: Tensor, factor: f64) -> Tensor {
        let out = prims::matmul(input, other);
        prims::mul(out, factor)
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>, factor: f64) -> ArrayD<f64> {
        fulgurite_ops::core::arrays::product(input, other) * factor
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([8, 3]), 0.5));
        s.case(with(s.normal([2, 3, 5, 8]), s.normal([2, 3, 8, 7]), 0.125));
        s.case(with(s.normal([2, 33, 64]), s.normal([2, 64, 65]), -2.0));
        s.case(with(s.normal([0, 4]), s.normal([4, 3]), 0.5));
        s.case(with(s.normal([4, 0]), s.normal([0, 3]), 0.5));
    }
}

#[implementation(of = scaled_matmul, by = [cublaslt, tf32], strided)]
mod scaled_matmul_by_cublaslt {
    fn checker(input: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())
    }

    fn plan(
        plan: &mut Plan,
        Args { input, other, factor }: Args<&DeviceTensor>,
        out: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        product(plan, input, other, out, compute(precision, out.dtype()), factor)
    }
}

/// Scores of attention, scaled by 1/√E.
#[rewrite(executor = cublaslt, executor = tf32)]
pub mod matmul_then_scale {
    fn pattern(query: Tensor, key: Tensor) -> Tensor {
        let scores = prims::matmul(query, key);
        prims::mul(scores, scale_of(query))
    }

    fn replacement(query: Tensor, key: Tensor) -> Tensor {
        scaled_matmul(query, key, scale_of(query))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 5, 8]), s.normal([2, 3, 8, 7])));
        s.case(with(s.normal([4, 16]), s.normal([16, 3])));
    }
}

/// What `scaled_dot_product_attention` scales with if it is not told.
fn scale_of(query: fulgurite_runtime::Tensor) -> f64 {
    1.0 / (query.size(-1) as f64).sqrt()
}
