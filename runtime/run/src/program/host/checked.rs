//! Runs for tests: in fenced memory that is filled with NaN, either with every value in memory of its own, or as
//! planned.

use std::ops::Range;
use std::sync::Arc;

use fulgurite_kernels::access::for_each_offset;
use fulgurite_kernels::buffer::{OutOfMemory, POISON};
use fulgurite_kernels::scratch::{try_copy, try_room};
use fulgurite_kernels::view::is_contiguous;
use fulgurite_kernels::{Buffer, DType};

use super::{HostProgram, Step};
use crate::array::{Array, Memory, Strides};
use crate::error::{Failure, Result};
use crate::executor::{JOIN, VIEW};
use crate::program::placement::{Base, Slot};
use crate::trace::{BoundSymbol, Callee};
use crate::transforms::layout::{Layout, layouts};

impl HostProgram {
    /// Runs the program with every value in memory of its own between guard bytes, filled with NaN beforehand. An error
    /// if a kernel leaves part of a result unwritten (it stays NaN for the caller to see), writes past the end of a
    /// result, or changes an operand; or if a kernel that takes any strides writes something else, or elsewhere, to
    /// results with gaps between their elements.
    pub(in crate::program) fn run_checked(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.placement.check_inputs(&self.trace, &inputs)?;
        // Roots of everything: inputs are copied with their layout, results get fenced memory.
        let mut roots: Vec<Option<Arc<Buffer>>> = vec![None; self.placement.slots.len()];
        let layouts = layouts(&self.trace);
        let mut input_bases = Vec::with_capacity(inputs.len());
        for array in &inputs {
            let mut copy = Buffer::fenced(array.buffer()?.len())?;
            copy.as_bytes_mut().copy_from_slice(array.buffer()?.as_bytes());
            input_bases.push(Arc::new(copy));
        }
        for (i, parameter) in self.trace.block.parameters.iter().enumerate() {
            roots[parameter.index()] = Some(input_bases[i].clone());
        }
        let mut bases: Vec<*mut u8> = vec![std::ptr::null_mut(); self.placement.slots.len()];
        for (i, parameter) in self.trace.block.parameters.iter().enumerate() {
            bases[parameter.index()] = input_bases[i].as_ptr().wrapping_add(inputs[i].byte_offset());
        }
        let mut steps = self.steps.iter();
        for symbol in &self.trace.block.symbols {
            if symbol.callee == Callee::Delete {
                continue;
            }
            for id in &symbol.results {
                let (index, root) = (id.index(), layouts[id.index()].root.index());
                if root != index {
                    // The memory of a whole is made for the first of its parts.
                    if roots[root].is_none() {
                        let buffer = Arc::new(Buffer::fenced(self.placement.slots[root].meta.bytes())?);
                        bases[root] = buffer.as_ptr();
                        roots[root] = Some(buffer);
                    }
                    roots[index] = roots[root].clone();
                    bases[index] = bases[root].wrapping_offset(self.placement.slots[index].offset);
                } else if symbol.executor != Some(JOIN) {
                    let buffer = Arc::new(Buffer::fenced(self.placement.slots[index].meta.bytes())?);
                    bases[index] = buffer.as_ptr();
                    roots[index] = Some(buffer);
                }
            }
            if matches!(symbol.executor, Some(VIEW | JOIN)) {
                continue;
            }
            let Some(step) = steps.next() else { break };
            let copy = |i: &usize| roots[*i].as_ref().map_or(Ok(Vec::new()), |buffer| try_copy(buffer.as_bytes()));
            let before = step.operands.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
            self.step(step, &bases)?;
            // An operand may be one part of a whole, and a result another.
            let of = |i: &usize| pieces(&self.placement.slots[*i], bases[*i]);
            let results: Vec<Range<usize>> = step.results.iter().flat_map(of).collect();
            for (i, before) in step.operands.iter().zip(before) {
                if roots[*i].as_ref().is_some_and(|buffer| changed(buffer, &before, &results).is_some()) {
                    let name = &self.trace.block.values[*i].name;
                    return Err(self.failed(
                        step,
                        Failure::new("OperandChanged", format!("the kernel changed its operand '{name}'")),
                    ));
                }
            }
            for i in step.operands.iter().chain(&step.results) {
                if roots[*i].as_ref().is_some_and(|buffer| !buffer.guards_intact()) {
                    let name = &self.trace.block.values[*i].name;
                    return Err(self.failed(
                        step,
                        Failure::new("OutOfBounds", format!("the kernel wrote past the end of '{name}'")),
                    ));
                }
            }
            for i in &step.results {
                let slot = &self.placement.slots[*i];
                // SAFETY: the buffer of the value's root is alive, and nobody writes to it meanwhile.
                let written = unsafe { elements(slot, bases[*i]) }?;
                if let Some(element) = first_unwritten(&written, POISON, slot.meta.dtype()) {
                    let name = &self.trace.block.values[*i].name;
                    return Err(self.failed(
                        step,
                        Failure::new("Unwritten", format!("the kernel left element {element} of '{name}' unwritten")),
                    ));
                }
            }
            self.check_gaps(step, &bases)?;
        }
        let block = &self.trace.block;
        block
            .results
            .iter()
            .map(|id| {
                let slot = &self.placement.slots[id.index()];
                let buffer = roots[id.index()].clone().unwrap_or_else(|| unreachable!("every value has memory"));
                let offset = (bases[id.index()] as usize - buffer.as_ptr() as usize) / slot.meta.dtype().size().max(1);
                Array::from_shared(buffer, slot.meta.clone(), slot.strides.clone(), offset).to_contiguous()
            })
            .collect()
    }

