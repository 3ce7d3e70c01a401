//! Counts of numbers by value. The number of bins is an argument: a shape does not depend on data.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::{DType, Tensor};

use super::promotion::{accumulating, cast, constant_like};
use super::{in_range, read_as};
use crate::prims;

/// The number of elements of `input` in each of `bins` parts of equal width between `min` and `max`, the last of which
/// includes its end; others, and NaN, are not counted. If `min` and `max` are equal, they are the smallest and the
/// largest element (and one less and one more of equal elements).
#[operator(torch = "histc", no_grad = "a count has no gradient")]
pub mod histc {
    fn histc(
        input: Tensor<Floating>,
        #[default(100usize)] bins: usize,
        #[default(0.0)] min: f64,
        #[default(0.0)] max: f64,
    ) -> Tensor;

    fn meta(input: &TensorMeta, bins: usize, min: f64, max: f64) -> Result<TensorMeta> {
        require!(bins > 0, Bins, "bins is 0, expected at least 1");
        require!(
            min.is_finite() && max.is_finite() && min <= max,
            Range,
            "min is {min} and max is {max}, expected finite numbers, the second not below the first"
        );
        Ok(input.with_shape([bins]))
    }

    fn decomposition(input: Tensor, bins: usize, min: f64, max: f64) -> Tensor {
        let count: usize = input.shape().iter().product();
        let line = read_as(accumulating(input), &[count]);
        let number = |value: f64| constant_like(prims::full([], 0.0, line.dtype(), line.device()), value);
        let (low, high) = match min == max {
            true if count > 0 => {
                let (low, high) = (prims::amin(line, [0]), prims::amax(line, [0]));
                let wider = prims::convert_element_type(prims::eq(low, high), line.dtype());
                (prims::sub(low, wider), prims::add(high, wider))
            }
            _ => (number(min), number(max)),
        };
        let all = |bound: Tensor| prims::broadcast_in_dim(bound, [count], []);
        let width = prims::sub(high, low);
        let place = prims::div(prims::mul(prims::sub(line, all(low)), bins as f64), all(width));
        let place = prims::minimum(cast(prims::floor(place), DType::I64), bins as i64 - 1);
        let counts = prims::logical_and(prims::ge(line, all(low)), prims::le(line, all(high)));
        // What is not counted has a bin of its own.
        counted(prims::select(counts, place, bins as i64), bins, input.dtype())
    }

    fn reference(input: &ArrayD<f64>, bins: usize, min: f64, max: f64) -> ArrayD<f64> {
        let (mut low, mut high) = (min, max);
        if min == max && !input.is_empty() {
            low = input.iter().copied().fold(f64::INFINITY, f64::min);
            high = input.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if low == high {
                (low, high) = (low - 1.0, high + 1.0);
            }
        }
        let mut out = ArrayD::zeros(IxDyn(&[bins]));
        for x in input.iter().filter(|x| (low..=high).contains(x)) {
            let place = (x - low) / (high - low) * bins as f64;
            out[[(place as usize).min(bins - 1)]] += 1.0;
        }
        out
    }

