//! What collectives share: their axes, how tensors of several ranks become one, and the exchange that references do.

use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::meta::{LARGEST_TENSOR, TensorMeta};
use fulgurite_runtime::ranks;
use fulgurite_runtime::reference::ReferenceTensor;
use fulgurite_runtime::rules::{Failure, Precondition};
use fulgurite_runtime::{DType, Tensor, attribute_enum};
use ndarray::{ArrayD, IxDyn};

use crate::core::promotion::cast;

attribute_enum! {
    /// What the tensors of several ranks become, elementwise.
    pub enum Reduce {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        Mean = "mean",
        /// The largest; NaN if one is NaN.
        Max = "max",
        /// The smallest; NaN if one is NaN.
        Min = "min",
        /// Their product.
        Product = "product",
    }
}

/// The number of ranks along an axis, by its text. Fails with `code` unless it is one.
pub fn extent(axis: &str, code: Precondition) -> Result<usize, Failure> {
    axis.parse::<Axis>().map(|axis| axis.extent()).map_err(|message| code.unmet(format_args!("axis: {message}")))
}

/// The number of ranks along an axis that `meta` has checked.
pub fn ranks_of(axis: &str) -> usize {
    axis.parse().map_or(1, |axis: Axis| axis.extent())
}

/// Checks that there are tensors, all of the first one's dtype.
pub fn one_dtype(inputs: &[TensorMeta], [none, other]: [Precondition; 2]) -> Result<(), Failure> {
    let Some(first) = inputs.first() else {
        return Err(none.unmet(format_args!("inputs is empty, expected at least one tensor")));
    };
    match inputs.iter().position(|input| input.dtype() != first.dtype()) {
        None => Ok(()),
        Some(i) => {
            let (dtype, expected) = (inputs[i].dtype(), first.dtype());
            Err(other.unmet(format_args!("inputs[{i}] is {dtype}, expected {expected}, the dtype of inputs[0]")))
        }
    }
}

/// The dtype of what tensors of a dtype become: their own, or the one in which sums are made. Fails with `code` if it
/// is another one.
pub fn result_dtype((own, op): (DType, Reduce), dtype: Option<DType>, code: Precondition) -> Result<DType, Failure> {
    let wide = match op {
        Reduce::Sum | Reduce::Mean if own.is_floating() => own.accumulator(),
        _ => own,
    };
    match dtype {
        None => Ok(own),
        Some(dtype) if dtype == wide => Ok(dtype),
        Some(dtype) => Err(code.unmet(format_args!("dtype is {dtype}, expected {wide}, or none"))),
    }
}

/// Whether a reduction by `op` makes sums of what is of dtype `own` in `dtype`.
pub fn widens(own: DType, op: Reduce, dtype: DType) -> Result<(), String> {
    let sums = matches!(op, Reduce::Sum | Reduce::Mean);
    match sums && own.is_floating() && own.size() == 2 && dtype == own.accumulator() {
        true => Ok(()),
        false => Err(format!("{op:?} of {own} is not made in {dtype}")),
    }
}

/// Cotangents in the dtype of what was widened.
#[track_caller]
pub fn narrowed(cotangents: Vec<Tensor>, dtype: DType) -> Vec<Tensor> {
    cotangents.into_iter().map(|cotangent| cast(cotangent, dtype)).collect()
}

/// The extent of a dimension of as many tensors, one after another. Fails with `code` if no number holds it.
pub fn joined_extent((name, extent): (&str, usize), ranks: usize, code: Precondition) -> Result<usize, Failure> {
    let tensors =
        || code.unmet(format_args!("{name}: {ranks} tensors of extent {extent} are larger than a tensor can be"));
    extent.checked_mul(ranks).filter(|joined| *joined <= LARGEST_TENSOR).ok_or_else(tensors)
}

