//! A planned trace made ready to run on the host: kernels prepared once, memory laid out, run as often as needed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fulgurite_kernels::buffer::POISON;
use fulgurite_kernels::view::{TensorMut, TensorRef};
use fulgurite_kernels::{Buffer, DType};
use smallvec::SmallVec;

use super::SymbolTime;
use super::placement::{Base, Placement};
use crate::argument::{Arg, map_arguments};
use crate::array::{Array, Memory};
use crate::error::{Error, Failure, Result};
use crate::executor::{HostKernel, Strided, VIEW, find_executor, find_implementation};
use crate::operator::{HostRule, OperatorKind};
use crate::trace::{BoundSymbol, Callee, Trace, ValueId};
use crate::transforms::layout::layouts;

mod gaps;

struct Step {
    kernel: HostKernel,
    operands: Vec<usize>,
    results: Vec<usize>,
    /// The symbol of the trace.
    symbol: usize,
}

/// A program ready to run on the host.
pub(super) struct HostProgram {
    trace: Arc<Trace>,
    placement: Placement,
    steps: Vec<Step>,
    arena_bytes: usize,
    /// The arena of the last run, kept for the next one.
    arena: Mutex<Option<Buffer>>,
}

fn wrap_rule(rule: HostRule, arguments: &[Arg<ValueId>]) -> HostKernel {
    // The form of the arguments is fixed; only the tensors change from run to run.
    let form: Vec<Arg<()>> = map_arguments(arguments, |_| ());
    Box::new(move |operands, results| {
        let mut operands = operands.iter();
        let arguments: Vec<Arg<TensorRef<'_>>> =
            map_arguments(&form, |()| *operands.next().unwrap_or_else(|| unreachable!("one for each tensor")));
        rule(&arguments, results)
    })
}

fn kernel_of(symbol: &BoundSymbol, arguments: &[Arg<Strided>], results: &[Strided]) -> Result<HostKernel, Failure> {
    let missing = |what: &str| Failure::new("NoKernel", format!("{what} has no host kernel"));
    let operands: Vec<Strided> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
    match (&symbol.callee, symbol.executor) {
        (Callee::Region { executor }, _) => {
            let executor =
                find_executor(executor).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            let prepare = executor.prepare_region.ok_or_else(|| missing(executor.name))?;
            let body = symbol.body.as_ref().ok_or_else(|| Failure::new("NoBody", "the region has no body"))?;
            prepare(body, &operands, results)
        }
        (Callee::Operator(def), Some(name)) => {
            if let OperatorKind::Symbol(_) = def.kind {
                let rule = def.cpu.ok_or_else(|| missing(def.name))?;
                return Ok(wrap_rule(rule, &symbol.arguments));
            }
            if let Some(implementation) = find_implementation(def.name, name) {
                let rule = implementation.cpu.ok_or_else(|| missing(def.name))?;
                return Ok(wrap_rule(rule, &symbol.arguments));
            }
            let executor = find_executor(name).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            let prepare = executor.prepare.ok_or_else(|| missing(def.name))?;
            prepare(def, arguments, results)
        }
        _ => Err(Failure::new("Unclaimed", format!("'{}' was not claimed by an executor", symbol.name()))),
    }
}

impl HostProgram {
    /// Prepares the kernels of a planned trace.
    pub(super) fn new(trace: Arc<Trace>, placement: Placement) -> Result<HostProgram> {
        let block = &trace.block;
        let strided = |id: &ValueId| Strided {
            meta: block.meta(*id).clone(),
            strides: placement.slots[id.index()].strides.to_vec(),
        };
        let mut steps: Vec<Step> = Vec::with_capacity(block.symbols.len());
        for (index, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee == Callee::Delete {
                continue;
            }
            if symbol.executor == Some(VIEW) {
                continue;
            }
            let arguments = map_arguments(&symbol.arguments, strided);
            let results: Vec<Strided> = symbol.results.iter().map(strided).collect();
            let kernel = kernel_of(symbol, &arguments, &results).map_err(|failure| symbol.failed(block, failure))?;
            steps.push(Step {
                kernel,
                operands: symbol.operands().map(ValueId::index).collect(),
                results: symbol.results.iter().map(|id| id.index()).collect(),
                symbol: index,
            });
        }
        let arena_bytes = usize::try_from(trace.arena.unwrap_or(0)).unwrap_or(usize::MAX);
        Ok(HostProgram { placement, steps, arena_bytes, arena: Mutex::new(None), trace })
    }

    /// Runs the program. Donated inputs that are updated in place must not be shared.
    pub(super) fn run(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.run_with(inputs, |step, bases| self.step(step, bases))
    }

