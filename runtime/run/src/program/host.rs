//! A planned trace made ready to run on the host: kernels prepared once, memory laid out, run as often as needed.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::view::{TensorMut, TensorRef};
use smallvec::SmallVec;

use super::placement::{Base, Placement};
use super::profile::SymbolTime;
use crate::argument::{Arg, map_arguments};
use crate::array::{Array, Memory};
use crate::device::host_time::counted;
use crate::error::{Error, Failure, Result};
use crate::executor::{HostKernel, JOIN, VIEW, find_executor, find_implementation};
use crate::host_kernel::of_rule;
use crate::operator::OperatorKind;
use crate::stream_kind::StreamKind;
use crate::strided::Strided;
use crate::trace::{BoundSymbol, Callee, Trace, ValueId};

mod checked;
mod gaps;

pub(super) use checked::first_unwritten;

struct Step {
    kernel: HostKernel,
    operands: Vec<usize>,
    results: Vec<usize>,
    /// The symbol of the trace.
    symbol: usize,
    /// Whether the plan gives a result the memory of an operand.
    in_place: bool,
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
                let rule = KernelRules::of(def).cpu.ok_or_else(|| missing(def.name))?;
                return Ok(of_rule(rule, &symbol.arguments));
            }
            if let Some(implementation) = find_implementation(def.name, name) {
                let rule = implementation.kernel.cpu.ok_or_else(|| missing(def.name))?;
                return Ok(of_rule(rule, &symbol.arguments));
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
            if matches!(symbol.executor, Some(VIEW | JOIN)) {
                continue;
            }
            let arguments = map_arguments(&symbol.arguments, strided);
            let results: Vec<Strided> = symbol.results.iter().map(strided).collect();
            let kernel = kernel_of(symbol, &arguments, &results).map_err(|failure| symbol.failed(block, failure))?;
            let base = |id: &ValueId| placement.slots[id.index()].base;
            let in_place = symbol.operands().any(|read| symbol.results.iter().any(|id| base(id) == base(&read)));
            steps.push(Step {
                kernel,
                in_place,
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
        counted(|spent| &mut spent.launching, || self.run_with(inputs, |step, bases| self.step(step, bases)))
    }

    /// Runs the program and says how long each symbol took: indices into the trace's symbols, in the order of the run.
    pub(super) fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
        let mut times = Vec::with_capacity(self.steps.len());
        let origin = Instant::now();
        let outputs = self.run_with(inputs, |step, bases| {
            let start = origin.elapsed();
            self.step(step, bases)?;
            let time = origin.elapsed() - start;
            times.push(SymbolTime { symbol: step.symbol, stream: StreamKind::Compute, start, time });
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
        let bases = self.bases(&inputs, &arena, |i| fresh[i].as_ptr())?;
        let mut begun = 0;
        let outcome = self.steps.iter().try_for_each(|step| {
            begun += 1;
            run(step, &bases)
        });
        if outcome.is_err() && self.steps[..begun].iter().any(|step| self.overwrites(step)) {
            super::overwritten::note_overwritten();
        }
        *self.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        outcome?;
        Ok(self.placement.collect(inputs, fresh.into_iter().map(|buffer| Memory::Host(Arc::new(buffer))).collect()))
    }

    /// Whether a step writes to the memory of a donated input.
    fn overwrites(&self, step: &Step) -> bool {
        step.results.iter().any(|i| matches!(self.placement.slots[*i].base, Base::Input(_)))
    }

    /// The first element of each value.
    fn bases(
        &self,
        inputs: &[Array],
        arena: &Buffer,
        output: impl Fn(usize) -> *mut u8,
    ) -> Result<SmallVec<[*mut u8; 16]>> {
        let mut bases: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(self.placement.slots.len());
        for slot in &self.placement.slots {
            let base = match slot.base {
                Base::Input(i) => inputs[i].buffer()?.as_ptr().wrapping_add(inputs[i].byte_offset()),
                Base::Arena(offset) => arena.as_ptr().wrapping_add(offset as usize),
                Base::Output(i) => output(i),
            };
            bases.push(base.wrapping_offset(slot.offset));
        }
        Ok(bases)
    }

    fn step(&self, step: &Step, bases: &[*mut u8]) -> Result<()> {
        // A kernel in place gets no slices of what it reads and writes: its author's code is safe whatever it does.
        // What has no elements shares none.
        let empty = |i: usize| self.placement.slots[i].meta.is_empty();
        let shared = |a: usize, b: usize| bases[a] == bases[b] && !empty(a) && !empty(b);
        let overlapped = |i: usize, others: &[usize]| step.in_place && others.iter().any(|other| shared(i, *other));
        let operands: SmallVec<[TensorRef<'_>; 8]> = step
            .operands
            .iter()
            .map(|i| {
                let slot = &self.placement.slots[*i];
                let (dtype, shape, strides) = (slot.meta.dtype(), slot.meta.shape(), &slot.strides);
                // SAFETY: the plan, which is the transform's own or was verified, keeps the value's memory alive and
                // unwritten while this step runs (or exactly that of a result, as both are told), and layouts stay
                // within their roots. Inputs are as `check_inputs` wants them.
                unsafe {
                    match overlapped(*i, &step.results) {
                        true => TensorRef::overlapped(dtype, shape, strides, bases[*i]),
                        false => TensorRef::new(dtype, shape, strides, bases[*i]),
                    }
                }
            })
            .collect();
        let mut results: SmallVec<[TensorMut<'_>; 4]> = step
            .results
            .iter()
            .map(|i| {
                let slot = &self.placement.slots[*i];
                let (dtype, shape, strides) = (slot.meta.dtype(), slot.meta.shape(), &slot.strides);
                // SAFETY: as above; results are in memory that no other living value has.
                unsafe {
                    match overlapped(*i, &step.operands) {
                        true => TensorMut::overlapped(dtype, shape, strides, bases[*i]),
                        false => TensorMut::new(dtype, shape, strides, bases[*i]),
                    }
                }
            })
            .collect();
        // A panic (a building block that was given what it cannot take, an index out of bounds) is that operator's
        // error. What it leaves behind is memory of numbers, which nobody reads after an error.
        Failure::caught("the kernel", || (step.kernel)(&operands, &mut results))
            .flatten()
            .map_err(|failure| self.failed(step, failure))
    }

    fn failed(&self, step: &Step, failure: Failure) -> Error {
        let symbol = &self.trace.block.symbols[step.symbol];
        symbol.failed(&self.trace.block, failure)
    }
}