    fn samples(s: &mut Samples) {
        let values = [0.3, 1.2, -0.4, 5.0, 2.6, 2.7, 1.1, -7.0, 0.0, 4.4];
        s.case(with(s.values([2, 5], values)).bins(5usize).min(0.0).max(5.0));
        s.case(with(s.values([10], values)).bins(7usize));
        s.case(with(s.values([3], [2.0])).bins(4usize));
        s.case(with(s.values([0], [])).bins(3usize).min(-1.0).max(2.0));
        s.case(with(s.values([], [0.3])).min(0.0).max(1.0));
        let special = [f64::NAN, f64::INFINITY, 1.2, f64::NEG_INFINITY];
        s.case(with(s.values([4], special)).bins(3usize).min(-1.0).max(2.0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Bins, with(e.normal([2])).bins(0usize), "bins is 0");
        e.case(Range, with(e.normal([2])).min(2.0).max(1.0), "min is 2 and max is 1");
        e.case(Range, with(e.normal([2])).min(f64::NAN), "expected finite numbers");
        e.case(Range, with(e.normal([2])).max(f64::INFINITY), "expected finite numbers");
    }
}

/// How often each of the numbers from 0 up to, not including, `minlength` is in the one-dimensional `input`, or the sum
/// of its `weights`, in the order of the elements. The result has `minlength` elements, where PyTorch's has more if
/// there is a larger number: such a number is an error when the program runs, as a negative one is.
#[operator(torch = "bincount", no_grad = "a count has no gradient")]
pub mod bincount {
    fn bincount(input: Tensor<Integer>, minlength: usize, #[default(None)] weights: Option<Tensor>) -> Tensor;

    fn meta(input: &TensorMeta, weights: Option<&TensorMeta>, minlength: usize) -> Result<TensorMeta> {
        require!(input.rank() == 1, Rank, "input has shape {:?}, expected one dimension", input.shape());
        require!(
            weights.is_none_or(|weights| weights.shape() == input.shape()),
            WeightShape,
            "weights has shape {:?}, expected {:?}, that of input",
            weights.map(TensorMeta::shape).unwrap_or_default(),
            input.shape()
        );
        let dtype = match weights.map(TensorMeta::dtype) {
            None => DType::I64,
            Some(DType::F32) => DType::F32,
            Some(_) => DType::F64,
        };
        Ok(TensorMeta::new([minlength], dtype, input.device()))
    }

    fn decomposition(input: Tensor, weights: Option<Tensor>, minlength: usize) -> Tensor {
        let dtype = match weights.map(|weights| weights.dtype()) {
            None => DType::I64,
            Some(DType::F32) => DType::F32,
            Some(_) => DType::F64,
        };
        let zeros = prims::full([minlength], 0i64, DType::I64, input.device());
        let ones = prims::full(input.shape(), 1i64, DType::I64, input.device());
        match weights {
            None => prims::scatter_add(zeros, 0, input, ones),
            Some(weights) => prims::scatter_add(cast(zeros, dtype), 0, input, cast(weights, dtype)),
        }
    }

    fn reference(input: &ArrayD<i64>, weights: Option<&ReferenceTensor>, minlength: usize) -> Result<ArrayD<f64>> {
        in_range(input, minlength)?;
        let mut out = ArrayD::zeros(IxDyn(&[minlength]));
        for (at, value) in input.iter().enumerate() {
            out[[*value as usize]] += weights.map_or(1.0, |weights| weights.floats()[[at]]);
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.integers(0, 5, [12]), 6usize));
        s.case(with(s.integers(0, 5, [12]).cast(DType::I32), 5usize).weights(s.normal([12])));
        s.case(with(s.integers(0, 5, [0]), 3usize));
        s.case(with(s.integers(0, 5, [0]), 0usize));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.integers(0, 2, [2, 3]), 4usize), "input has shape [2, 3]");
        let call = with(e.integers(0, 2, [3]), 4usize).weights(e.normal([2]));
        e.case(WeightShape, call, "weights has shape [2], expected [3]");
        for number in [4.0, -1.0] {
            let input = e.values([2], [0.0, number]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(input, 4usize), "of size 4");
        }
    }
}

/// How often each number below `bins` is in `places`, where `bins` itself is not counted.
#[track_caller]
fn counted(places: Tensor, bins: usize, dtype: DType) -> Tensor {
    let zeros = prims::full([bins.saturating_add(1)], 0i64, DType::I64, places.device());
    let ones = prims::full(places.shape(), 1i64, DType::I64, places.device());
    let all = prims::scatter_add(zeros, 0, places, ones);
    cast(prims::slice(all, [0], [bins], [1]), dtype)
}
