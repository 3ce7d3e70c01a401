//! A run in which every value has memory of its own between guard bytes, for the tests of bounds.

use std::ops::Range;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::access::for_each_offset;
use fulgurite_kernels::buffer::{GUARD, POISON};
use fulgurite_kernels::scratch::{try_copy, try_room, try_zeroed};

use super::{DeviceProgram, Loaded};
use crate::array::{Array, Memory};
use crate::device::block::Block;
use crate::device::{Addresses, DeviceState};
use crate::error::{Failure, Result};
use crate::program::host::first_unwritten;
use crate::program::placement::Base;
use crate::transforms::layout::layouts;

/// Guard bytes before and after each value: as many as the largest alignment that kernels are promised.
const GUARD_BYTES: usize = 256;

/// Another filling than the poison, of bytes that are a finite number in each dtype.
const OTHER_POISON: u8 = 0xFE;

/// Waits for what is enqueued when it is dropped.
struct Ended<'a>(&'a DeviceState);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.synchronize() {
            tracing::error!(%error, "waiting for a checked run");
        }
    }
}

impl DeviceProgram {
    /// Runs step `i` on the image that `memory` has, in which values are at these offsets; returns the image after it.
    fn run_on_image(
        &self,
        loaded: &mut Loaded,
        i: usize,
        addresses: &Addresses,
        memory: &mut Block,
        (image, offset): (&[u8], &dyn Fn(usize) -> usize),
    ) -> Result<Vec<u8>> {
        let state = loaded.state.clone();
        let stream = state.stream();
        // Values that share memory in the plan do not share it here.
        for (operand, result) in &self.steps[i].continued {
            let bytes = self.trace.block.values[*result].meta.bytes();
            memory.write(stream, offset(*result), &image[offset(*operand)..][..bytes])?;
        }
        // What a step has not written of the workspace is no number.
        let Range { start, end } = self.regions.workspace;
        if start < end {
            // SAFETY: the range is the program's own, and used on this stream alone.
            unsafe { stream.fill(loaded.own().offset(start as usize), POISON, (end - start) as usize) }?;
        }
        // SAFETY: the addresses are those of the image, where every value has a range of its own.
        unsafe { self.step(loaded, stream, i, addresses) }?;
        state.synchronize()?;
        if let Some(fault) = &loaded.fault {
            fault.check(stream)?;
        }
        let mut after: Vec<u8> = try_zeroed(image.len())?;
        memory.read(stream, 0, &mut after)?;
        Ok(after)
    }

