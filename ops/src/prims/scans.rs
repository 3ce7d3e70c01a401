//! Scans along one dimension: each element becomes what an associative rule makes of all elements up to it.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;
use fulgurite_runtime::argument::Scalar;

use super::checks::{dimension, same_dtype, same_shape};
use super::support::{another, with_extent, zeros};
use crate::prims;

/// The product of all elements up to and including each, along dimension `dim`. Integers give i64 and wrap. The
/// gradient of an element is computed without a division by it, so that it may be zero.
#[operator(prim, torch = "cumprod", autocast = full)]
pub mod cumprod {
    fn cumprod(input: Tensor<Number>, dim: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        Ok(input.with_dtype(if input.dtype().is_integer() { DType::I64 } else { input.dtype() }))
    }

    fn flops(input: &TensorMeta) -> u64 {
        input.len() as u64
    }

    /// The product before an element, times the sum of the cotangents after it, each times the factors between.
    fn grad(input: Tensor, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = cumprod(input, dim);
        (out, move |d_out: Tensor| {
            let before = shifted(out, dim, 1, 0, 1.0);
            Grads { input: prims::mul(before, from_behind(shifted(input, dim, 0, 1, 0.0), d_out, dim)) }
        })
    }

    fn reference(input: &ReferenceTensor, dim: usize) -> ReferenceTensor {
        let axis = ndarray::Axis(dim);
        if input.dtype().is_floating() {
            let mut values = input.floats().clone();
            values.accumulate_axis_inplace(axis, |before, value| *value *= before);
            values.into()
        } else {
            let mut values = input.integers().clone();
            values.accumulate_axis_inplace(axis, |before, value| *value = value.wrapping_mul(*before));
            values.into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0));
        s.case(with(s.normal([1]), 0));
        s.case(with(s.normal([4, 6]), 0));
        s.case(with(s.normal([3, 2, 5]), 1));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), 1));
        s.case(with(s.values([2, 6], [1.0, 0.0, 3.0, 2.0, 0.0, 2.0, 3.0, 1.0, 2.0]), 1));
        // Lines side by side, and more than a block has in one round.
        s.case(with(s.uniform(-1.1, 1.1, [5, 40]), 0));
        s.case(with(s.uniform(0.99, 1.01, [3, 4100]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1), "dim is 1");
    }
}

/// The logarithm of the sum of the exponentials of all elements up to and including each, along dimension `dim`,
/// whatever their size: the largest exponent so far is taken out of the sum.
#[operator(prim, torch = "logcumsumexp", autocast = full)]
pub mod logcumsumexp {
    fn logcumsumexp(input: Tensor<Floating>, dim: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        Ok(input.clone())
    }

    fn flops(input: &TensorMeta) -> u64 {
        4 * input.len() as u64
    }

    /// An element's share of each sum behind it is a product of ratios of neighbouring sums, none of which is above
    /// one.
    fn grad(input: Tensor, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = logcumsumexp(input, dim);
        (out, move |d_out: Tensor| {
            let ratios = prims::exp(difference(out, shifted(out, dim, 0, 1, f64::INFINITY)));
            let behind = from_behind(ratios, d_out, dim);
            Grads { input: prims::mul(prims::exp(difference(input, out)), behind) }
        })
    }

    fn reference(input: &ArrayD<f64>, dim: usize) -> ArrayD<f64> {
        let mut out = input.clone();
        for mut lane in out.lanes_mut(ndarray::Axis(dim)) {
            let row = lane.to_vec();
            for (i, out) in lane.iter_mut().enumerate() {
                let top = row[..=i].iter().fold(f64::NEG_INFINITY, |a, b| if a > *b || a.is_nan() { a } else { *b });
                let sum: f64 = row[..=i].iter().map(|x| if *x == top { 1.0 } else { (x - top).exp() }).sum();
                *out = top + sum.ln();
            }
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0));
        s.case(with(s.normal([4, 6]), 0));
        s.case(with(s.normal([3, 2, 5]), 1));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), 1));
        s.case(with(s.uniform(-30.0, 30.0, [5, 40]), 0));
        s.case(with(s.normal([2, 1030]), 1));
        let (infinity, nan) = (f64::INFINITY, f64::NAN);
        let special = [-infinity, -infinity, 1.0, -1000.0, 1000.0, infinity, 0.0, infinity];
        s.case(with(s.values([8], special), 0)).forward_only("special values");
        s.case(with(s.values([2, 3], [1.0, nan, infinity, -infinity, nan, 0.0]), 1)).forward_only("special values");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1), "dim is 1");
    }
}