    /// Runs the program and says how long each symbol took: indices into the trace's symbols, in the order of the run.
    pub(super) fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
        let mut times = Vec::with_capacity(self.steps.len());
        let outputs = self.run_with(inputs, |step, bases| {
            let start = Instant::now();
            self.step(step, bases)?;
            times.push((step.symbol, start.elapsed()));
            Ok(())
        })?;
        Ok((outputs, times))
    }

    fn run_with(&self, inputs: Vec<Array>, mut run: impl FnMut(&Step, &[*mut u8]) -> Result<()>) -> Result<Vec<Array>> {
        self.placement.check_inputs(&self.trace, &inputs)?;
        let arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner).take();
        let arena = match arena {
            Some(arena) => arena,
            None => Buffer::uninitialized(self.arena_bytes)?,
        };
        let fresh = self
            .placement
            .fresh
            .iter()
            .map(|meta| Buffer::uninitialized(meta.bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut bases: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(self.placement.slots.len());
        for slot in &self.placement.slots {
            let base = match slot.base {
                Base::Input(i) => inputs[i].buffer()?.as_ptr().wrapping_add(inputs[i].byte_offset()),
                Base::Arena(offset) => arena.as_ptr().wrapping_add(offset as usize),
                Base::Output(i) => fresh[i].as_ptr(),
            };
            bases.push(base.wrapping_offset(slot.offset));
        }
        let outcome = self.steps.iter().try_for_each(|step| run(step, &bases));
        *self.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        outcome?;
        Ok(self.placement.collect(inputs, fresh.into_iter().map(|buffer| Memory::Host(Arc::new(buffer))).collect()))
    }

    fn step(&self, step: &Step, bases: &[*mut u8]) -> Result<()> {
        let operands: SmallVec<[TensorRef<'_>; 8]> = step
            .operands
            .iter()
            .map(|i| {
                let slot = &self.placement.slots[*i];
                // SAFETY: the plan, which is the transform's own or was verified, keeps the value's memory alive and unwritten
                // while this step runs (or exactly aliased with a result of an in-place kernel), and layouts stay within
                // their roots. Inputs are as `check_inputs` wants them.
                unsafe { TensorRef::new(slot.meta.dtype(), slot.meta.shape(), &slot.strides, bases[*i]) }
            })
            .collect();
        let mut results: SmallVec<[TensorMut<'_>; 4]> = step
            .results
            .iter()
            .map(|i| {
                let slot = &self.placement.slots[*i];
                // SAFETY: as above; the plan gives a result memory that no other living value has.
                unsafe { TensorMut::new(slot.meta.dtype(), slot.meta.shape(), &slot.strides, bases[*i]) }
            })
            .collect();
        (step.kernel)(&operands, &mut results).map_err(|failure| self.failed(step, failure))
    }

    fn failed(&self, step: &Step, failure: Failure) -> Error {
        let symbol = &self.trace.block.symbols[step.symbol];
        symbol.failed(&self.trace.block, failure)
    }

    /// Runs the program with every value in memory of its own between guard bytes, filled with NaN beforehand. An error if
    /// a kernel leaves part of a result unwritten (it stays NaN for the caller to see), writes past the end of a
    /// result, or changes an operand; or if a kernel that takes any strides writes something else, or elsewhere, to results with
    /// gaps between their elements.
    pub(super) fn run_checked(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
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
                    roots[index] = roots[root].clone();
                    bases[index] = bases[root].wrapping_offset(self.placement.slots[index].offset);
                } else {
                    let buffer = Arc::new(Buffer::fenced(self.placement.slots[index].meta.bytes())?);
                    bases[index] = buffer.as_ptr();
                    roots[index] = Some(buffer);
                }
            }
            if symbol.executor == Some(VIEW) {
                continue;
            }
            let Some(step) = steps.next() else { break };
            let before: Vec<Vec<u8>> = step
                .operands
                .iter()
                .map(|i| roots[*i].as_ref().map_or_else(Vec::new, |b| b.as_bytes().to_vec()))
                .collect();
            self.step(step, &bases)?;
            for (i, before) in step.operands.iter().zip(before) {
                if roots[*i].as_ref().is_some_and(|buffer| buffer.as_bytes() != before) {
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
                let unwritten =
                    roots[*i].as_ref().and_then(|buffer| first_unwritten(buffer.as_bytes(), slot.meta.dtype()));
                if let Some(element) = unwritten {
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
}

/// The first element that still has the poison's bits. No kernel computes this NaN, this integer (-1 as an index or count
/// does not come out of the samples' operators by chance in every byte) or this boolean.
pub(super) fn first_unwritten(bytes: &[u8], dtype: DType) -> Option<usize> {
    if !(dtype.is_floating() || dtype == DType::Bool) {
        return None;
    }
    bytes.chunks_exact(dtype.size()).position(|element| element.iter().all(|byte| *byte == POISON))
}
