use fulgurite_ops_macros::operator;

use super::checks::dimension;
use super::support::without;

/// The position of the largest element along dimension `dim`, which the result lacks: the first of several equal ones.
/// NaN is larger than every number.
#[operator(prim, exact, torch = "argmax", no_grad = "a position has no gradient")]
pub mod argmax {
    fn argmax(input: Tensor<Number>, dim: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(
            input.shape()[dim] > 0,
            EmptyReduction,
            "input has shape {:?}: dimension {dim} is empty and has no largest element",
            input.shape()
        );
        Ok(input.with_shape(without(input.shape(), &[dim])).with_dtype(DType::I64))
    }

    fn reference(input: &ReferenceTensor, dim: usize) -> ArrayD<i64> {
        let axis = ndarray::Axis(dim);
        if input.dtype().is_floating() {
            input
                .floats()
                .map_axis(axis, |lane| first(lane.iter().copied(), |a: f64, b| a > b || (a.is_nan() && !b.is_nan())))
        } else {
            input.integers().map_axis(axis, |lane| first(lane.iter().copied(), |a, b| a > b))
        }
    }

    /// For references: the position of the first element that no other one beats.
    fn first<T: Copy>(values: impl Iterator<Item = T>, beats: impl Fn(T, T) -> bool) -> i64 {
        let best = values.enumerate().reduce(|best, next| if beats(next.1, best.1) { next } else { best });
        best.map_or(0, |(position, _)| position as i64)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0));
        s.case(with(s.normal([1]), 0));
        s.case(with(s.normal([4, 6]), 0));
        s.case(with(s.normal([4, 6]), 1));
        s.case(with(s.normal([3, 1, 5]), 1));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.values([2, 4], [1.0, 3.0, 3.0, 2.0]), 1));
        s.case(with(s.normal([5, 1030]), 1));
        if s.dtype().is_floating() {
            s.case(with(s.values([2, 4], [1.0, f64::NAN, f64::INFINITY, f64::NAN]), 1));
            s.case(with(s.values([3], [f64::NEG_INFINITY]), 0));
        }
        if let Some((least, largest)) = s.dtype().limits().filter(|_| s.dtype() != DType::I64) {
            s.case(with(s.values([4], [largest / 2, least, largest, largest / 2 + 1].map(|x| x as f64)), 0));
        }
        // Several pieces of a line.
        s.case(with(s.normal([3, 5000]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1), "dim is 1");
        e.case(EmptyReduction, with(e.normal([2, 0]), 1), "dimension 1 is empty");
    }
}