/// Checks that dimension `dim` of a tensor can be divided among the ranks along an axis. Both come with their names.
pub fn divisible(
    (name, dim): (&str, usize),
    (input, shape): (&str, &[usize]),
    ranks: usize,
    [range, divides]: [Precondition; 2],
) -> Result<(), Failure> {
    let Some(extent) = shape.get(dim) else {
        let rank = shape.len();
        return Err(
            range.unmet(format_args!("{name} is {dim}, expected a dimension below {rank}, the rank of {input}"))
        );
    };
    if extent.is_multiple_of(ranks) {
        return Ok(());
    }
    Err(divides.unmet(format_args!(
        "dimension {dim} of {input}, of extent {extent}, is divided among {ranks} ranks, expected a multiple of {ranks}"
    )))
}

/// For references: the place of this rank along an axis, and the number of ranks there.
pub fn place_along(axis: &str) -> Result<(usize, usize), Failure> {
    let parsed: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
    Ok((ranks::place(&parsed)?, parsed.extent()))
}

/// For references: `input` of each rank along an axis, in order, and the place of this rank among them. `called` is the
/// call with its attributes.
pub fn all_ranks(called: &str, axis: &str, input: &ReferenceTensor) -> Result<(Vec<ReferenceTensor>, usize), Failure> {
    let (mut all, place) = all_ranks_of_each(called, axis, std::slice::from_ref(input))?;
    Ok((all.remove(0), place))
}

/// As [`all_ranks`], for each of several tensors.
pub fn all_ranks_of_each(
    called: &str,
    axis: &str,
    inputs: &[ReferenceTensor],
) -> Result<(Vec<Vec<ReferenceTensor>>, usize), Failure> {
    let parsed: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
    let metas = inputs.iter().map(|input| format!("{}{:?}", input.dtype(), input.shape()));
    let called = format!("the reference of {called} of {}", metas.collect::<Vec<_>>().join(", "));
    let bytes: Vec<u8> = inputs.iter().flat_map(bytes_of).collect();
    let given = ranks::exchange(&parsed, &called, &bytes)?;
    let mut start = 0;
    let of_ranks = |input: &ReferenceTensor| {
        let own = start..start + 8 * input.shape().iter().product::<usize>();
        start = own.end;
        given.iter().map(|bytes| like(input, &bytes[own.clone()])).collect()
    };
    Ok((inputs.iter().map(of_ranks).collect(), ranks::place(&parsed)?))
}

fn bytes_of(tensor: &ReferenceTensor) -> Vec<u8> {
    if tensor.dtype().is_floating() {
        tensor.floats().iter().flat_map(|value| value.to_ne_bytes()).collect()
    } else {
        tensor.integers().iter().flat_map(|value| value.to_ne_bytes()).collect()
    }
}

/// A tensor of these bytes, with the shape and dtype of another.
fn like(tensor: &ReferenceTensor, bytes: &[u8]) -> ReferenceTensor {
    let words = bytes.as_chunks::<8>().0.iter();
    let shape = IxDyn(tensor.shape());
    let like_own = "as many values as this rank has";
    if tensor.dtype().is_floating() {
        let values = ArrayD::from_shape_vec(shape, words.map(|word| f64::from_ne_bytes(*word)).collect());
        ReferenceTensor::from_floats(tensor.dtype(), values.unwrap_or_else(|_| unreachable!("{like_own}")))
    } else {
        let values = ArrayD::from_shape_vec(shape, words.map(|word| i64::from_ne_bytes(*word)).collect());
        ReferenceTensor::from_integers(tensor.dtype(), values.unwrap_or_else(|_| unreachable!("{like_own}")))
    }
}

/// For references: the tensors of all ranks as one, of another dtype if one is given.
pub fn reduced(tensors: &[ReferenceTensor], op: Reduce, dtype: Option<DType>) -> ReferenceTensor {
    let own = reduced_in_own(tensors, op);
    match dtype.filter(|dtype| *dtype != own.dtype()) {
        Some(dtype) => ReferenceTensor::from_floats(dtype, own.floats().clone()),
        None => own,
    }
}