/// `out[i] = coefficients[i] · out[i - 1] + input[i]` along dimension `dim`, where nothing is before the first element:
/// a linear recurrence, as states of sequences and gradients of running products have. Executors join parts of a line
/// by the products of their coefficients, which are computed in f64.
#[operator(prim)]
pub mod linear_scan {
    fn linear_scan(coefficients: Tensor<Floating>, input: Tensor<Floating>, dim: usize) -> Tensor;

    fn meta(coefficients: &TensorMeta, input: &TensorMeta, dim: usize) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        same_shape(("coefficients", coefficients), ("input", input), Code::SameShape)?;
        same_dtype(("coefficients", coefficients), ("input", input), Code::SameDType)?;
        Ok(input.clone())
    }

    fn flops(input: &TensorMeta) -> u64 {
        2 * input.len() as u64
    }

    fn grad(coefficients: Tensor, input: Tensor, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = linear_scan(coefficients, input, dim);
        (out, move |d_out: Tensor| {
            let d_input = from_behind(shifted(coefficients, dim, 0, 1, 0.0), d_out, dim);
            Grads { coefficients: prims::mul(d_input, shifted(out, dim, 1, 0, 0.0)), input: d_input }
        })
    }

    fn reference(coefficients: &ArrayD<f64>, input: &ArrayD<f64>, dim: usize) -> ArrayD<f64> {
        let mut out = input.clone();
        let axis = ndarray::Axis(dim);
        for (mut out, coefficients) in out.lanes_mut(axis).into_iter().zip(coefficients.lanes(axis)) {
            for i in 1..out.len() {
                out[i] += coefficients[i] * out[i - 1];
            }
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), s.normal([7]), 0));
        s.case(with(s.normal([1]), s.normal([1]), 0));
        s.case(with(s.normal([4, 6]), s.normal([4, 6]), 0));
        s.case(with(s.normal([3, 2, 5]), s.normal([3, 2, 5]), 1));
        s.case(with(s.normal([0, 3]), s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), s.normal([3, 0]), 1));
        s.case(with(s.uniform(-1.0, 1.0, [5, 40]), s.normal([5, 40]), 0));
        s.case(with(s.uniform(-1.0, 1.0, [3, 4100]), s.normal([3, 4100]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), e.normal([2]), 1), "dim is 1");
        e.case(SameShape, with(e.normal([2]), e.normal([3]), 0), "expected equal shapes");
        let other = e.of(another(e.dtype()), [2]);
        e.case(SameDType, with(other, e.normal([2]), 0), "expected equal dtypes");
    }
}

