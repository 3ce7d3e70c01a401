//! What declarations of prims share: constants for gradients, shapes, and the writing of references.

use fulgurite_runtime::rules::*;
use fulgurite_runtime::{DType, Tensor};
use ndarray::Dimension;

use crate::prims;

/// A tensor like `like`, every element `value`. Only one number is stored; the rest is a view of it.
#[track_caller]
pub fn constant(like: Tensor, value: f64) -> Tensor {
    let (shape, device) = (like.shape(), like.device());
    if shape.is_empty() {
        return super::full([], value, like.dtype(), device);
    }
    super::broadcast_in_dim(super::full([], value, like.dtype(), device), shape, [])
}

/// As [`constant`], every element in memory of its own: something to add into.
#[track_caller]
pub fn zeros(meta: &TensorMeta) -> Tensor {
    super::full(meta.shape(), 0.0, meta.dtype(), meta.device())
}

/// Another element type of the same class, for error samples.
pub fn another(dtype: DType) -> DType {
    match dtype {
        DType::Bool => DType::U8,
        DType::I64 => DType::I32,
        _ if dtype.is_integer() => DType::I64,
        DType::F32 => DType::F64,
        _ => DType::F32,
    }
}

/// The dimensions of a tensor of `rank` that are not in `dims`, in order.
pub fn others(rank: usize, dims: &[usize]) -> Vec<usize> {
    (0..rank).filter(|dim| !dims.contains(dim)).collect()
}

/// `shape` without the dimensions `dims`.
pub fn without(shape: &[usize], dims: &[usize]) -> Vec<usize> {
    others(shape.len(), dims).into_iter().map(|dim| shape[dim]).collect()
}

/// `shape` with another extent in dimension `dim`.
pub fn with_extent(shape: &[usize], dim: usize, extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(old) = shape.get_mut(dim) {
        *old = extent;
    }
    shape
}

/// Whether shapes agree everywhere but in dimension `dim`.
pub fn same_but(a: &[usize], b: &[usize], dim: usize) -> bool {
    a.len() == b.len() && (0..a.len()).all(|i| i == dim || a[i] == b[i])
}

/// For references: each element through `floats`, or through `integers` if the tensor holds integers.
pub fn map(input: &ReferenceTensor, floats: fn(f64) -> f64, integers: fn(i64) -> i64) -> ReferenceTensor {
    if input.dtype().is_floating() {
        ReferenceTensor::from_floats(input.dtype(), input.floats().mapv(floats))
    } else {
        ReferenceTensor::from_integers(input.dtype(), input.integers().mapv(integers))
    }
}

/// For references: the real and imaginary parts of complex numbers in a last dimension.
pub fn in_parts(input: &ReferenceTensor) -> ReferenceTensor {
    let numbers = input.complex();
    let (real, imaginary) = (numbers.mapv(|z| z.re), numbers.mapv(|z| z.im));
    let both = ndarray::stack(ndarray::Axis(numbers.ndim()), &[real.view(), imaginary.view()]);
    both.unwrap_or_else(|_| unreachable!("parts of one shape")).into()
}

/// For references: the complex numbers whose parts are the last dimension.
pub fn of_parts(input: &ReferenceTensor) -> ReferenceTensor {
    let axis = ndarray::Axis(input.floats().ndim() - 1);
    let (real, imaginary) = (input.floats().index_axis(axis, 0), input.floats().index_axis(axis, 1));
    ndarray::Zip::from(real).and(imaginary).map_collect(|re, im| num_complex::Complex64::new(*re, *im)).into()
}

/// For references: two tensors of one shape, element by element.
pub fn zip(
    input: &ReferenceTensor,
    other: &ReferenceTensor,
    floats: fn(f64, f64) -> f64,
    integers: fn(i64, i64) -> i64,
) -> ReferenceTensor {
    if input.dtype().is_floating() {
        let values = ndarray::Zip::from(input.floats()).and(other.floats()).map_collect(|a, b| floats(*a, *b));
        ReferenceTensor::from_floats(input.dtype(), values)
    } else {
        let values = ndarray::Zip::from(input.integers()).and(other.integers()).map_collect(|a, b| integers(*a, *b));
        ReferenceTensor::from_integers(input.dtype(), values)
    }
}

/// A function of two floating-point tensors of one type, computed in the type that sums of that type are added up in.
#[track_caller]
pub fn in_accumulator([input, other]: [Tensor; 2], compute: impl FnOnce(Tensor, Tensor) -> Tensor) -> Tensor {
    let dtype = other.dtype();
    let wider = dtype.accumulator();
    if wider == dtype {
        return compute(input, other);
    }
    let wide = |operand: Tensor| prims::convert_element_type(operand, wider);
    prims::convert_element_type(compute(wide(input), wide(other)), dtype)
}

