/// Takes all arguments as one struct.
#[operator(executor = liger, no_grad = "its implementations have gradients")]
pub mod halved {
    fn halved(input: Tensor<Floating>, #[default(None)] mask: Option<Tensor>, #[default(2.0)] by: f64) -> Vec<Tensor>;

    fn meta(Args { input, mask, .. }: Args<&TensorMeta>) -> Result<Vec<TensorMeta>> {
        Ok(vec![input.clone(), mask.unwrap_or(input).clone()])
    }

    fn reference(args: Args<&ReferenceTensor>) -> Vec<ArrayD<f64>> {
        vec![args.input / args.by; 2]
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &[DeviceTensor]) -> Result<()> {
        launch(plan, &args, out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2])));
    }
}
