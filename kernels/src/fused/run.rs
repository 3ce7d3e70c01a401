//! Running a prepared program: its tiles over threads, or few long rows in chunks.

use std::sync::atomic::AtomicBool;

use smallvec::SmallVec;

use super::kernel::FusedKernel;
use super::long_rows;
use super::program::{DivisionByZero, FusedProgram, OutputLayout};
use super::task::{Addresses, Task, with_scratch};
use crate::extents;
use crate::parallel::for_ranges;
use crate::view::{TensorMut, TensorRef};

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
        let inputs: SmallVec<[*const u8; 8]> = inputs.iter().map(TensorRef::as_ptr).collect();
        let outputs: SmallVec<[*mut u8; 4]> = outputs.iter_mut().map(TensorMut::as_mut_ptr).collect();
        // SAFETY: the views hold what the layout reaches, by the checks above and the contracts of the views.
        unsafe { run(self, &inputs, &outputs) }
    }
}

/// Runs the kernel.
///
/// # Safety
/// The addresses hold what the layout of the kernel reaches, as by the contracts of `TensorRef` and `TensorMut`.
unsafe fn run(kernel: &FusedKernel, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<(), DivisionByZero> {
    let (layout, plan) = (&kernel.layout, &kernel.plan);
    let rows = layout.rows();
    if rows == 0 || (layout.width == 0 && !plan.whole_rows) {
        return Ok(());
    }
    // A direct output that is also an input may not be written before the whole tile is computed.
    let staged: SmallVec<[bool; 4]> = outputs
        .iter()
        .zip(&plan.outputs)
        .map(|(&output, plan)| plan.streaming || inputs.contains(&output.cast_const()))
        .collect();
    let by_zero = AtomicBool::new(false);
    let addresses = Addresses { inputs, outputs, staged: &staged, by_zero: &by_zero };
    if long_rows::are_cut(kernel) {
        long_rows::run(kernel, &addresses);
        return if by_zero.into_inner() { Err(DivisionByZero) } else { Ok(()) };
    }
    let batches = rows.div_ceil(plan.rows_per_tile);
    let pieces = if plan.whole_rows { 1 } else { layout.width.div_ceil(plan.columns_per_tile) };
    for_ranges(batches * pieces, rows * layout.width, |range| {
        let addresses = &addresses;
        with_scratch(plan.scratch_bytes, |scratch| {
            Task::new(kernel, addresses, scratch, scratch).run(range, pieces, rows);
        });
    });
    if by_zero.into_inner() { Err(DivisionByZero) } else { Ok(()) }
}