/// The quotient of floating-point numbers, rounded towards negative infinity. What the remainder leaves is divided,
/// which gives nearly an integer; the nearest one is taken. (A remainder that equals the divisor is that of a small
/// number of the other sign, or of any of the other sign under an infinite divisor.) Infinity has no remainder, and
/// gives no number; zero has the sign of the quotient. Of f16 and bf16 it is computed in f32: in bf16 a quotient from
/// 64 on may be rounded to half of one below the integer, which is then as near to the next lower one.
#[track_caller]
pub fn floor_quotient(input: impl Into<Operand<Tensor>>, other: Tensor) -> Tensor {
    match input.into() {
        input if other.dtype().accumulator() == other.dtype() => nearest_quotient(input, other),
        Operand::Tensor(input) => in_accumulator([input, other], |input, other| nearest_quotient(input.into(), other)),
        // The number is rounded to the type of the other operand, as it is where they are divided.
        Operand::Scalar(number) => floor_quotient(constant(other, number.to_f64()), other),
    }
}

/// As [`floor_quotient`], in the operands' own type.
#[track_caller]
fn nearest_quotient(input: Operand<Tensor>, other: Tensor) -> Tensor {
    let (quotient, rest) = (prims::div(input, other), prims::remainder(input, other));
    let whole = prims::div(prims::sub(input, rest), other);
    // Beyond half of the type's precision a sum with 0.5 would be rounded to the next integer.
    let lower = prims::floor(whole);
    let up = prims::gt(prims::sub(whole, lower), 0.5);
    let nearest = prims::select(up, prims::add(lower, 1.0), lower);
    let signed = prims::select(prims::eq(nearest, 0.0), prims::mul(quotient, 0.0), nearest);
    // By zero the quotient is infinite, or no number, as it is.
    let below = prims::select(prims::eq(other, 0.0), quotient, signed);
    prims::select(prims::eq(rest, other), -1.0, below)
}

/// For references: fails if a divisor is an integer and zero.
pub fn no_integer_zero(other: &ReferenceTensor) -> Result<()> {
    match other.dtype().is_integer() && other.integers().iter().any(|value| *value == 0) {
        true => Err(Failure::new("DivisionByZero", "other holds 0: an integer is divided by zero")),
        false => Ok(()),
    }
}

/// For references: the element at each index of `shape` is that of `input` at `source(index)`, or `fill`.
pub fn rearranged(
    input: &ReferenceTensor,
    shape: &[usize],
    fill: Scalar,
    source: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> ReferenceTensor {
    let shape = IxDyn(shape);
    let at = |index: &IxDyn| source(index.slice());
    if input.dtype().is_floating() {
        let values = input.floats();
        let pick = |index: IxDyn| at(&index).map_or(fill.to_f64(), |from| values[from.as_slice()]);
        ReferenceTensor::from_floats(input.dtype(), ArrayD::from_shape_fn(shape, pick))
    } else {
        let values = input.integers();
        let pick = |index: IxDyn| at(&index).map_or(fill.to_i64(), |from| values[from.as_slice()]);
        ReferenceTensor::from_integers(input.dtype(), ArrayD::from_shape_fn(shape, pick))
    }
}

/// For references: adds `src`'s elements, in row-major order, to those of `input` at `target(index)`.
pub fn accumulated(
    input: &ReferenceTensor,
    src: &ReferenceTensor,
    target: impl Fn(&[usize]) -> Vec<usize>,
) -> ReferenceTensor {
    if input.dtype().is_floating() {
        let mut values = input.floats().clone();
        for (index, value) in src.floats().indexed_iter() {
            values[target(index.slice()).as_slice()] += value;
        }
        ReferenceTensor::from_floats(input.dtype(), values)
    } else {
        let mut values = input.integers().clone();
        for (index, value) in src.integers().indexed_iter() {
            let sum = &mut values[target(index.slice()).as_slice()];
            *sum = sum.wrapping_add(*value);
        }
        ReferenceTensor::from_integers(input.dtype(), values)
    }
}

/// For references: puts `src`'s elements, in row-major order, in place of those of `input` at `target(index)`.
pub fn replaced(
    input: &ReferenceTensor,
    src: &ReferenceTensor,
    target: impl Fn(&[usize]) -> Vec<usize>,
) -> ReferenceTensor {
    if input.dtype().is_floating() {
        let mut values = input.floats().clone();
        for (index, value) in src.floats().indexed_iter() {
            values[target(index.slice()).as_slice()] = *value;
        }
        ReferenceTensor::from_floats(input.dtype(), values)
    } else {
        let mut values = input.integers().clone();
        for (index, value) in src.integers().indexed_iter() {
            values[target(index.slice()).as_slice()] = *value;
        }
        ReferenceTensor::from_integers(input.dtype(), values)
    }
}

/// For references: fails unless every index is below `size`.
pub fn check_indices(index: &ReferenceTensor, dim: usize, size: usize) -> Result<()> {
    match index.integers().iter().find(|value| usize::try_from(**value).map_or(true, |value| value >= size)) {
        Some(value) => Err(Failure::new(
            "IndexOutOfRange",
            format!("index holds {value}, which is out of range for dimension {dim} of size {size}"),
        )),
        None => Ok(()),
    }
}
