//! Checks that metas share. Each fails with the code of the caller, and with a message that names the argument, what it
//! is, and what was expected. (The error that a user sees names the operator as well.)

use fulgurite_runtime::rules::{Failure, Precondition};
use fulgurite_runtime::{DType, TensorMeta};

/// An argument by its name in the signature.
pub type Named<'a> = (&'a str, &'a TensorMeta);

/// Fails with `code` unless `dim` is a dimension of the tensor.
pub fn dimension(dim: usize, (name, tensor): Named<'_>, code: Precondition) -> Result<(), Failure> {
    let rank = tensor.rank();
    if dim < rank {
        return Ok(());
    }
    Err(code.unmet(format_args!("dim is {dim}, expected a dimension below {rank}, the rank of {name}")))
}

/// Fails with the first code unless all `dims` are dimensions of `input`, with the second if one is there twice.
pub fn dimensions(dims: &[usize], input: &TensorMeta, [range, repeated]: [Precondition; 2]) -> Result<(), Failure> {
    let rank = input.rank();
    if !dims.iter().all(|dim| *dim < rank) {
        return Err(range.unmet(format_args!("dims is {dims:?}, expected dimensions below {rank}, the rank of input")));
    }
    if !distinct(dims) {
        return Err(repeated.unmet(format_args!("dims is {dims:?}, expected each dimension once")));
    }
    Ok(())
}

/// Whether no dimension is named twice.
pub fn distinct(dims: &[usize]) -> bool {
    dims.iter().enumerate().all(|(i, dim)| !dims[..i].contains(dim))
}

/// Fails with `code` unless the argument has the shape, element type and device of `expected`.
pub fn is_like((name, given): Named<'_>, expected: &TensorMeta, code: Precondition) -> Result<(), Failure> {
    if given == expected {
        return Ok(());
    }
    Err(code.unmet(format_args!("{name} is {given}, expected {expected}")))
}

/// Fails with `code` unless the argument has `rank` dimensions, which `expected` describes: `[N, C]`.
pub fn has_rank((name, given): Named<'_>, rank: usize, expected: &str, code: Precondition) -> Result<(), Failure> {
    if given.rank() == rank {
        return Ok(());
    }
    Err(code.unmet(format_args!("{name} is {given}, expected {expected}")))
}

/// Fails with `code` unless both have one shape.
pub fn same_shape((first, a): Named<'_>, (second, b): Named<'_>, code: Precondition) -> Result<(), Failure> {
    let (a, b) = (a.shape(), b.shape());
    if a == b {
        return Ok(());
    }
    Err(code.unmet(format_args!("{first} has shape {a:?}, {second} has {b:?}, expected equal shapes")))
}

/// Fails with `code` unless both have one element type.
pub fn same_dtype((first, a): Named<'_>, (second, b): Named<'_>, code: Precondition) -> Result<(), Failure> {
    let (a, b) = (a.dtype(), b.dtype());
    if a == b {
        return Ok(());
    }
    Err(code.unmet(format_args!("{first} is {a}, {second} is {b}, expected equal dtypes")))
}

/// Fails with `code` unless `generator` is one: a seed and an offset; and, to draw a part of a larger tensor, the sum
/// of the offset and the number of the part.
pub fn generator(generator: &TensorMeta, code: Precondition) -> Result<(), Failure> {
    if is_generator(generator) {
        return Ok(());
    }
    let expected = "i64[2] of seed and offset, or i64[3] of seed, offset, and offset + part";
    Err(code.unmet(format_args!("generator is {generator}, expected {expected}")))
}

/// Whether a tensor is what random operators draw by.
pub fn is_generator(meta: &TensorMeta) -> bool {
    matches!(meta.shape(), [2 | 3]) && meta.dtype() == DType::I64
}
