/// Writes its results into lists of tensors.
#[operator(executor = liger, no_grad = "its implementations have gradients", effects(random, mutates(more), aliases(out1, bias)))]
pub mod pair {
    fn pair(more: Vec<Tensor>, bias: Option<Tensor<Floating>>, #[default(1.0)] scale: Operand<Number>) -> (Tensor, Tensor);

    fn meta(more: &[TensorMeta]) -> Result<(TensorMeta, TensorMeta)> {
        Ok((more[0].clone(), more[0].clone()))
    }

    fn cpu(
        more: Vec<TensorRef>,
        bias: Option<TensorRef>,
        out0: &mut TensorMut,
        out1: &mut TensorMut,
    ) -> Result<()> {
        kernels::pair(more, bias, out0, out1)
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2])], None));
    }
}
