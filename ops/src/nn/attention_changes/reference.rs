//! Masks and dropped weights, for references.

use fulgurite_runtime::DType;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor, Result};

use crate::nn::draws;

/// A mask, as the definition takes it.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// A mask of booleans.
    pub seen: Option<&'a ArrayD<bool>>,
    /// A mask of numbers that are added to scores.
    pub added: Option<&'a ArrayD<f64>>,
}

impl<'a> Marks<'a> {
    /// By the type of its elements.
    pub fn of(mask: Option<&'a ReferenceTensor>) -> Marks<'a> {
        let is_of_booleans = mask.is_some_and(|mask| mask.dtype() == DType::Bool);
        Marks {
            seen: mask.filter(|_| is_of_booleans).map(ReferenceTensor::booleans),
            added: mask.filter(|_| !is_of_booleans).map(ReferenceTensor::floats),
        }
    }
}

/// What weights [B, H, L, S] are multiplied with, by the numbers that `dropout` draws.
///
/// # Errors
/// Those of drawing.
pub fn kept(
    query: &ArrayD<f64>,
    key: &ArrayD<f64>,
    generator: Option<&ArrayD<i64>>,
    dropout_p: f64,
) -> Result<Option<ArrayD<f64>>> {
    let Some(generator) = generator.filter(|_| dropout_p > 0.0) else { return Ok(None) };
    let (q, k) = (query.shape(), key.shape());
    let drawn = draws(&[q[0], q[1], q[2], k[2]], DType::F32, generator)?;
    Ok(Some(drawn.mapv(|u| if u >= f64::from(dropout_p as f32) { 1.0 / (1.0 - dropout_p) } else { 0.0 })))
}