fn reduced_in_own(tensors: &[ReferenceTensor], op: Reduce) -> ReferenceTensor {
    let floats = |combine: fn(f64, f64) -> f64| {
        let mut all = tensors.iter().map(ReferenceTensor::floats);
        let first = all.next().unwrap_or_else(|| unreachable!("a group has ranks")).clone();
        all.fold(first, |sum, next| ndarray::Zip::from(&sum).and(next).map_collect(|a, b| combine(*a, *b)))
    };
    let largest = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    if tensors[0].dtype().is_floating() {
        return match op {
            Reduce::Sum => floats(|a, b| a + b).into(),
            Reduce::Mean => (floats(|a, b| a + b) / tensors.len() as f64).into(),
            Reduce::Max => floats(largest).into(),
            Reduce::Min => floats(|a, b| if a.is_nan() || a < b { a } else { b }).into(),
            Reduce::Product => floats(|a, b| a * b).into(),
        };
    }
    let combine: fn(i64, i64) -> i64 = match op {
        Reduce::Sum | Reduce::Mean => i64::wrapping_add,
        Reduce::Max => i64::max,
        Reduce::Min => i64::min,
        Reduce::Product => i64::wrapping_mul,
    };
    let mut all = tensors.iter().map(ReferenceTensor::integers);
    let first = all.next().unwrap_or_else(|| unreachable!("a group has ranks")).clone();
    let integers = all.fold(first, |sum, next| ndarray::Zip::from(&sum).and(next).map_collect(|a, b| combine(*a, *b)));
    integers.into()
}

/// For references: tensors one after another along dimension `dim`.
pub fn joined(tensors: &[ReferenceTensor], dim: usize) -> ReferenceTensor {
    let axis = ndarray::Axis(dim);
    let alike = "tensors of one shape";
    if tensors[0].dtype().is_floating() {
        let views: Vec<_> = tensors.iter().map(|tensor| tensor.floats().view()).collect();
        ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{alike}")).into()
    } else {
        let views: Vec<_> = tensors.iter().map(|tensor| tensor.integers().view()).collect();
        ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{alike}")).into()
    }
}

/// For references: the part of dimension `dim` that belongs to the rank at `place` of `ranks`.
pub fn part(tensor: &ReferenceTensor, dim: usize, place: usize, ranks: usize) -> ReferenceTensor {
    let extent = tensor.shape()[dim] / ranks;
    let slice = ndarray::Slice::from(place * extent..(place + 1) * extent);
    if tensor.dtype().is_floating() {
        let part = tensor.floats().slice_axis(ndarray::Axis(dim), slice).to_owned();
        ReferenceTensor::from_floats(tensor.dtype(), part)
    } else {
        let part = tensor.integers().slice_axis(ndarray::Axis(dim), slice).to_owned();
        ReferenceTensor::from_integers(tensor.dtype(), part)
    }
}

/// For references: the first elements of a tensor in another shape.
pub fn shaped(tensor: &ReferenceTensor, shape: &[usize]) -> ReferenceTensor {
    let (elements, fits) = (shape.iter().product(), "as many elements as the shape has");
    if tensor.dtype().is_floating() {
        let values = tensor.floats().iter().take(elements).copied().collect();
        let array = ArrayD::from_shape_vec(IxDyn(shape), values).unwrap_or_else(|_| unreachable!("{fits}"));
        ReferenceTensor::from_floats(tensor.dtype(), array)
    } else {
        let values = tensor.integers().iter().take(elements).copied().collect();
        let array = ArrayD::from_shape_vec(IxDyn(shape), values).unwrap_or_else(|_| unreachable!("{fits}"));
        ReferenceTensor::from_integers(tensor.dtype(), array)
    }
}
