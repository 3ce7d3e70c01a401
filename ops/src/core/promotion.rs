//! PyTorch's rules of type promotion and broadcasting, for metas and for traced tensors.

use fulgurite_runtime::argument::{AttributeType, Operand, Scalar};
use fulgurite_runtime::rules::Precondition;
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta};

use super::parts;
use crate::prims;

/// A stand-in for a tensor that knows its meta.
pub trait HasMeta {
    /// Shape, element type, device.
    fn tensor_meta(&self) -> TensorMeta;
}
impl HasMeta for Tensor {
    fn tensor_meta(&self) -> TensorMeta {
        self.meta()
    }
}
impl HasMeta for TensorMeta {
    fn tensor_meta(&self) -> TensorMeta {
        self.clone()
    }
}
impl HasMeta for &TensorMeta {
    fn tensor_meta(&self) -> TensorMeta {
        (*self).clone()
    }
}

fn category(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::I64 => 1,
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => 2,
        DType::C64 | DType::C128 => 3,
    }
}

/// The smallest element type that holds values of both; f16 and bf16 meet in f32. Where PyTorch has no such type for
/// u16 and u32 it is NumPy's: u16 and i16 meet in i32, u32 and i32 in i64.
pub fn promote_types(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
        // There are no complex numbers of 16 bits.
        _ if a.is_complex() || b.is_complex() => match [a, b].iter().any(|dtype| dtype.part() == DType::F64) {
            true => DType::C128,
            false => DType::C64,
        },
        _ if a.is_integer() && b.is_integer() && a.is_unsigned() != b.is_unsigned() => {
            let (unsigned, signed) = if a.is_unsigned() { (a, b) } else { (b, a) };
            match (unsigned.size() < signed.size(), unsigned) {
                (true, _) => signed,
                (false, DType::U8) => DType::I16,
                (false, DType::U16) => DType::I32,
                (false, _) => DType::I64,
            }
        }
        // Within a category types of one signedness are ordered by size; u8 holds every bool.
        _ => a.max(b),
    }
}

/// The element type that a number brings along.
pub fn scalar_type(scalar: Scalar) -> DType {
    match scalar {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(_) => DType::I64,
        Scalar::Float(_) => DType::F32,
    }
}

/// The element type in which operands meet. Tensors with dimensions decide; zero-dimensional ones, and after them
/// numbers, only count if they are of a higher category (bool, integer, floating, complex). Complex numbers have parts
/// of a floating-point type that decides.
pub fn result_type<V: HasMeta>(operands: &[Operand<V>]) -> DType {
    let mut ranked: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let (rank, dtype) = match operand {
            Operand::Tensor(tensor) => {
                let meta = tensor.tensor_meta();
                (usize::from(meta.rank() == 0), meta.dtype())
            }
            Operand::Scalar(scalar) => (2, scalar_type(*scalar)),
        };
        ranked[rank] = Some(ranked[rank].map_or(dtype, |known| promote_types(known, dtype)));
    }
    ranked
        .into_iter()
        .flatten()
        .reduce(|higher, lower| match category(lower) > category(higher) {
            true if lower.is_complex() && higher.is_floating() => higher.complex().unwrap_or(DType::C64),
            true => lower,
            false => higher,
        })
        .unwrap_or(DType::F32)
}

/// `dtype` if it is a floating-point or a complex type, otherwise f32: what functions like `exp` compute in.
pub fn floating(dtype: DType) -> DType {
    if dtype.is_differentiable() { dtype } else { DType::F32 }
}

/// The shape to which all of `shapes` broadcast, if there is one.
pub fn broadcast_shapes(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in shapes {
        for (extent, &given) in result[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*extent, given) {
                (known, given) if known == given || given == 1 => {}
                (1, given) => *extent = given,
                _ => return None,
            }
        }
    }
    Some(result)
}

fn metas<V: HasMeta>(operands: &[Operand<V>]) -> Vec<TensorMeta> {
    operands.iter().filter_map(|operand| operand.tensor().map(HasMeta::tensor_meta)).collect()
}

/// Whether at least one of the operands is a tensor.
pub fn any_tensor<V: HasMeta>(operands: &[Operand<V>]) -> bool {
    operands.iter().any(|operand| operand.tensor().is_some())
}

