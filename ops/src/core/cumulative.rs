//! Products, sums of exponentials and extrema of the elements up to each. Sums are in `cumsum`.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::DType;

use super::arrays::along;
use super::promotion::{accumulating, cast, position};
use crate::prims;

/// Products of the elements up to and including each along `dim`. Integers and booleans are multiplied as i64, f16 and
/// bf16 in f32. Gradients are right where elements are zero.
#[operator(torch = "cumprod", autocast = full)]
pub mod cumprod {
    fn cumprod(input: Tensor, dim: i64, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        require!(dtype != Some(DType::Bool), ProductType, "a product has no dtype bool");
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, dtype: Option<DType>) -> Tensor {
        let dtype = dtype.unwrap_or(if input.dtype().is_floating() { input.dtype() } else { DType::I64 });
        if input.rank() == 0 {
            return cast(input, dtype);
        }
        cast(prims::cumprod(accumulating(cast(input, dtype)), position(dim, input.rank())), dtype)
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, |row| (1..=row.len()).map(|count| row[..count].iter().product()).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0));
        s.case(with(s.normal([3, 1, 20]), -1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0, 3]), 0));
        s.case(with(s.normal([3]), 0).dtype(DType::F32));
        s.case(with(s.values([2, 5], [2.0, 0.0, 3.0, 0.0, 1.0, 0.0, 2.0, 3.0, 1.0, 2.0]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ProductType, with(e.normal([2]), 0).dtype(DType::Bool), "no dtype bool");
    }
}

/// Logarithms of the sums of the exponentials of the elements up to and including each along `dim`, whatever their
/// size; of f16 and bf16 in f32.
#[operator(torch = "logcumsumexp", autocast = full)]
pub mod logcumsumexp {
    fn logcumsumexp(input: Tensor<Floating>, dim: i64) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64) -> Tensor {
        if input.rank() == 0 {
            return input;
        }
        cast(prims::logcumsumexp(accumulating(input), position(dim, input.rank())), input.dtype())
    }

    fn reference(input: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        along(input, dim, |row| {
            let sum = |row: &[f64]| {
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let finite = if top.is_finite() { top } else { 0.0 };
                finite + row.iter().map(|x| (x - finite).exp()).sum::<f64>().ln()
            };
            (1..=row.len()).map(|count| sum(&row[..count])).collect()
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0));
        s.case(with(s.uniform(-40.0, 40.0, [3, 1, 20]), -1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0, 3]), 0));
        let special = [f64::NEG_INFINITY, f64::NEG_INFINITY, 2.0, f64::INFINITY, 1.0, f64::NAN];
        s.case(with(s.values([6], special), 0)).forward_only("special values");
    }
}

// Declares the best elements so far and their positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor, dim: i64) -> (Tensor, Tensor);

        fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
            normalize_dim(dim, input.rank())?;
            Ok(())
        }

        fn decomposition(input: Tensor, dim: i64) -> (Tensor, Tensor) {
            if input.rank() == 0 {
                return (input, prims::full([], 0i64, DType::I64, input.device()));
            }
            let dim = position(dim, input.rank());
            match input.dtype() {
                DType::Bool => {
                    let (values, indices) = prims::$name(cast(input, DType::U8), dim);
                    (cast(values, DType::Bool), indices)
                }
                _ => prims::$name(input, dim),
            }
        }

        fn reference(input: &ReferenceTensor, dim: i64) -> (ReferenceTensor, ArrayD<i64>) {
            let is_later = |row: &[f64], best: usize, i: usize| {
                let (a, b): (f64, f64) = (row[best], row[i]);
                b.is_nan() || (!a.is_nan() && $better)
            };
            let places = along(input.floats(), dim, |row| {
                let found = (0..row.len()).scan(0, |best, i| {
                    *best = if is_later(row, *best, i) { i } else { *best };
                    Some(*best as f64)
                });
                found.collect()
            });
            let values = along(input.floats(), dim, |row| {
                let found = (0..row.len()).scan(0, |best, i| {
                    *best = if is_later(row, *best, i) { i } else { *best };
                    Some(row[*best])
                });
                found.collect()
            });
            let values = match input.dtype().is_floating() {
                true => ReferenceTensor::from_floats(input.dtype(), values),
                false => ReferenceTensor::from_integers(input.dtype(), values.mapv(|x| x as i64)),
            };
            (values, places.mapv(|place| place as i64))
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 5]), 0));
            s.case(with(s.normal([3, 1, 20]), -1));
            s.case(with(s.normal([]), 0));
            s.case(with(s.normal([0, 3]), 0));
            s.case(with(s.values([2, 5], [1.0, 3.0, 3.0, 0.0, 3.0]), 1)).forward_only("ties");
            if s.dtype().is_floating() {
                let special = [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3.0, f64::NAN];
                s.case(with(s.values([6], special), 0)).forward_only("special values");
            }
        }
    }

    table($name, $torch, $better) {
        /// The largest of the elements up to and including each along `dim`, and their positions: the last of equal
        /// ones; NaN is the largest.
        cummax, "cummax", b >= a;
        /// The smallest of the elements up to and including each along `dim`, and their positions: the last of equal
        /// ones; NaN is the smallest.
        cummin, "cummin", b <= a;
    }
}
