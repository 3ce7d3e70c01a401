//! Fused regions: elementwise arithmetic, broadcasts and row reductions in one pass over memory.
//!
//! A [`FusedProgram`] says what is computed; a [`FusedKernel`] is the program prepared for one layout. The steps are
//! type inference (`values`), the iteration order (`layout`), the division into passes and the assignment of tiles
//! (`schedule`), and the interpreter (`run`).

mod ahead;
pub(crate) mod layout;
mod long_rows;
#[cfg(test)]
mod long_rows_tests;
mod plan;
mod run;
mod schedule;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use crate::dtype::DType;
use crate::extents;
use crate::scalar::ScalarOp;
use crate::tile::reduction::Reduction;
use crate::view::{TensorMut, TensorRef};

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
/// Arithmetic is carried out in f32 for `f16`, `bf16` and `f32`, in f64, in i64 for integers (wrapped to the stored width
/// when stored), and booleans count as integers; mixed operands are promoted. Integer division truncates, and the remainder
/// has the divisor's sign; both are 0 for the divisor 0, which [`FusedKernel::run`] reports and device code does not.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedProgram {
    /// Element types of the inputs.
    pub input_dtypes: Vec<DType>,
    /// Nodes in evaluation order.
    pub nodes: Vec<FusedNode>,
    /// The node stored to each output, and the element type it is stored as.
    pub outputs: Vec<(u32, DType)>,
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

/// A [`FusedProgram`] prepared for a shape and for the strides of its operands; it can be run any number of times.
#[derive(Debug)]
pub struct FusedKernel {
    pub(crate) layout: layout::Layout,
    pub(crate) plan: plan::Plan,
    input_strides: Vec<Vec<isize>>,
    output_strides: Vec<Vec<isize>>,
    shape: Vec<usize>,
}

impl FusedProgram {
    /// Prepares the program and runs it once. See [`FusedKernel::new`] and [`FusedKernel::run`].
    pub fn run(
        &self,
        shape: &[usize],
        inputs: &[TensorRef<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), DivisionByZero> {
        let input_strides: Vec<&[isize]> = inputs.iter().map(|input| input.strides()).collect();
        let layouts: Vec<OutputLayout<'_>> =
            outputs.iter().map(|output| OutputLayout { shape: output.shape(), strides: output.strides() }).collect();
        FusedKernel::new(self, shape, &input_strides, &layouts).run(inputs, outputs)
    }
}

impl FusedKernel {
    /// Prepares `program` for the iteration `shape`.
    ///
    /// Every input is viewed in `shape`, with stride zero where it is broadcast. An output has `shape` too, or a last
    /// extent of one where it has one value a row. Panics if the program has other numbers of operands, or if one of them has
    /// another number of dimensions.
    pub fn new(
        program: &FusedProgram,
        shape: &[usize],
        inputs: &[&[isize]],
        outputs: &[OutputLayout<'_>],
    ) -> FusedKernel {
        assert_eq!(inputs.len(), program.input_dtypes.len(), "as many inputs as the program has");
        assert_eq!(outputs.len(), program.outputs.len(), "as many outputs as the program has");
        for (index, strides) in inputs.iter().enumerate() {
            assert_eq!(strides.len(), shape.len(), "input {index} has a stride for each dimension of {shape:?}");
        }
        for (index, output) in outputs.iter().enumerate() {
            let ranks = [output.shape.len(), output.strides.len()];
            assert_eq!(ranks, [shape.len(); 2], "output {index} has as many dimensions as {shape:?}");
        }
        // A value per row keeps the last dimension apart, whether it is reduced or was per row from the start.
        let reduces = program.nodes.iter().any(|node| matches!(node, FusedNode::Reduce(..)))
            || outputs.iter().any(|output| output.shape.last() != shape.last());
        let layout = layout::Layout::new(shape, inputs, outputs, reduces);
        let spaces: Vec<values::Space> = (0..inputs.len()).map(|input| layout.space(input)).collect();
        let values = values::Values::new(program, &spaces);
        let plan = plan::Plan::new(program, values, &layout, reduces);
        FusedKernel {
            layout,
            plan,
            input_strides: inputs.iter().map(|strides| strides.to_vec()).collect(),
            output_strides: outputs.iter().map(|output| output.strides.to_vec()).collect(),
            shape: shape.to_vec(),
        }
    }

    /// Runs the program. Inputs and outputs have the element types and layouts that the kernel was prepared for.
    ///
    /// An output may be exactly the same view as an input: an element is read before it is written. Panics if an
    /// operand has another type or layout, or if an input and an output share memory otherwise.
    ///
    /// # Errors
    /// If an integer is divided by zero. All outputs are written all the same.
    pub fn run(&self, inputs: &[TensorRef<'_>], outputs: &mut [TensorMut<'_>]) -> Result<(), DivisionByZero> {
        assert_eq!(inputs.len(), self.input_strides.len(), "as many inputs as the kernel was prepared for");
        assert_eq!(outputs.len(), self.output_strides.len(), "as many outputs as the kernel was prepared for");
        for (index, input) in inputs.iter().enumerate() {
            assert!(
                input.shape() == self.shape
                    && input.strides() == self.input_strides[index]
                    && input.dtype() == self.plan.input_dtypes[index],
                "input {index} has the layout and type that the kernel was prepared for"
            );
        }
        for (index, output) in outputs.iter().enumerate() {
            let shape = output.shape();
            let same = shape.len() == self.shape.len()
                && shape.iter().zip(&self.shape).enumerate().all(|(axis, (&extent, &expected))| {
                    extent == expected || (axis + 1 == shape.len() && extent == 1 && self.plan.outputs[index].per_row)
                });
            assert!(
                same && output.strides() == self.output_strides[index]
                    && output.dtype() == self.plan.outputs[index].dtype,
                "output {index} has the layout and type that the kernel was prepared for"
            );
        }
        for (index, input) in inputs.iter().enumerate().filter(|(_, input)| input.is_overlapped()) {
            extents::apart_or_same("a fused program", &format!("input {index}"), input, outputs);
        }
        let inputs: smallvec::SmallVec<[*const u8; 8]> = inputs.iter().map(TensorRef::as_ptr).collect();
        let outputs: smallvec::SmallVec<[*mut u8; 4]> = outputs.iter_mut().map(TensorMut::as_mut_ptr).collect();
        // SAFETY: the views hold what the layout reaches, by the checks above and the contracts of the views.
        unsafe { run::run(self, &inputs, &outputs) }
    }
}
