//! What references share, also those of other crates: plain ndarray, f64, written for clarity.

use fulgurite_runtime::rules::{ArrayD, IxDyn, ReferenceTensor};

use super::promotion::{broadcast_shapes, position, reduced_dims, reduced_shape};

/// `array` broadcast to `shape`.
pub fn spread<T: Clone>(array: &ArrayD<T>, shape: &[usize]) -> ArrayD<T> {
    array.broadcast(shape).map_or_else(|| array.clone(), |view| view.to_owned())
}

/// Two arrays, broadcast against each other, element by element.
pub fn zip<T: Clone, U>(a: &ArrayD<T>, b: &ArrayD<T>, f: impl Fn(T, T) -> U) -> ArrayD<U> {
    let shape = broadcast_shapes(&[a.shape(), b.shape()]).unwrap_or_default();
    let (a, b) = (spread(a, &shape), spread(b, &shape));
    ndarray::Zip::from(&a).and(&b).map_collect(|a, b| f(a.clone(), b.clone()))
}

/// From values in row-major order.
pub fn array<T>(shape: &[usize], values: Vec<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .unwrap_or_else(|error| unreachable!("a value for each element: {error}"))
}

/// The values in row-major order.
pub fn values<T: Clone>(array: &ArrayD<T>) -> Vec<T> {
    array.iter().cloned().collect()
}

/// The same values in row-major order, in another shape.
pub fn reshaped<T: Clone>(array: &ArrayD<T>, shape: &[usize]) -> ArrayD<T> {
    self::array(shape, values(array))
}

/// With dimensions in another order.
pub fn permuted<T: Clone>(array: &ArrayD<T>, dims: &[usize]) -> ArrayD<T> {
    array.view().permuted_axes(IxDyn(dims)).to_owned()
}

/// Each group of elements that differ only in `dims`, reduced by `f`.
pub fn reduce<U>(input: &ArrayD<f64>, dims: Option<&[i64]>, keepdim: bool, f: impl Fn(&[f64]) -> U) -> ArrayD<U> {
    let dims = reduced_dims(dims, input.ndim()).unwrap_or_default();
    let kept: Vec<usize> = (0..input.ndim()).filter(|dim| !dims.contains(dim)).collect();
    let order: Vec<usize> = kept.iter().chain(&dims).copied().collect();
    let rows = values(&permuted(input, &order));
    let inner: usize = dims.iter().map(|dim| input.shape()[*dim]).product();
    let outer: usize = kept.iter().map(|dim| input.shape()[*dim]).product();
    let reduced = (0..outer).map(|row| f(&rows[row * inner..(row + 1) * inner])).collect();
    array(&reduced_shape(input.shape(), &dims, keepdim), reduced)
}

/// Each row along `dim`, replaced by as many values.
pub fn along(input: &ArrayD<f64>, dim: i64, f: impl Fn(&[f64]) -> Vec<f64>) -> ArrayD<f64> {
    if input.ndim() == 0 {
        return array(&[], f(&[input[[]]]));
    }
    let axis = ndarray::Axis(position(dim, input.ndim()));
    let mut out = input.clone();
    for mut lane in out.lanes_mut(axis) {
        let replaced = f(&lane.to_vec());
        lane.iter_mut().zip(replaced).for_each(|(to, from)| *to = from);
    }
    out
}

/// The largest value; NaN if there is one, -inf of none.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(*b) })
}

