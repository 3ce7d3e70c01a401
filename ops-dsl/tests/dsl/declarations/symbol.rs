/// Writes its results into lists of tensors.
#[operator(executor = liger, no_grad = "its implementations have gradients", effects(random))]
pub mod pair {
    #[results(first, second)]
    fn pair(more: Vec<Tensor>, bias: Option<Tensor<Floating>>, #[default(1.0)] scale: Operand<Number>) -> (Tensor, Tensor);

    fn meta(more: &[TensorMeta]) -> Result<(TensorMeta, TensorMeta)> {
        Ok((more[0].clone(), more[0].clone()))
    }

    fn cpu(
        more: Vec<TensorRef>,
        bias: Option<TensorRef>,
        first: &mut TensorMut,
        second: &mut TensorMut,
    ) -> Result<()> {
        kernels::pair(more, bias, first, second)
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2])], None));
    }
}
