/// What is wrong is reported; the surface and the rules stay.
#[operator(prim)]
pub mod norm {
    fn norm(input: Tensor<Floating>, dims: Vec<usize>) -> Tensor;

    fn meta(inptu: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        Ok(inptu.clone())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }
}