    /// Runs the program with every value where the plan has it. The memory is fenced and filled with NaN; so is what a
    /// value leaves behind when it was read for the last time, so that a plan which gives memory away too early shows.
    /// An error if a kernel writes to anything but its results, or leaves part of a result unwritten.
    pub(in crate::program) fn run_planned(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.placement.check_inputs(&self.trace, &inputs)?;
        let mut memory = Planned::new(self, &inputs)?;
        let mut steps = self.steps.iter();
        for (line, symbol) in self.trace.block.symbols.iter().enumerate() {
            let step = match matches!(symbol.executor, Some(VIEW | JOIN)) || symbol.callee == Callee::Delete {
                true => None,
                false => steps.next(),
            };
            if let Some(step) = step {
                memory.poison_results(self, step);
                let before = memory.contents()?;
                self.step(step, &memory.bases)?;
                memory.check(self, step, &before)?;
            }
            memory.poison_the_dead(line, symbol);
        }
        let fresh = memory.outputs.into_iter().map(Memory::Host).collect();
        Ok(self.placement.collect(memory.inputs, fresh))
    }
}

/// The memory of a run as planned.
struct Planned {
    inputs: Vec<Array>,
    outputs: Vec<Arc<Buffer>>,
    arena: Buffer,
    /// The first element of each value.
    bases: Vec<*mut u8>,
    layouts: Vec<Layout>,
    /// For each value the last line that reads it or a view of it; `None` if it is needed to the end.
    last: Vec<Option<usize>>,
    /// The bytes of living values whose elements are their own, and whose these are.
    living: Vec<(Range<usize>, usize)>,
}

impl Planned {
    fn new(program: &HostProgram, inputs: &[Array]) -> Result<Planned> {
        let copied = |array: &Array| {
            let mut copy = Buffer::fenced(array.buffer()?.len())?;
            copy.as_bytes_mut().copy_from_slice(array.buffer()?.as_bytes());
            let offset = array.byte_offset() / array.dtype().size().max(1);
            Ok(Array::from_shared(Arc::new(copy), array.meta().clone(), Strides::from_slice(array.strides()), offset))
        };
        let inputs: Vec<Array> = inputs.iter().map(copied).collect::<Result<_>>()?;
        let outputs: Vec<Arc<Buffer>> = (program.placement.fresh.iter())
            .map(|meta| Ok(Arc::new(Buffer::fenced(meta.bytes())?)))
            .collect::<Result<_>>()?;
        let arena = Buffer::fenced(program.arena_bytes)?;
        let bases = program.bases(&inputs, &arena, |i| outputs[i].as_ptr())?;
        let block = &program.trace.block;
        let layouts = layouts(&program.trace);
        let mut last: Vec<Option<usize>> = vec![Some(0); block.values.len()];
        for (line, symbol) in block.symbols.iter().enumerate() {
            let read = symbol.operands().filter(|_| symbol.callee != Callee::Delete);
            for id in read.chain(symbol.results.iter().copied()) {
                last[layouts[id.index()].root.index()] = Some(line);
            }
        }
        block.results.iter().for_each(|id| last[layouts[id.index()].root.index()] = None);
        Ok(Planned { inputs, outputs, arena, bases: bases.to_vec(), layouts, last, living: Vec::new() })
    }

    fn range(&self, program: &HostProgram, value: usize) -> Range<usize> {
        let start = self.bases[value] as usize;
        start..start + program.placement.slots[value].meta.bytes()
    }

    /// Fills what a step is going to write, unless it reads some of it.
    fn poison_results(&mut self, program: &HostProgram, step: &Step) {
        let read: Vec<usize> = step.operands.iter().map(|i| self.layouts[*i].root.index()).collect();
        for result in &step.results {
            let range = self.range(program, *result);
            let reads = self.living.iter().any(|(own, value)| read.contains(value) && overlap(own, &range));
            let input = matches!(program.placement.slots[*result].base, Base::Input(_));
            let whole = self.layouts[*result].root.index();
            if whole != *result {
                // The other parts stay as they are.
                pieces(&program.placement.slots[*result], self.bases[*result]).iter().for_each(fill);
                if self.living.iter().all(|(_, value)| *value != whole) {
                    self.living.push((self.range(program, whole), whole));
                }
                continue;
            }
            if !reads && !input {
                fill(&range);
            }
            self.living.push((range, *result));
        }
    }

