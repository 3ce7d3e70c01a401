//! Kernels that take any strides, given results with gaps between their elements, for the tests of bounds: in a plan
//! results are contiguous, and it is inside kernels (of `cat`, of `pad`) that others write to parts of them.

use std::sync::Arc;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::access::for_each_offset;
use fulgurite_kernels::buffer::POISON;
use fulgurite_kernels::scratch::{try_copy, try_room};
use fulgurite_kernels::view::{TensorMut, TensorRef, contiguous_strides};

use super::{HostProgram, Step, kernel_of};
use crate::argument::map_arguments;
use crate::array::{Array, Strides};
use crate::error::{Failure, Result};
use crate::strided::Strided;
use crate::trace::ValueId;
use crate::trace::joins::takes_any_strides;

/// Elements of a result with gaps are this far apart.
const STEP: usize = 2;

/// A result with gaps: its memory, which is poison before, and its strides. The first element comes after a gap.
struct Gapped {
    buffer: Buffer,
    strides: Vec<isize>,
}

impl HostProgram {
    /// Runs a kernel that takes any strides once more, with gaps between the elements of its results, and compares them
    /// with those of `bases`, which it has written. A kernel that refuses such results is left alone.
    pub(super) fn check_gaps(&self, step: &Step, bases: &[*mut u8]) -> Result<()> {
        let block = &self.trace.block;
        let symbol = &block.symbols[step.symbol];
        if !takes_any_strides(symbol)? {
            return Ok(());
        }
        let slot = |index: usize| &self.placement.slots[index];
        let mut results = Vec::with_capacity(step.results.len());
        for index in &step.results {
            let meta = &slot(*index).meta;
            let elements = STEP * (meta.shape().iter().product::<usize>() + 1);
            let strides = contiguous_strides(meta.shape()).into_iter().map(|stride| stride * STEP as isize).collect();
            results.push(Gapped { buffer: Buffer::fenced(elements * meta.dtype().size())?, strides });
        }
        let arguments = map_arguments(&symbol.arguments, |id: &ValueId| Strided {
            meta: block.meta(*id).clone(),
            strides: slot(id.index()).strides.to_vec(),
        });
        let layouts = step.results.iter().zip(&results);
        let strided: Vec<Strided> = layouts
            .map(|(index, result)| Strided { meta: slot(*index).meta.clone(), strides: result.strides.clone() })
            .collect();
        let Ok(kernel) = kernel_of(symbol, &arguments, &strided) else { return Ok(()) };
        let operands: Vec<TensorRef<'_>> = step
            .operands
            .iter()
            .map(|i| {
                let slot = slot(*i);
                // SAFETY: as in `step`, which has just been run with the same operands.
                unsafe { TensorRef::new(slot.meta.dtype(), slot.meta.shape(), &slot.strides, bases[*i]) }
            })
            .collect();
        let mut outputs: Vec<TensorMut<'_>> = step
            .results
            .iter()
            .zip(&results)
            .map(|(i, result)| {
                let meta = &slot(*i).meta;
                let first = result.buffer.as_ptr().wrapping_add(meta.dtype().size());
                // SAFETY: the buffer has STEP elements for each of the result and as many more, and nobody else has it.
                unsafe { TensorMut::new(meta.dtype(), meta.shape(), &result.strides, first) }
            })
            .collect();
        if kernel(&operands, &mut outputs).is_err() {
            return Ok(());
        }
        drop(outputs);
        for (i, result) in step.results.iter().zip(results) {
            let (name, meta) = (&block.values[*i].name, &slot(*i).meta);
            let size = meta.dtype().size();
            let mut rest = try_copy(result.buffer.as_bytes())?;
            for_each_offset(meta.shape(), &result.strides, |offset| {
                rest[(1 + offset as usize) * size..][..size].fill(POISON);
            });
            if !result.buffer.guards_intact() || rest.iter().any(|byte| *byte != POISON) {
                let message = format!("the kernel wrote between the elements of '{name}', given gaps there");
                return Err(self.failed(step, Failure::new("OutOfBounds", message)));
            }
            let gapped =
                Array::from_shared(Arc::new(result.buffer), meta.clone(), Strides::from_slice(&result.strides), 1);
            // SAFETY: as in `step`, which has written the result.
            let plain = unsafe { TensorRef::new(meta.dtype(), meta.shape(), &slot(*i).strides, bases[*i]) };
            let plain = copied(&plain, meta)?;
            if let Some(at) = first_different(&plain, &gapped.to_contiguous()?)? {
                let message = format!("element {at} of '{name}' is another where there are gaps between the elements");
                return Err(self.failed(step, Failure::new("Gaps", message)));
            }
        }
        Ok(())
    }
}

/// The first element that differs by its bits: gaps between elements do not change the order of sums.
fn first_different(plain: &Array, gapped: &Array) -> Result<Option<usize>> {
    let size = plain.dtype().size();
    let (a, b) = (plain.to_bytes()?, gapped.to_bytes()?);
    // Most are equal, and millions of elements are compared in one piece.
    Ok(if a == b { None } else { a.chunks(size).zip(b.chunks(size)).position(|(a, b)| a != b) })
}

/// The elements in an array of their own.
fn copied(tensor: &TensorRef<'_>, meta: &crate::meta::TensorMeta) -> Result<Array> {
    let size = meta.dtype().size();
    let mut bytes = try_room(meta.bytes())?;
    for_each_offset(tensor.shape(), tensor.strides(), |offset| {
        // SAFETY: the view covers every element that its shape and strides reach.
        let element = unsafe { std::slice::from_raw_parts(tensor.as_ptr().offset(offset * size as isize), size) };
        bytes.extend_from_slice(element);
    });
    Array::from_bytes(meta.shape(), meta.dtype(), &bytes)
}
