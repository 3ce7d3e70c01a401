//! The arithmetic of elementwise operators, from which loops, fused kernels and metas are made.

use fulgurite_kernels::scalar::ScalarProgram;

use crate::argument::Arg;
use crate::meta::TensorMeta;
use crate::operator::RuleSet;

/// The arithmetic of an elementwise operator, and the run-time numbers it was given.
pub type ScalarRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> (ScalarProgram, Vec<f64>) + Send + Sync);

/// What an operator does with elements, where it is no arithmetic on them: what a generator of fused kernels must know.
/// Declared by `elements = ...`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Each element in another type.
    Convert,
    /// The sum over the parameter `dims`, which the result lacks.
    Sum,
    /// The largest over the parameter `dims`, which the result lacks.
    Max,
    /// The smallest over the parameter `dims`, which the result lacks.
    Min,
    /// All elements in their order, with other extents.
    Reshape,
    /// Elements repeated along new dimensions; the parameter `dims` has those of the operand.
    Broadcast,
    /// Some of the first operand's elements, chosen by another.
    Select,
}

/// The arithmetic of an operator.
#[derive(Clone, Copy)]
pub struct Arithmetic {
    /// What it does with elements, if it is no arithmetic on them.
    pub elements: Option<Elements>,
    /// What is made of one element of each operand, if the operator is elementwise.
    pub scalar: Option<ScalarRule>,
}

impl Arithmetic {
    /// Not elementwise, and nothing is said of elements.
    pub const EMPTY: Arithmetic = Arithmetic { elements: None, scalar: None };
}

impl RuleSet for Arithmetic {
    const NONE: &'static Arithmetic = &Arithmetic::EMPTY;
}