/// The shape to which all operands broadcast, if there is one.
pub fn common_shape<V: HasMeta>(operands: &[Operand<V>]) -> Option<Vec<usize>> {
    let metas = metas(operands);
    broadcast_shapes(&metas.iter().map(TensorMeta::shape).collect::<Vec<_>>())
}

/// The shapes of the tensors among the operands, for messages.
pub fn describe_shapes<V: HasMeta>(operands: &[Operand<V>]) -> String {
    metas(operands).iter().map(|meta| format!("{:?}", meta.shape())).collect::<Vec<_>>().join(" and ")
}

/// For metas of functions of `input` and `second`: fails with the first of the caller's codes unless one of them is a
/// tensor, with the second unless their shapes broadcast.
pub fn operands_meet<V: HasMeta>(
    operands: &[Operand<V>; 2],
    second: &str,
    [no_tensor, broadcast]: [&'static str; 2],
) -> Result<(), Failure> {
    if !any_tensor(operands) {
        let message = format!("input and {second} are numbers, expected at least one tensor");
        return Err(Failure::new(no_tensor, message));
    }
    if common_shape(operands).is_none() {
        return Err(Failure::new(broadcast, format!("shapes {} do not broadcast", describe_shapes(operands))));
    }
    Ok(())
}

/// For metas: fails with the caller's code if `alpha` has a fraction that a result of `dtype` has no room for.
pub fn alpha_fits(alpha: Scalar, dtype: DType, code: &'static str) -> Result<(), Failure> {
    if !dtype.is_differentiable() && matches!(alpha, Scalar::Float(_)) {
        let message = format!("alpha is a floating-point number, the result is {dtype}");
        return Err(Failure::new(code, message));
    }
    Ok(())
}

/// The meta of an elementwise function of `operands` in `dtype`; whether they broadcast was checked.
pub fn elementwise_meta<V: HasMeta>(operands: &[Operand<V>], dtype: DType) -> TensorMeta {
    let device = metas(operands).first().map_or(fulgurite_runtime::Device::CPU, TensorMeta::device);
    TensorMeta::new(common_shape(operands).unwrap_or_default(), dtype, device)
}

/// `tensor` in `dtype`; itself if that is its element type. Complex numbers become complex ones alone.
#[track_caller]
pub fn cast(tensor: Tensor, dtype: DType) -> Tensor {
    match tensor.dtype() == dtype {
        true => tensor,
        false if dtype.is_complex() => parts::cast_to_complex(tensor, dtype),
        false => prims::convert_element_type(tensor, dtype),
    }
}

/// `tensor` in the type that statistics of it are accumulated in: f32 for f16 and bf16.
#[track_caller]
pub fn accumulating(tensor: Tensor) -> Tensor {
    cast(tensor, tensor.dtype().accumulator())
}

/// `compute` of `input` in the type that sums of it are added up in, f32 for 16 bits; integers and booleans become f32.
/// The result is rounded once, to the floating-point type of `input`.
#[track_caller]
pub fn in_floating(input: Tensor, compute: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let dtype = floating(input.dtype());
    cast(compute(accumulating(cast(input, dtype))), dtype)
}

/// As [`in_floating`] for the cotangent of `input`, from that of the result and from `input`.
#[track_caller]
pub fn cotangent_of(d_out: Tensor, input: Tensor, compute: impl FnOnce(Tensor, Tensor) -> Tensor) -> Tensor {
    in_floating(input, |x| compute(cast(d_out, x.dtype()), x))
}

/// As [`in_floating`] of two tensors, of one shape and in the type they meet in.
#[track_caller]
pub fn pair_in_floating(pair: [Operand<Tensor>; 2], compute: impl FnOnce(Tensor, Tensor) -> Tensor) -> Tensor {
    let dtype = floating(result_type(&pair));
    let [input, other] = wide_pair(pair);
    cast(compute(input, other), dtype)
}

/// As [`pair_in_floating`] for the cotangents of both, from that of the result and from both.
#[track_caller]
pub fn cotangents_of(
    d_out: Tensor,
    pair: [Operand<Tensor>; 2],
    compute: impl FnOnce(Tensor, Tensor, Tensor) -> [Tensor; 2],
) -> [Option<Tensor>; 2] {
    let [input, other] = wide_pair(pair);
    let [d_input, d_other] = compute(cast(d_out, input.dtype()), input, other);
    let of =
        |operand: Operand<Tensor>, d: Tensor| operand.tensor().map(|like| cast(sum_to(d, &like.shape()), like.dtype()));
    [of(pair[0], d_input), of(pair[1], d_other)]
}

#[track_caller]
fn wide_pair(pair: [Operand<Tensor>; 2]) -> [Tensor; 2] {
    let dtype = floating(result_type(&pair));
    let meta = elementwise_meta(&pair, dtype);
    operands_in(pair, dtype).map(|operand| accumulating(as_tensor(operand, &meta)))
}

/// `magnitude`, which is not negative, with the signs of `like`.
#[track_caller]
pub fn with_sign(magnitude: Tensor, like: Tensor) -> Tensor {
    prims::select(prims::signbit(like), prims::neg(magnitude), magnitude)
}

/// `tensor` broadcast to `shape` by PyTorch's rule; itself if that is its shape.
#[track_caller]
pub fn broadcast(tensor: Tensor, shape: &[usize]) -> Tensor {
    let meta = tensor.meta();
    if meta.shape() == shape || tensor.is_poisoned() {
        return tensor;
    }
    let first = shape.len().saturating_sub(meta.rank());
    parts::broadcast_in_dim(tensor, shape, (first..first + meta.rank()).collect::<Vec<_>>())
}

/// A tensor of one value, of the shape, element type and device given; only one number is stored.
#[track_caller]
pub fn constant(value: impl Into<Scalar>, meta: &TensorMeta) -> Tensor {
    let value = number(value.into(), meta.dtype());
    if meta.dtype().is_complex() {
        let real = prims::full([], value, meta.dtype().part(), meta.device());
        return broadcast(parts::Complex::real(real).tensor(), meta.shape());
    }
    broadcast(prims::full([], value, meta.dtype(), meta.device()), meta.shape())
}

/// A tensor like `like`, every element `value`.
#[track_caller]
pub fn constant_like(like: Tensor, value: impl Into<Scalar>) -> Tensor {
    constant(value, &like.meta())
}

/// `scalar` as a number of `dtype`, which must hold it.
pub fn number(scalar: Scalar, dtype: DType) -> Scalar {
    match category(dtype) {
        0 => Scalar::Bool(scalar.to_f64() != 0.0),
        1 => Scalar::Int(scalar.to_i64()),
        _ => Scalar::Float(scalar.to_f64()),
    }
}

/// `scalar` as a number of `dtype` that meets a tensor of it. Integers wrap, as they do in PyTorch.
pub fn operand_number(scalar: Scalar, dtype: DType) -> Scalar {
    match (number(scalar, dtype), dtype) {
        (Scalar::Int(value), dtype) => Scalar::Int(dtype.wrapped(value)),
        (other, _) => other,
    }
}

/// `scalar` as a number of `dtype`: the nearest that the type has, beyond which no element is.
pub fn nearest_number(scalar: Scalar, dtype: DType) -> Scalar {
    match (number(scalar, dtype), dtype.limits()) {
        (Scalar::Int(value), Some((least, largest))) => Scalar::Int(value.clamp(least, largest)),
        (other, _) => other,
    }
}

/// Whether integers differ from `value`: all do if their type does not hold it.
#[track_caller]
pub fn differs_from(tensor: Tensor, value: i64) -> Tensor {
    match Scalar::Int(value).fits(tensor.dtype()) {
        true => prims::ne(tensor, value),
        false => constant(true, &tensor.meta().with_dtype(DType::Bool)),
    }
}

/// The largest finite bf16: seven bits of fraction, and the exponents of f32.
const BF16_MAX: f64 = 255.0 / 128.0 * (f32::MAX as f64 / (2.0 - f32::EPSILON as f64));

/// The largest finite number of a floating-point type.
pub fn largest_number(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65_504.0,
        DType::BF16 => BF16_MAX,
        DType::F32 | DType::C64 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// For metas: fails with the caller's code if a tensor of `dtype` cannot be filled with `value`: a number beyond the
/// type's, or NaN or infinity for integers. A fraction is cut off, and unsigned types take as many negative integers,
/// which wrap, but no negative floating-point number, as in PyTorch.
pub fn fills(name: &str, value: Scalar, dtype: DType, code: &'static str) -> Result<(), Failure> {
    let number = value.to_f64();
    let limits = match dtype {
        DType::Bool => return Ok(()),
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 => dtype.limits().map(|limits| {
            let (least, largest) = (limits.0 as f64, limits.1 as f64);
            let wraps = dtype.is_unsigned() && !matches!(value, Scalar::Float(_));
            (if wraps { -largest } else { least }, largest)
        }),
        // The largest is no f64; the next number that is one is above it.
        DType::I64 => Some((i64::MIN as f64, 9_223_372_036_854_774_784.0)),
        DType::F16 => Some((-65_504.0, 65_504.0)),
        DType::BF16 => Some((-BF16_MAX, BF16_MAX)),
        DType::F32 | DType::C64 => Some((-f64::from(f32::MAX), f64::from(f32::MAX))),
        DType::F64 | DType::C128 => None,
    };
    let fits = match (limits, value) {
        (None, _) => true,
        (Some(_), Scalar::Int(_)) if dtype == DType::I64 => true,
        (Some((low, high)), _) if dtype.is_differentiable() => !number.is_finite() || (low..=high).contains(&number),
        // As in PyTorch: 255.5 is the 255 of u8, and -128.5 is below the -128 of i8.
        (Some((low, high)), _) => number >= low && number.trunc() <= high,
    };
    match fits {
        true => Ok(()),
        false => Err(Failure::new(code, format!("{name} is {}, which {dtype} cannot hold", value.to_attribute()))),
    }
}

/// Operands for a prim: tensors of `dtype` and of the shape they broadcast to, and numbers that `dtype` holds.
#[track_caller]
pub fn operands_in<const N: usize>(operands: [Operand<Tensor>; N], dtype: DType) -> [Operand<Tensor>; N] {
    let shape = common_shape(&operands).unwrap_or_default();
    operands.map(|operand| match operand {
        // Conversion comes first: the smaller tensor is converted.
        Operand::Tensor(tensor) => Operand::Tensor(broadcast(cast(tensor, dtype), &shape)),
        Operand::Scalar(scalar) => Operand::Scalar(operand_number(scalar, dtype)),
    })
}

/// `combine` of `input` and `alpha · other` in `dtype`. In f16 and bf16 numbers are rounded to the type, and the
/// product and the sum once together, as PyTorch does.
#[track_caller]
pub fn with_scaled(
    [input, other]: [Operand<Tensor>; 2],
    alpha: Scalar,
    dtype: DType,
    combine: impl FnOnce(Operand<Tensor>, Operand<Tensor>) -> Tensor,
) -> Tensor {
    let wide = dtype.accumulator();
    if wide == dtype || alpha.to_f64() == 1.0 {
        let [input, other] = operands_in([input, scaled(other, alpha, dtype)], dtype);
        return combine(input, other);
    }
    let rounded = operands_in([input, other], dtype).map(|operand| match operand {
        Operand::Tensor(tensor) => Operand::Tensor(cast(tensor, wide)),
        Operand::Scalar(number) => dtype.nearest(number.to_f64()).into(),
    });
    let [input, other] = rounded;
    cast(combine(input, scaled(other, dtype.nearest(alpha.to_f64()).into(), wide)), dtype)
}

/// `alpha · other` for a sum in `dtype`. Of booleans it is the conjunction.
#[track_caller]
fn scaled(other: Operand<Tensor>, alpha: Scalar, dtype: DType) -> Operand<Tensor> {
    match other {
        _ if alpha.to_f64() == 1.0 => other,
        Operand::Scalar(value) if dtype.is_differentiable() => (value.to_f64() * alpha.to_f64()).into(),
        Operand::Scalar(value) if dtype == DType::Bool => (value.to_f64() != 0.0 && alpha.to_f64() != 0.0).into(),
        // Integers wrap, here and where the product meets its type.
        Operand::Scalar(value) => value.to_i64().wrapping_mul(alpha.to_i64()).into(),
        Operand::Tensor(tensor) => {
            let (tensor, alpha) = (cast(tensor, dtype), operand_number(alpha, dtype));
            let product = if dtype == DType::Bool {
                prims::logical_and(tensor, alpha)
            } else {
                parts::mul(tensor.into(), alpha.into())
            };
            Operand::Tensor(product)
        }
    }
}

/// An operand as a tensor: a number in every element of one like `meta`.
#[track_caller]
pub fn as_tensor(operand: Operand<Tensor>, meta: &TensorMeta) -> Tensor {
    match operand {
        Operand::Tensor(tensor) => tensor,
        Operand::Scalar(scalar) => constant(scalar, meta),
    }
}

/// Operands for a prim, in the type they meet in: see [`operands_in`].
#[track_caller]
pub fn promoted<const N: usize>(operands: [Operand<Tensor>; N]) -> [Operand<Tensor>; N] {
    let dtype = result_type(&operands);
    operands_in(operands, dtype)
}

/// `dim` as PyTorch writes it, for messages.
fn dims_text(dims: Option<&[i64]>) -> String {
    dims.map_or_else(|| "None".into(), |dims| format!("{dims:?}"))
}

/// Positions of `dims` (all if `None` or empty) in a tensor of `rank`, ascending; `None` if one is out of range or
/// named twice.
pub fn reduced_dims(dims: Option<&[i64]>, rank: usize) -> Option<Vec<usize>> {
    match dims {
        None | Some([]) => Some((0..rank).collect()),
        Some(given) => named_dims(given, rank),
    }
}

/// The most dimensions of a tensor of which some are named; more are taken together alone. PyTorch's limit.
pub const MOST_NAMED: usize = 64;

/// For metas: the positions of the argument `name` in `input` (see [`reduced_dims`]); fails with the caller's code if
/// one is out of range or named twice, or if `input` has more than [`MOST_NAMED`] dimensions and some are named.
pub fn checked_dims(
    name: &str,
    dims: Option<&[i64]>,
    input: &TensorMeta,
    code: Precondition,
) -> Result<Vec<usize>, Failure> {
    let (rank, text) = (input.rank(), dims_text(dims));
    if rank > MOST_NAMED && dims.is_some_and(|dims| !dims.is_empty()) {
        let message = format_args!(
            "{name} is {text} and input has {rank} dimensions, expected at most {MOST_NAMED} where some are named"
        );
        return Err(code.unmet(message));
    }
    let message = format_args!("{name} is {text}, expected distinct dimensions of a tensor of rank {rank}");
    reduced_dims(dims, rank).ok_or_else(|| code.unmet(message))
}

/// Positions of `given` in a tensor of `rank`, ascending; `None` if one is out of range or named twice.
pub fn named_dims(given: &[i64], rank: usize) -> Option<Vec<usize>> {
    let mut positions = Vec::new();
    for dim in given {
        let dim = fulgurite_runtime::meta::normalize_dim(*dim, rank).ok()?;
        if positions.contains(&dim) {
            return None;
        }
        positions.push(dim);
    }
    positions.sort_unstable();
    // A zero-dimensional tensor answers to dimension 0, and has none to reduce.
    positions.retain(|dim| *dim < rank);
    Some(positions)
}

/// `shape` after the reduction of `dims`.
pub fn reduced_shape(shape: &[usize], dims: &[usize], keepdim: bool) -> Vec<usize> {
    let kept = shape.iter().enumerate().filter(|(i, _)| keepdim || !dims.contains(i));
    kept.map(|(i, extent)| if dims.contains(&i) { 1 } else { *extent }).collect()
}

/// The result of a reduction of `dims`, which has lost them, with them again as ones if they are kept.
#[track_caller]
pub fn keep_dims(reduced: Tensor, shape: &[usize], dims: &[usize], keepdim: bool) -> Tensor {
    if keepdim && !dims.is_empty() { parts::reshape(reduced, reduced_shape(shape, dims, true)) } else { reduced }
}

/// Position of `dim`, for rules whose meta has checked it.
pub fn position(dim: i64, rank: usize) -> usize {
    fulgurite_runtime::meta::normalize_dim(dim, rank).unwrap_or(0)
}

/// Sums `gradient` down to the shape of a tensor that was broadcast to its shape.
#[track_caller]
pub fn sum_to(gradient: Tensor, shape: &[usize]) -> Tensor {
    let from = gradient.meta();
    if from.shape() == shape {
        return gradient;
    }
    let first = from.rank().saturating_sub(shape.len());
    let dims: Vec<usize> =
        (0..from.rank()).filter(|i| *i < first || (shape[i - first] == 1 && from.shape()[*i] != 1)).collect();
    let summed = parts::sum(gradient, dims);
    if summed.shape().as_ref() == shape { summed } else { parts::reshape(summed, shape) }
}
