/// Root-mean-square normalization over the trailing dimensions.
#[operator(
    torch = "nn.functional.rms_norm",
    autocast = full,
    skip(golden, executor = "cpu", dtype = bf16, dtype = f16, sample = 2, reason = "not stored"),
    tolerance(consistency, factor = 4.0, reason = "cancellation")
)]
pub mod rms_norm {
    fn rms_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] eps: Option<f64>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, normalized_shape: &[usize], weight: Option<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.shape().ends_with(normalized_shape), TrailingShape, "input has shape {:?}", input.shape());
        if let Some(weight) = weight {
            require!(weight.shape() == normalized_shape, WeightShape, "weight has shape {:?}", weight.shape());
        }
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, _normalized_shape: &[usize], weight: Option<Tensor>, _eps: Option<f64>) -> Tensor {
        scaled(input, weight)
    }

    fn scaled(input: Tensor, weight: Option<Tensor>) -> Tensor {
        weight.map_or(input, |weight| input * weight)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), [8]).eps(1e-5));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(TrailingShape, with(e.normal([4, 8]), [7]), "input has shape [4, 8]");
        e.case(WeightShape, with(e.normal([4, 8]), [8]).weight(e.normal([7])), "weight has shape [7]");
    }
}