/// `eˣ / Σ eˣ` of a row.
pub fn softmax_row(row: &[f64]) -> Vec<f64> {
    let top = largest(row);
    let exponentials: Vec<f64> = row.iter().map(|x| (x - top).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    exponentials.iter().map(|e| e / total).collect()
}

/// `x - log Σ eˣ` of a row.
pub fn log_softmax_row(row: &[f64]) -> Vec<f64> {
    let top = largest(row);
    let total = row.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
    row.iter().map(|x| x - top - total).collect()
}

/// Elements at other places: the element at each index of `shape` is that of `input` at `source(index)`, or `fill`.
pub fn rearranged(
    input: &ReferenceTensor,
    shape: &[usize],
    fill: f64,
    source: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> ReferenceTensor {
    let from = |index: IxDyn| source(ndarray::Dimension::slice(&index));
    if input.imaginary().is_some() {
        let numbers = input.complex();
        let pick = |index: IxDyn| from(index).map_or(fill.into(), |at| numbers[at.as_slice()]);
        ArrayD::from_shape_fn(IxDyn(shape), pick).into()
    } else if input.dtype().is_floating() {
        let pick = |index: IxDyn| from(index).map_or(fill, |at| input.floats()[at.as_slice()]);
        ReferenceTensor::from_floats(input.dtype(), ArrayD::from_shape_fn(IxDyn(shape), pick))
    } else {
        let pick = |index: IxDyn| from(index).map_or(fill as i64, |at| input.integers()[at.as_slice()]);
        ReferenceTensor::from_integers(input.dtype(), ArrayD::from_shape_fn(IxDyn(shape), pick))
    }
}

/// A complex tensor of real and imaginary parts, which have one shape.
pub fn joined(real: &ArrayD<f64>, imaginary: &ArrayD<f64>) -> ReferenceTensor {
    zip(real, imaginary, num_complex::Complex64::new).into()
}

/// A linear function of real numbers, of both parts of complex ones.
pub fn linear(input: &ReferenceTensor, function: impl Fn(&ArrayD<f64>) -> ArrayD<f64>) -> ReferenceTensor {
    match input.imaginary() {
        Some(imaginary) => joined(&function(input.floats()), &function(imaginary)),
        None => function(input.floats()).into(),
    }
}

/// A tensor's values as another array computes them, in the tensor's own element type.
pub fn remade(
    input: &ReferenceTensor,
    floats: impl Fn(&ArrayD<f64>) -> ArrayD<f64>,
    integers: impl Fn(&ArrayD<i64>) -> ArrayD<i64>,
) -> ReferenceTensor {
    if input.imaginary().is_some() {
        linear(input, floats)
    } else if input.dtype().is_floating() {
        ReferenceTensor::from_floats(input.dtype(), floats(input.floats()))
    } else {
        ReferenceTensor::from_integers(input.dtype(), integers(input.integers()))
    }
}

/// The matrix product of `[..., m, k]` and `[..., k, n]` whose leading dimensions are equal.
pub fn product(a: &ArrayD<f64>, b: &ArrayD<f64>) -> ArrayD<f64> {
    let rank = a.ndim();
    let (m, k, n) = (a.shape()[rank - 2], a.shape()[rank - 1], b.shape()[rank - 1]);
    let batch: usize = a.shape()[..rank - 2].iter().product();
    let (left, right) = (values(a), values(b));
    let mut out = Vec::with_capacity(batch * m * n);
    for i in 0..batch {
        for row in 0..m {
            for column in 0..n {
                out.push((0..k).map(|j| left[(i * m + row) * k + j] * right[(i * k + j) * n + column]).sum());
            }
        }
    }
    let shape: Vec<usize> = a.shape()[..rank - 1].iter().copied().chain([n]).collect();
    array(&shape, out)
}

/// The error function: below 3 by `2/√π · e^(-x²) · Σ 2^n x^(2n+1) / (2n+1)!!`, whose terms have one sign (Abramowitz
/// and Stegun, 7.1.6), above by the continued fraction of the complement.
pub fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if x.is_nan() || x == 0.0 {
        x
    } else if magnitude < 3.0 {
        let (mut power, mut sum, mut n) = (x, x, 0.0);
        while power.abs() > 1e-20 * sum.abs() {
            n += 1.0;
            power *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += power;
        }
        sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = 0.0;
        for n in (1..80).rev() {
            fraction = f64::from(n) / 2.0 / (magnitude + fraction);
        }
        let complement = (-x * x).exp() / ((magnitude + fraction) * std::f64::consts::PI.sqrt());
        x.signum() * (1.0 - complement)
    }
}

/// The complement of the error function: of large numbers by the continued fraction `e^(-x²)/√π · 1/(x + ½/(x + 1/(x +
/// ...)))`, from its end.
pub fn erfc(x: f64) -> f64 {
    if x == f64::INFINITY {
        0.0
    } else if x < 1.0 || x.is_nan() {
        1.0 - erf(x)
    } else {
        let fraction = (1..200).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
        (-x * x).exp() / (fraction * std::f64::consts::PI.sqrt())
    }
}
