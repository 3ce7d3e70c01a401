//! A program prepared for a layout.

use super::layout::Layout;
use super::plan::Plan;
use super::program::{FusedNode, FusedProgram, OutputLayout};
use super::values::{Space, Values};

/// A [`FusedProgram`] prepared for a shape and for the strides of its operands; it can be run any number of times.
#[derive(Debug)]
pub struct FusedKernel {
    pub(super) layout: Layout,
    pub(super) plan: Plan,
    pub(super) input_strides: Vec<Vec<isize>>,
    pub(super) output_strides: Vec<Vec<isize>>,
    pub(super) shape: Vec<usize>,
}

impl FusedKernel {
    /// Prepares `program` for the iteration `shape`.
    ///
    /// Every input is viewed in `shape`, with stride zero where it is broadcast. An output has `shape` too, or a last
    /// extent of one where it has one value a row. Panics if the program has other numbers of operands, or if one of
    /// them has another number of dimensions.
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
        let layout = Layout::new(shape, inputs, outputs, reduces);
        let spaces: Vec<Space> = (0..inputs.len()).map(|input| layout.space(input)).collect();
        let values = Values::new(program, &spaces);
        let plan = Plan::new(program, values, &layout, reduces);
        FusedKernel {
            layout,
            plan,
            input_strides: inputs.iter().map(|strides| strides.to_vec()).collect(),
            output_strides: outputs.iter().map(|output| output.strides.to_vec()).collect(),
            shape: shape.to_vec(),
        }
    }
}