// Declares the best element so far and its position.
operators! {
    #[operator(prim, exact, torch = $torch, waive(d_indices = "positions have no gradient"))]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor<Number>, dim: usize) -> (Tensor, Tensor);

        fn meta(input: &TensorMeta, dim: usize) -> Result<(TensorMeta, TensorMeta)> {
            dimension(dim, ("input", input), Code::DimensionRange)?;
            Ok((input.clone(), input.with_dtype(DType::I64)))
        }

        fn flops(input: &TensorMeta) -> u64 {
            input.len() as u64
        }

        #[allow(clippy::type_complexity)]
        fn grad(
            input: Tensor,
            dim: usize,
        ) -> ((Tensor, Tensor), impl FnOnce((Tensor, Option<Tensor>)) -> Grads) {
            let (values, indices) = $name(input, dim);
            ((values, indices), move |(d_values, _d_indices): (Tensor, Option<Tensor>)| Grads {
                input: prims::scatter_add(zeros(&input.meta()), dim, indices, d_values),
            })
        }

        fn reference(input: &ReferenceTensor, dim: usize) -> (ReferenceTensor, ReferenceTensor) {
            let axis = ndarray::Axis(dim);
            let (mut values, mut whole) = (input.floats().clone(), input.integers().clone());
            let mut indices = ArrayD::<i64>::zeros(IxDyn(input.shape()));
            let lanes = values.lanes_mut(axis).into_iter().zip(whole.lanes_mut(axis)).zip(indices.lanes_mut(axis));
            let is_floating = input.dtype().is_floating();
            for ((mut values, mut whole), mut indices) in lanes {
                for i in 0..indices.len() {
                    // What was chosen is copied on, so that it is always found right before.
                    let before = i.saturating_sub(1);
                    let is_later = match is_floating {
                        true => {
                            let (a, b) = (values[before], values[i]);
                            b.is_nan() || (!a.is_nan() && super::$better(&b, &a))
                        }
                        false => super::$better(&whole[i], &whole[before]),
                    };
                    match is_later {
                        true => indices[i] = i as i64,
                        false => {
                            (values[i], whole[i], indices[i]) = (values[before], whole[before], indices[before]);
                        }
                    }
                }
            }
            let values = match is_floating {
                true => ReferenceTensor::from_floats(input.dtype(), values),
                false => ReferenceTensor::from_integers(input.dtype(), whole),
            };
            (values, indices.into())
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([7]), 0));
            s.case(with(s.normal([1]), 0));
            s.case(with(s.normal([4, 6]), 0));
            s.case(with(s.normal([3, 2, 5]), 1));
            s.case(with(s.normal([0, 3]), 1));
            s.case(with(s.normal([3, 0]), 1));
            s.case(with(s.normal([5, 40]), 0));
            s.case(with(s.normal([2, 4100]), 1)).forward_only("large");
            s.case(with(s.values([2, 5], [1.0, 3.0, 3.0, 0.0, 3.0]), 1)).forward_only("ties");
            if s.dtype().is_floating() {
                let special = [1.0, f64::NEG_INFINITY, f64::INFINITY, f64::NAN, 2.0, f64::NAN, -0.0, 0.0, -0.0];
                s.case(with(s.values([9], special), 0)).forward_only("special values");
                s.case(with(s.values([3, 3], special), 0)).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(DimensionRange, with(e.normal([2]), 1), "dim is 1");
        }
    }

    table($name, $torch, $better) {
        /// The largest of all elements up to and including each, along dimension `dim`, and their positions: of equal
        /// ones the last. NaN is larger than every number.
        cummax, "cummax", at_least;
        /// The smallest of all elements up to and including each, along dimension `dim`, and their positions: of equal
        /// ones the last. NaN is smaller than every number.
        cummin, "cummin", at_most;
    }
}

/// For references: whether `a` is not below `b`.
fn at_least<T: PartialOrd>(a: &T, b: &T) -> bool {
    a >= b
}

/// For references: whether `a` is not above `b`.
fn at_most<T: PartialOrd>(a: &T, b: &T) -> bool {
    a <= b
}

/// `tensor` moved along `dim` by `before` places to the back, or by `behind` to the front, with `fill` where nothing
/// comes from.
#[track_caller]
fn shifted(tensor: Tensor, dim: usize, before: usize, behind: usize, fill: f64) -> Tensor {
    let shape = tensor.shape();
    let extent = shape[dim];
    if extent == 0 {
        return tensor;
    }
    let of = |value: usize| with_extent(&vec![0; shape.len()], dim, value);
    let end = with_extent(&shape, dim, extent - before);
    let kept = prims::slice(tensor, of(behind), end, vec![1; shape.len()]);
    prims::pad(kept, of(before), of(behind), Scalar::Float(fill))
}

/// `out[i] = coefficients[i] · out[i + 1] + input[i]` along `dim`: the linear recurrence from the end.
#[track_caller]
fn from_behind(coefficients: Tensor, input: Tensor, dim: usize) -> Tensor {
    let [coefficients, input] = [coefficients, input].map(|tensor| prims::flip(tensor, [dim]));
    prims::flip(prims::linear_scan(coefficients, input, dim), [dim])
}

/// `a - b`, zero where both are one infinity.
#[track_caller]
fn difference(a: Tensor, b: Tensor) -> Tensor {
    let same = prims::logical_and(prims::eq(a, b), prims::eq(prims::abs(a), f64::INFINITY));
    prims::select(same, 0.0, prims::sub(a, b))
}
