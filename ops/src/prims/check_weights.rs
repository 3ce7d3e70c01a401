use fulgurite_ops_macros::operator;

/// `input` itself, once every row of it is known to hold weights that something can be drawn by: finite numbers that
/// are not negative, with a sum above zero that is finite as well (in f64 if `input` is, otherwise in f32). Other rows
/// are an error when the program runs.
#[operator(prim, no_grad = "what is drawn by weights has no gradient by them")]
pub mod check_weights {
    fn check_weights(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(
            input.rank() == 2 && input.shape()[1] > 0,
            Rows,
            "input has shape {:?}, expected two dimensions, the last not empty",
            input.shape()
        );
        Ok(input.clone())
    }

    fn reference(input: &ReferenceTensor) -> Result<ReferenceTensor> {
        let largest = if input.dtype() == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
        for (row, weights) in input.floats().rows().into_iter().enumerate() {
            if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
                return Err(super::wrong_weight(row, *weight));
            }
            let sum: f64 = weights.sum();
            if sum == 0.0 || sum > largest {
                return Err(super::wrong_sum(row, sum));
            }
        }
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 2.0, [1, 1])));
        s.case(with(s.uniform(0.0, 2.0, [4, 6])));
        s.case(with(s.values([2, 3], [1.0, 0.0, 0.0])));
        s.case(with(s.uniform(0.0, 1.0, [0, 3])));
        s.case(with(s.uniform(0.0, 1.0, [3, 1030])));
        // A sum that is small is above zero.
        s.case(with(s.values([2, 3], [0.0078125, 0.0, 0.0])));
        // As large as a sum may be.
        s.case(with(s.values([1, 1], [s.dtype().largest()])));
    }

    fn errors(e: &mut ErrorSamples) {
        for (weight, message) in [
            (f64::NAN, "row 1 of the weights holds NaN"),
            (f64::INFINITY, "row 1 of the weights holds inf"),
            (-0.5, "row 1 of the weights holds -0.5"),
            (0.0, "row 1 of the weights has the sum 0"),
        ] {
            let weights = e.values([2, 3], [1.0, 0.0, 0.0, 0.0, weight, 0.0]);
            e.when_run("Weights", with(weights), message);
        }
        for dtype in [DType::F32, DType::F64] {
            let weights = e.values([1, 3], [dtype.largest(), dtype.largest(), 0.0]).cast(dtype);
            e.when_run("Weights", with(weights), "row 0 of the weights has the sum");
        }
        e.case(Rows, with(e.normal([4])), "expected two dimensions");
        e.case(Rows, with(e.normal([4, 0])), "the last not empty");
    }
}

/// The failure for a weight that nothing can be drawn by.
pub fn wrong_weight(row: usize, weight: f64) -> fulgurite_runtime::Failure {
    let message = format!("row {row} of the weights holds {weight}, expected finite numbers that are not negative");
    fulgurite_runtime::Failure::new("Weights", message)
}

/// The failure for weights whose sum is zero, or beyond the largest number.
pub fn wrong_sum(row: usize, sum: f64) -> fulgurite_runtime::Failure {
    let message = format!("row {row} of the weights has the sum {sum}, expected a finite one above 0");
    fulgurite_runtime::Failure::new("Weights", message)
}
