use fulgurite_ops_macros::operator;

use crate::optim::{clip_grads_with_norm, sum_of_squares};
use crate::prims;

/// The gradients scaled down together so that their total norm is at most `max_norm`, and that norm before, last. The
/// factor is `min(max_norm / (norm + 1e-6), 1)`, as in torch.nn.utils.clip_grad_norm_; the norm is f32 (f64 of f64).
#[operator(no_grad = "gradients of gradients are not clipped")]
pub mod clip_grad_norm {
    fn clip_grad_norm(grads: Vec<Tensor<Floating>>, max_norm: f64) -> Vec<Tensor>;

    fn requires(grads: &[TensorMeta], max_norm: f64) -> Result<()> {
        require!(!grads.is_empty(), NoGradients, "grads is empty, expected at least one tensor");
        let dtype = grads[0].dtype();
        let same = grads.iter().all(|grad| grad.dtype() == dtype);
        require!(same, SameDType, "grads are of several dtypes, expected all {dtype}");
        require!(max_norm >= 0.0, MaxNorm, "max_norm is {max_norm}, expected at least 0");
        Ok(())
    }

    fn decomposition(grads: Vec<Tensor>, max_norm: f64) -> Vec<Tensor> {
        let norm = prims::sqrt(sum_of_squares(&grads));
        if max_norm == f64::INFINITY {
            return grads.into_iter().chain([norm]).collect();
        }
        clip_grads_with_norm(&grads, norm, max_norm).into_iter().chain([norm]).collect()
    }

    fn reference(grads: Vec<&ArrayD<f64>>, max_norm: f64) -> Vec<ArrayD<f64>> {
        let norm = grads.iter().map(|grad| grad.iter().map(|g| g * g).sum::<f64>()).sum::<f64>().sqrt();
        let factor = if max_norm.is_infinite() { 1.0 } else { (max_norm / (norm + 1e-6)).min(1.0) };
        let scaled = grads.into_iter().map(|grad| grad * factor);
        scaled.chain([ArrayD::from_elem(IxDyn(&[]), norm)]).collect()
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([4, 8]), s.normal([7])], 1.0));
        s.case(with([s.normal([4, 8]), s.normal([7])], 100.0));
        s.case(with([s.normal([])], 0.5));
        s.case(with([s.normal([0, 3]), s.normal([65, 3])], 2.0));
        s.case(with([s.normal([5])], f64::INFINITY));
        s.case(with([s.normal([5])], 0.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoGradients, with([], 1.0), "grads is empty");
        e.case(SameDType, with([e.normal([2]), e.of(DType::F64, [2])], 1.0), "of several dtypes");
        e.case(MaxNorm, with([e.normal([2])], -1.0), "max_norm is -1");
    }
}
