/// Runs on both devices.
#[operator(executor = [on_host, on_gpu], no_grad = "a test")]
pub mod twice {
    fn twice(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        twice(input, out)
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        launch(plan, input, out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2])));
    }
}
