//! The data that `reference` rules compute with.

use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::{DType, scratch};
use ndarray::{ArrayD, IxDyn};

/// An argument of a reference: its values as f64, as i64 and as booleans, whichever the rule takes.
#[derive(Debug, Clone)]
pub struct ReferenceTensor {
    dtype: DType,
    floats: ArrayD<f64>,
    integers: ArrayD<i64>,
    booleans: ArrayD<bool>,
}

/// A function of each value.
fn each<A: Copy, B>(values: &ArrayD<A>, function: impl Fn(A) -> B) -> Result<ArrayD<B>, OutOfMemory> {
    let mut results = scratch::try_room(values.len())?;
    results.extend(values.iter().map(|value| function(*value)));
    Ok(ArrayD::from_shape_vec(values.raw_dim(), results).unwrap_or_else(|_| unreachable!("a value for each")))
}

impl ReferenceTensor {
    /// From values that are exact in f64, for a reference: it is run as a kernel is, and unwinds where there is no
    /// memory.
    pub fn from_floats(dtype: DType, floats: ArrayD<f64>) -> ReferenceTensor {
        scratch::or_unwind(ReferenceTensor::try_from_floats(dtype, floats))
    }

    /// As [`from_floats`](Self::from_floats), from integers, which f64 may not hold exactly.
    pub fn from_integers(dtype: DType, integers: ArrayD<i64>) -> ReferenceTensor {
        scratch::or_unwind(ReferenceTensor::try_from_integers(dtype, integers))
    }

    /// From values that are exact in f64.
    pub fn try_from_floats(dtype: DType, floats: ArrayD<f64>) -> Result<ReferenceTensor, OutOfMemory> {
        let integers = each(&floats, |value| value as i64)?;
        let booleans = each(&floats, |value| value != 0.0)?;
        Ok(ReferenceTensor { dtype, floats, integers, booleans })
    }

    /// From integers, which f64 may not hold exactly.
    pub fn try_from_integers(dtype: DType, integers: ArrayD<i64>) -> Result<ReferenceTensor, OutOfMemory> {
        let floats = each(&integers, |value| value as f64)?;
        let booleans = each(&integers, |value| value != 0)?;
        Ok(ReferenceTensor { dtype, floats, integers, booleans })
    }

    /// The element type that the values came with, or that a rule computed in (f64, i64 or bool).
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        self.floats.shape()
    }

    /// Values as f64.
    pub fn floats(&self) -> &ArrayD<f64> {
        &self.floats
    }

    /// Values as i64; floating-point values truncate.
    pub fn integers(&self) -> &ArrayD<i64> {
        &self.integers
    }

    /// Whether each value differs from zero.
    pub fn booleans(&self) -> &ArrayD<bool> {
        &self.booleans
    }

    /// A zero-dimensional tensor.
    pub fn scalar(value: f64) -> ReferenceTensor {
        ReferenceTensor::from_floats(DType::F64, ArrayD::from_elem(IxDyn(&[]), value))
    }
}

impl From<ArrayD<f64>> for ReferenceTensor {
    fn from(values: ArrayD<f64>) -> Self {
        ReferenceTensor::from_floats(DType::F64, values)
    }
}
impl From<ArrayD<i64>> for ReferenceTensor {
    fn from(values: ArrayD<i64>) -> Self {
        ReferenceTensor::from_integers(DType::I64, values)
    }
}
impl From<ArrayD<bool>> for ReferenceTensor {
    fn from(values: ArrayD<bool>) -> Self {
        ReferenceTensor::from_floats(DType::Bool, values.mapv(|value| f64::from(u8::from(value))))
    }
}
