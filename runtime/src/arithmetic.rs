//! The arithmetic of elementwise operators, from which loops, fused kernels and metas are made.

use fulgurite_kernels::scalar::ScalarProgram;

use crate::argument::Arg;
use crate::meta::TensorMeta;
use crate::operator::RuleSet;

/// The arithmetic of an elementwise operator, and the run-time numbers it was given.
pub type ScalarRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> (ScalarProgram, Vec<f64>) + Send + Sync);

/// The arithmetic of an operator.
#[derive(Clone, Copy)]
pub struct Arithmetic {
    /// What is made of one element of each operand, if the operator is elementwise.
    pub scalar: Option<ScalarRule>,
}

impl Arithmetic {
    /// Not elementwise.
    pub const EMPTY: Arithmetic = Arithmetic { scalar: None };
}

impl RuleSet for Arithmetic {
    const NONE: &'static Arithmetic = &Arithmetic::EMPTY;
}
