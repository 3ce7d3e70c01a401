use fulgurite_ops_macros::operator;

use crate::core::promotion::{accumulating, broadcast, cast};
use crate::prims;

/// The gradients scaled down together, given their total norm: every tensor times `min(max_norm / (norm + 1e-6), 1)`,
/// as in torch.nn.utils.clip_grads_with_norm_. The norm is f32[] (f64[] of f64).
#[operator(no_grad = "gradients of gradients are not clipped")]
pub mod clip_grads_with_norm {
    fn clip_grads_with_norm(grads: Vec<Tensor<Floating>>, norm: Tensor<Floating>, max_norm: f64) -> Vec<Tensor>;

    fn requires(grads: &[TensorMeta], norm: &TensorMeta, max_norm: f64) -> Result<()> {
        require!(!grads.is_empty(), NoGradients, "grads is empty, expected at least one tensor");
        let dtype = grads[0].dtype();
        let same = grads.iter().all(|grad| grad.dtype() == dtype);
        require!(same, SameDType, "grads are of several dtypes, expected all {dtype}");
        let expected = norm.with_dtype(dtype.accumulator()).with_shape([]);
        require!(*norm == expected, Norm, "norm is {norm}, expected {expected}");
        require!(max_norm >= 0.0, MaxNorm, "max_norm is {max_norm}, expected at least 0");
        Ok(())
    }

    fn decomposition(grads: Vec<Tensor>, norm: Tensor, max_norm: f64) -> Vec<Tensor> {
        let factor = prims::minimum(prims::div(max_norm, prims::add(norm, 1e-6)), 1.0);
        let scaled = grads.iter().map(|grad| {
            let wide = accumulating(*grad);
            cast(prims::mul(wide, broadcast(factor, &grad.shape())), grad.dtype())
        });
        scaled.collect()
    }

    fn reference(grads: Vec<&ArrayD<f64>>, norm: &ArrayD<f64>, max_norm: f64) -> Vec<ArrayD<f64>> {
        let factor = (max_norm / (norm.sum() + 1e-6)).min(1.0);
        grads.into_iter().map(|grad| grad * factor).collect()
    }

    fn samples(s: &mut Samples) {
        let norm = |value: f64| s.values([], [value]).cast(s.dtype().accumulator());
        let cases = [
            with([s.normal([4, 8]), s.normal([7])], norm(5.0), 1.0),
            with([s.normal([])], norm(0.25), 0.5),
            with([s.normal([0, 3]), s.normal([65, 3])], norm(3.0), 2.0),
            with([s.normal([3]), s.normal([3, 129]), s.normal([129])], norm(160.0), 1.0),
            with([s.normal([3])], norm(2.0), 0.0),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let norm = || e.of(DType::F32, []);
        e.case(NoGradients, with([], norm(), 1.0), "grads is empty");
        e.case(SameDType, with([e.normal([2]), e.of(DType::F64, [2])], norm(), 1.0), "of several dtypes");
        e.case(Norm, with([e.of(DType::F32, [2])], e.of(DType::F32, [2]), 1.0), "norm is f32[2]");
        e.case(MaxNorm, with([e.of(DType::F32, [2])], norm(), -1.0), "max_norm is -1");
    }
}
