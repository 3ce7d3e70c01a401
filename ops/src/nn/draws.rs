//! Random numbers for references of operators that draw.

use fulgurite_runtime::DType;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::rules::{ArrayD, Failure, OperatorArguments, ReferenceTensor, Result};
use fulgurite_runtime::testing::rules::TestRules;

use crate::prims::uniform;

/// For references: what `prims::uniform` draws in [0, 1), by its own reference: the numbers are its business, not that
/// of its callers.
pub fn draws(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>> {
    let arguments = uniform::with(size, 0.0, 1.0, dtype, ReferenceTensor::from(generator.clone())).into_arguments();
    let rule = TestRules::of(&uniform::OPERATOR)
        .reference
        .ok_or_else(|| Failure::new("NoReference", "uniform declares no reference"))?;
    let drawn = rule(&arguments)?;
    let first = drawn.into_iter().next().ok_or_else(|| Failure::new("NoReference", "uniform gave nothing"))?;
    Ok(first.floats().clone())
}