    /// See [`crate::program::Program::run_checked`].
    pub(in crate::program) fn run_checked(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.check_inputs(&inputs)?;
        let mut held = self.hold()?;
        let loaded = held.get();
        let block = &self.trace.block;
        let layouts = layouts(&self.trace);
        // One image of all values, as it is on the device: guards, poison, inputs.
        let most = |bytes: usize| bytes.saturating_add(3 * GUARD_BYTES);
        let made = block.symbols.iter().flat_map(|symbol| &symbol.results).map(|id| most(block.meta(*id).bytes()));
        let given = inputs.iter().map(|array| match array.memory() {
            Memory::Host(buffer) => most(buffer.len()),
            Memory::Device(buffer) => most(buffer.len()),
        });
        let mut image: Vec<u8> = try_room(made.chain(given).fold(GUARD_BYTES, usize::saturating_add))?;
        image.resize(GUARD_BYTES, GUARD);
        let mut ranges: Vec<Option<std::ops::Range<usize>>> = vec![None; block.values.len()];
        // `first` is where the first element is in the payload. It has the alignment that kernels are promised, or
        // that of an element and no more.
        let mut place = |index: usize, payload: &[u8], first: usize, ranges: &mut Vec<_>| {
            let wanted = if self.least_aligned { block.values[index].meta.dtype().size() } else { 0 };
            let behind = (image.len() + first) % GUARD_BYTES;
            let start = image.len() + (wanted + GUARD_BYTES - behind) % GUARD_BYTES;
            image.resize(start, GUARD);
            image.extend_from_slice(payload);
            let end = image.len();
            image.resize((end + GUARD_BYTES).next_multiple_of(GUARD_BYTES), GUARD);
            ranges[index] = Some(start..end);
        };
        let mut starts = vec![0usize; block.values.len()];
        for (parameter, array) in block.parameters.iter().zip(&inputs) {
            let bytes = match array.memory() {
                Memory::Host(buffer) => try_copy(buffer.as_bytes())?,
                Memory::Device(buffer) => buffer.to_bytes()?,
            };
            place(parameter.index(), &bytes, array.byte_offset(), &mut ranges);
            starts[parameter.index()] = array.byte_offset();
        }
        for symbol in &block.symbols {
            for id in &symbol.results {
                let (index, root) = (id.index(), layouts[id.index()].root.index());
                if root == index {
                    // As far behind a multiple of the guards as in the plan: parts were promised what follows from it.
                    let behind = match self.placement.slots[index].base {
                        Base::Arena(start) if !self.least_aligned => start as usize % GUARD_BYTES,
                        _ => 0,
                    };
                    let first = (GUARD_BYTES - behind) % GUARD_BYTES;
                    place(index, Buffer::fenced(block.meta(*id).bytes())?.as_bytes(), first, &mut ranges);
                } else {
                    starts[index] = starts[root];
                }
            }
        }
        let state = loaded.state.clone();
        let stream = state.stream();
        let mut memory = state.allocate(image.len())?;
        // Dropped before the memory, also where a step fails.
        let _ended = Ended(&state);
        memory.write(stream, 0, &image)?;
        let range = |index: usize| ranges[layouts[index].root.index()].clone().unwrap_or(0..0);
        let offset =
            |index: usize| (range(index).start + starts[index]).wrapping_add_signed(self.placement.slots[index].offset);
        let addresses = Addresses {
            values: (0..block.values.len()).map(|index| memory.address().offset(offset(index))).collect(),
            workspaces: self.code.workspaces.map(|start| loaded.room.own.offset(start as usize)),
            fault: loaded.room.fault.unwrap_or_default(),
        };
        let mut owned: Vec<bool> = try_zeroed(image.len())?;
        ranges.iter().flatten().for_each(|range| owned[range.clone()].fill(true));
        loaded.code.step_together()?;
        loaded.room.begin(stream)?;
        for i in 0..self.steps.len() {
            let (step, work) = (&self.steps[i], &self.code.steps[i]);
            let after = self.run_on_image(loaded, i, &addresses, &mut memory, (&image, &offset))?;
            let problem = |code: &'static str, message: String| {
                block.symbols[step.symbol].failed(block, Failure::new(code, message))
            };
            let written: Vec<usize> = work.results.iter().map(|index| layouts[*index].root.index()).collect();
            for (value, range) in ranges.iter().enumerate() {
                let Some(range) = range else { continue };
                if !written.contains(&value) && after[range.clone()] != image[range.clone()] {
                    let name = &block.values[value].name;
                    return Err(problem(
                        "OperandChanged",
                        format!("the kernel changed '{name}', which is no result of it"),
                    ));
                }
            }
            if let Some(at) = (0..image.len()).find(|at| !owned[*at] && after[*at] != image[*at]) {
                let nearest = ranges.iter().enumerate().filter_map(|(value, range)| Some((value, range.clone()?)));
                let value = nearest.min_by_key(|(_, range)| at.abs_diff(range.end).min(at.abs_diff(range.start)));
                let name = value.map_or("a value", |(value, _)| &block.values[value].name);
                return Err(problem("OutOfBounds", format!("the kernel wrote past the end of '{name}'")));
            }
            for index in &work.results {
                // A part of a whole has its own elements alone to write.
                let slot = &self.placement.slots[*index];
                let (first, size) = (offset(*index), slot.meta.dtype().size());
                let elements = |of: &[u8]| -> Result<Vec<u8>> {
                    let mut bytes = try_room(slot.meta.bytes())?;
                    for_each_offset(slot.meta.shape(), &slot.strides, |element| {
                        bytes.extend_from_slice(&of[first.wrapping_add_signed(element * size as isize)..][..size]);
                    });
                    Ok(bytes)
                };
                if first_unwritten(&elements(&after)?, POISON, slot.meta.dtype()).is_none() {
                    continue;
                }
                // A negative NaN has the bytes of the filling, but not those of another one.
                let mut other = try_copy(&image)?;
                for byte in &mut other[range(*index)] {
                    *byte = if *byte == POISON { OTHER_POISON } else { *byte };
                }
                memory.write(stream, 0, &other)?;
                let again = self.run_on_image(loaded, i, &addresses, &mut memory, (&other, &offset))?;
                memory.write(stream, 0, &after)?;
                if let Some(element) = first_unwritten(&elements(&again)?, OTHER_POISON, slot.meta.dtype()) {
                    let name = &block.values[*index].name;
                    return Err(problem(
                        "Unwritten",
                        format!("the kernel left element {element} of '{name}' unwritten"),
                    ));
                }
            }
            image = after;
        }
        block
            .results
            .iter()
            .map(|id| {
                let slot = &self.placement.slots[id.index()];
                let root = range(id.index());
                let bytes = &image[root.clone()];
                let mut buffer = fulgurite_kernels::Buffer::uninitialized(bytes.len())?;
                buffer.as_bytes_mut().copy_from_slice(bytes);
                let first = (offset(id.index()) - root.start) / slot.meta.dtype().size().max(1);
                let meta = slot.meta.with_device(crate::meta::Device::CPU);
                Array::from_shared(std::sync::Arc::new(buffer), meta, slot.strides.clone(), first).to_contiguous()
            })
            .collect()
    }
}
