//! What a fused region computes, as data.

use crate::dtype::DType;
use crate::scalar::{ScalarNode, ScalarOp, ScalarProgram};
use crate::tile::reduction::Reduction;

/// One node of a fused program; operands are indices of earlier nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FusedNode {
    /// The n-th input at this element.
    Input(u32),
    /// A number; it takes the type of what it is combined with.
    Constant(f64),
    /// A scalar operation; unused operands are 0.
    Apply(ScalarOp, [u32; 3]),
    /// Rounds (or wraps, or truncates) to a value of the element type, and goes on in that type's arithmetic.
    Convert(DType, u32),
    /// Reduces over the last dimension; the result is one value a row.
    Reduce(Reduction, u32),
}

/// What a fused region computes, whatever the layout of its operands.
///
/// Arithmetic is carried out in f32 for `f16`, `bf16` and `f32`, in f64, in i64 for integers (wrapped to the stored
/// width when stored), and booleans count as integers; mixed operands are promoted. Integer division truncates, and the
/// remainder has the divisor's sign; both are 0 for the divisor 0, which [`FusedKernel::run`](super::FusedKernel::run)
/// reports and device code does not.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedProgram {
    /// Element types of the inputs.
    pub input_dtypes: Vec<DType>,
    /// Nodes in evaluation order.
    pub nodes: Vec<FusedNode>,
    /// The node stored to each output, and the element type it is stored as.
    pub outputs: Vec<(u32, DType)>,
}

impl FusedProgram {
    /// The arithmetic of one operator: of elements of `inputs`, with the run-time `numbers`, stored as `outputs`.
    pub fn of(
        program: &ScalarProgram,
        numbers: &[f64],
        inputs: impl IntoIterator<Item = DType>,
        outputs: impl IntoIterator<Item = DType>,
    ) -> FusedProgram {
        let fused = |node: &ScalarNode| match *node {
            ScalarNode::Input(input) => FusedNode::Input(input),
            ScalarNode::Number(number) => FusedNode::Constant(numbers[number as usize]),
            ScalarNode::Constant(value) => FusedNode::Constant(value),
            ScalarNode::Apply(op, operands) => FusedNode::Apply(op, operands),
        };
        FusedProgram {
            input_dtypes: inputs.into_iter().collect(),
            nodes: program.nodes.iter().map(fused).collect(),
            outputs: program.results.iter().copied().zip(outputs).collect(),
        }
    }
}

/// The divisor of an integer division or remainder was zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an integer is divided by zero")]
pub struct DivisionByZero;

/// Shape and strides of an output: those of the iteration, or with a last extent of one for a value per row.
#[derive(Debug, Clone, Copy)]
pub struct OutputLayout<'a> {
    /// Extents.
    pub shape: &'a [usize],
    /// Strides in elements.
    pub strides: &'a [isize],
}
