#[implementation(of = rms_norm, by = super::liger, waive(d_out = "a test"))]
mod rms_norm_by_liger {
    fn checker(input: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
        refuse_unless!(weight.is_some(), "needs a weight");
        Ok(())
    }

    fn execution(input: Tensor, _normalized_shape: &[usize], weight: Option<Tensor>, eps: Option<f64>) -> Tensor {
        forward(input, weight, eps).0
    }

    fn grad(
        input: Tensor,
        _normalized_shape: &[usize],
        weight: Option<Tensor>,
        eps: Option<f64>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let (out, rstd) = forward(input, weight, eps);
        (out, move |_d_out| Grads { input: rstd, weight: None })
    }

    fn cpu(input: TensorRef, eps: Option<f64>, out: &mut TensorMut) -> Result<()> {
        kernels::rms_norm(input, eps, out)
    }
}