    /// Fills what the values leave behind that were read for the last time in this line.
    fn poison_the_dead(&mut self, line: usize, symbol: &BoundSymbol) {
        let mut ended: Vec<usize> = symbol.operands().map(|id| self.layouts[id.index()].root.index()).collect();
        ended.extend(symbol.results.iter().map(|id| id.index()));
        ended.retain(|value| self.last[*value] == Some(line));
        let (dead, living): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.living).into_iter().partition(|(_, value)| ended.contains(value));
        for (range, _) in dead {
            if !living.iter().any(|(own, _)| overlap(own, &range)) {
                fill(&range);
            }
        }
        self.living = living;
    }

    fn buffers(&self) -> Vec<&Buffer> {
        let inputs = self.inputs.iter().filter_map(|array| array.buffer().ok());
        inputs.chain(&self.outputs).map(|buffer| &**buffer).chain([&self.arena]).collect()
    }

    fn contents(&self) -> Result<Vec<Vec<u8>>, OutOfMemory> {
        self.buffers().into_iter().map(|buffer| try_copy(buffer.as_bytes())).collect()
    }

    /// That a step changed nothing but its results, and all of these.
    fn check(&self, program: &HostProgram, step: &Step, before: &[Vec<u8>]) -> Result<()> {
        let named = |value: usize| program.trace.block.values[value].name.clone();
        let problem = |code, message| Err(program.failed(step, Failure::new(code, message)));
        let of = |i: &usize| pieces(&program.placement.slots[*i], self.bases[*i]);
        let results: Vec<Range<usize>> = step.results.iter().flat_map(of).collect();
        for (buffer, before) in self.buffers().into_iter().zip(before) {
            if !buffer.guards_intact() {
                return problem("OutOfBounds", "the kernel wrote past the end of the planned memory".to_owned());
            }
            if let Some(at) = changed(buffer, before, &results) {
                let owner = self.living.iter().find(|(range, _)| range.contains(&at));
                let whose = owner.map_or("memory that nobody has".into(), |(_, value)| format!("'{}'", named(*value)));
                return problem("OperandChanged", format!("the kernel changed {whose}, which is no result of it"));
            }
        }
        for i in &step.results {
            let slot = &program.placement.slots[*i];
            // SAFETY: the elements are the value's own memory, which nobody writes to meanwhile.
            let bytes = unsafe { elements(slot, self.bases[*i]) }?;
            if let Some(element) = first_unwritten(&bytes, POISON, slot.meta.dtype()) {
                return problem("Unwritten", format!("the kernel left element {element} of '{}' unwritten", named(*i)));
            }
        }
        Ok(())
    }
}

/// The first byte of a buffer that is another than before, and in none of the results.
fn changed(buffer: &Buffer, before: &[u8], results: &[Range<usize>]) -> Option<usize> {
    let start = buffer.as_ptr() as usize;
    let changed = (start..).zip(buffer.as_bytes().iter().zip(before)).filter(|(_, (now, then))| now != then);
    changed.map(|(at, _)| at).find(|at| !results.iter().any(|range| range.contains(at)))
}

/// The bytes of a value's elements in memory: one range if they are contiguous.
fn pieces(slot: &Slot, base: *mut u8) -> Vec<Range<usize>> {
    let (start, size) = (base as usize, slot.meta.dtype().size());
    if is_contiguous(slot.meta.shape(), &slot.strides) {
        return std::iter::once(start..start + slot.meta.bytes()).collect();
    }
    let mut pieces: Vec<Range<usize>> = Vec::new();
    for_each_offset(slot.meta.shape(), &slot.strides, |offset| {
        let at = start.wrapping_add_signed(offset * size as isize);
        match pieces.last_mut() {
            Some(last) if last.end == at => last.end += size,
            _ => pieces.push(at..at + size),
        }
    });
    pieces
}

/// The elements of a value, one after another.
///
/// # Safety
/// They are in memory that is alive and that nobody writes to.
unsafe fn elements(slot: &Slot, base: *mut u8) -> Result<Vec<u8>, OutOfMemory> {
    base.expose_provenance();
    let mut elements = try_room(slot.meta.bytes())?;
    for range in pieces(slot, base) {
        let start = std::ptr::with_exposed_provenance::<u8>(range.start);
        // SAFETY: as the caller promises.
        elements.extend_from_slice(unsafe { std::slice::from_raw_parts(start, range.len()) });
    }
    Ok(elements)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn fill(range: &Range<usize>) {
    // SAFETY: ranges are those of values, which are in the buffers of the run, and nobody else has these.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(range.start).write_bytes(POISON, range.len()) };
}

/// The first element whose bytes are all still those of the filling. On the host no kernel computes the NaN that the
/// poison is; integers are not looked at, of which -1 has the same bytes.
pub(in crate::program) fn first_unwritten(bytes: &[u8], filling: u8, dtype: DType) -> Option<usize> {
    if !(dtype.is_floating() || dtype == DType::Bool) {
        return None;
    }
    bytes.chunks_exact(dtype.size()).position(|element| element.iter().all(|byte| *byte == filling))
}
