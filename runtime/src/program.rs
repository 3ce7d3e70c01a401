//! A planned trace made ready to run on the host: kernels prepared once, memory laid out, run as often as needed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fulgurite_kernels::buffer::POISON;
use fulgurite_kernels::view::{TensorMut, TensorRef};
use fulgurite_kernels::{Buffer, DType};
use smallvec::SmallVec;

use crate::argument::{Arg, map_arguments};
use crate::array::{Array, Strides};
use crate::error::{CallStack, Error, Failure, Result};
use crate::executor::{HostKernel, Strided, VIEW, find_executor, find_implementation};
use crate::meta::TensorMeta;
use crate::operator::{HostRule, OperatorKind};
use crate::trace::{BoundSymbol, Callee, Storage, Trace, ValueId, print_symbol};
use crate::transforms::layout::{Layout, layouts};
use crate::transforms::plan::{MemoryUse, memory_use};

/// Where a value's root memory is found when the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Input(usize),
    Arena(u64),
    Output(usize),
}

struct Slot {
    base: Base,
    /// In bytes, from the base.
    offset: isize,
    meta: TensorMeta,
    strides: Strides,
}

struct Step {
    kernel: HostKernel,
    operands: Vec<usize>,
    results: Vec<usize>,
    /// The symbol of the trace.
    symbol: usize,
}

/// Where an output comes from.
enum Source {
    /// Fresh memory.
    Fresh(TensorMeta),
    /// The memory of a donated input, updated in place.
    Donated(usize),
    /// An input, as it came.
    Passed(usize),
    /// The same as an earlier output.
    Same(usize),
}

/// A program ready to run.
pub struct Program {
    trace: Trace,
    slots: Vec<Slot>,
    steps: Vec<Step>,
    outputs: Vec<Source>,
    /// Inputs whose memory a kernel writes to.
    overwritten: Vec<usize>,
    /// Memory of outputs made fresh: one for each `Base::Output`.
    fresh: Vec<TensorMeta>,
    arena_bytes: usize,
    /// The arena of the last run, kept for the next one.
    arena: Mutex<Option<Buffer>>,
    memory: MemoryUse,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({}, {} steps)", self.trace.name, self.steps.len())
    }
}

/// Index of a symbol of the trace, and how long it took.
pub type SymbolTime = (usize, Duration);

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

impl Program {
    /// Prepares a planned trace (every symbol claimed, every value placed). Fails if its peak is above `limit` bytes.
    pub fn new(trace: Trace, limit: Option<u64>) -> Result<Program> {
        let memory = memory_use(&trace);
        if let Some(limit) = limit.filter(|limit| memory.peak() > *limit) {
            return Err(Error::PlanTooLarge {
                predicted: memory.peak(),
                resident: memory.inputs + memory.outputs,
                transient: memory.transient,
                limit,
            });
        }
        let block = &trace.block;
        let layouts: Vec<Layout> = layouts(&trace);
        let mut bases: Vec<Option<Base>> = vec![None; block.values.len()];
        for (i, parameter) in block.parameters.iter().enumerate() {
            bases[parameter.index()] = Some(Base::Input(i));
        }
        let mut fresh = Vec::new();
        let mut donated: Vec<Option<usize>> = vec![None; block.values.len()];
        let not_planned = |symbol: &BoundSymbol| Error::Verify {
            transform: "plan_memory".into(),
            line: symbol.name().into(),
            message: "a result has no storage; run the memory plan first".into(),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        };
        for symbol in &block.symbols {
            for id in &symbol.results {
                bases[id.index()] = match block.value(*id).storage {
                    Some(Storage::Arena(offset)) => Some(Base::Arena(offset)),
                    Some(Storage::Output) => {
                        fresh.push(block.meta(*id).clone());
                        Some(Base::Output(fresh.len() - 1))
                    }
                    Some(Storage::Shared(root)) => {
                        let base = bases.get(root.index()).copied().flatten();
                        if let (Some(Base::Input(input)), false) = (base, symbol.executor == Some(VIEW)) {
                            donated[id.index()] = Some(input);
                        }
                        bases.get(root.index()).copied().flatten()
                    }
                    None => None,
                };
                if bases[id.index()].is_none() {
                    return Err(not_planned(symbol));
                }
            }
        }
        let slots: Vec<Slot> = (0..block.values.len())
            .map(|i| {
                let meta = block.values[i].meta.clone();
                Slot {
                    base: bases[i].unwrap_or(Base::Arena(0)),
                    offset: layouts[i].offset * meta.dtype().size() as isize,
                    meta,
                    strides: layouts[i].strides.clone(),
                }
            })
            .collect();
        let strided =
            |id: &ValueId| Strided { meta: block.meta(*id).clone(), strides: layouts[id.index()].strides.to_vec() };
        let mut steps: Vec<Step> = Vec::with_capacity(block.symbols.len());
        for (index, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee == Callee::Delete {
                continue;
            }
            if symbol.executor == Some(VIEW) {
                continue;
            }
            let line = || print_symbol(block, symbol);
            let arguments = map_arguments(&symbol.arguments, strided);
            let results: Vec<Strided> = symbol.results.iter().map(strided).collect();
            let kernel = kernel_of(symbol, &arguments, &results).map_err(|failure| Error::Run {
                operator: symbol.name().into(),
                failure,
                line: line(),
                stack: CallStack { at: symbol.place, frames: Vec::new() },
            })?;
            steps.push(Step {
                kernel,
                operands: symbol.operands().map(ValueId::index).collect(),
                results: symbol.results.iter().map(|id| id.index()).collect(),
                symbol: index,
            });
        }
        let mut outputs: Vec<Source> = Vec::with_capacity(block.results.len());
        for (i, id) in block.results.iter().enumerate() {
            let earlier = block.results[..i].iter().position(|other| other == id);
            outputs.push(match (earlier, donated[id.index()], bases[id.index()]) {
                (_, None, Some(Base::Input(input))) => Source::Passed(input),
                (Some(earlier), _, _) => Source::Same(earlier),
                (None, Some(input), _) => Source::Donated(input),
                (None, None, Some(Base::Output(_))) => Source::Fresh(block.meta(*id).clone()),
                _ => {
                    return Err(Error::Verify {
                        transform: "plan_memory".into(),
                        line: block.value(*id).name.to_string(),
                        message: "an output has no memory of its own".into(),
                        stack: CallStack::default(),
                    });
                }
            });
        }
        let arena_bytes = usize::try_from(trace.arena.unwrap_or(0)).unwrap_or(usize::MAX);
        let overwritten = donated.iter().flatten().copied().collect();
        Ok(Program { slots, steps, outputs, overwritten, fresh, arena_bytes, arena: Mutex::new(None), memory, trace })
    }

    /// The trace that is run.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What the plan predicts.
    pub fn memory(&self) -> MemoryUse {
        self.memory
    }

    /// Runs the program. Donated inputs that are updated in place must not be shared.
    pub fn run(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.run_with(inputs, |step, bases| self.step(step, bases))
    }

    /// Runs the program and says how long each symbol took: indices into the trace's symbols, in the order of the run.
    pub fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
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
        self.check_inputs(&inputs)?;
        let arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner).take();
        let arena = match arena {
            Some(arena) => arena,
            None => Buffer::uninitialized(self.arena_bytes)?,
        };
        let fresh = self.fresh.iter().map(|meta| Buffer::uninitialized(meta.bytes())).collect::<Result<Vec<_>, _>>()?;
        let mut bases: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let base = match slot.base {
                Base::Input(i) => inputs[i].buffer().as_ptr().wrapping_add(inputs[i].byte_offset()),
                Base::Arena(offset) => arena.as_ptr().wrapping_add(offset as usize),
                Base::Output(i) => fresh[i].as_ptr(),
            };
            bases.push(base.wrapping_offset(slot.offset));
        }
        let outcome = self.steps.iter().try_for_each(|step| run(step, &bases));
        *self.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        outcome?;
        Ok(self.collect(inputs, fresh))
    }

    fn step(&self, step: &Step, bases: &[*mut u8]) -> Result<()> {
        let operands: SmallVec<[TensorRef<'_>; 8]> = step
            .operands
            .iter()
            .map(|i| {
                let slot = &self.slots[*i];
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
                let slot = &self.slots[*i];
                // SAFETY: as above; the plan gives a result memory that no other living value has.
                unsafe { TensorMut::new(slot.meta.dtype(), slot.meta.shape(), &slot.strides, bases[*i]) }
            })
            .collect();
        (step.kernel)(&operands, &mut results).map_err(|failure| self.failed(step, failure))
    }

    fn failed(&self, step: &Step, failure: Failure) -> Error {
        let symbol = &self.trace.block.symbols[step.symbol];
        Error::Run {
            operator: symbol.name().to_owned(),
            failure,
            line: print_symbol(&self.trace.block, symbol),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        }
    }

    fn collect(&self, inputs: Vec<Array>, fresh: Vec<Buffer>) -> Vec<Array> {
        let mut inputs: Vec<Option<Array>> = inputs.into_iter().map(Some).collect();
        let passed: Vec<Option<Array>> = self
            .outputs
            .iter()
            .map(|source| match source {
                Source::Passed(i) => inputs[*i].clone(),
                _ => None,
            })
            .collect();
        let mut fresh = fresh.into_iter();
        let mut outputs: Vec<Array> = Vec::with_capacity(self.outputs.len());
        let mut made: Vec<Option<Buffer>> = Vec::new();
        // Fresh buffers were made in the order of their symbols; outputs may come in another order.
        let mut by_output: Vec<Option<usize>> = Vec::new();
        for (id, source) in self.trace.block.results.iter().zip(&self.outputs) {
            by_output.push(match (source, self.slots[id.index()].base) {
                (Source::Fresh(_), Base::Output(i)) => Some(i),
                _ => None,
            });
        }
        made.extend(fresh.by_ref().map(Some));
        for ((source, passed), index) in self.outputs.iter().zip(passed).zip(by_output) {
            let array = match source {
                Source::Fresh(meta) => {
                    let buffer =
                        index.and_then(|i| made[i].take()).unwrap_or_else(|| unreachable!("made once, taken once"));
                    Array::from_buffer(buffer, meta.clone())
                }
                Source::Donated(i) => {
                    let input = inputs[*i].take().unwrap_or_else(|| unreachable!("an input is donated to one output"));
                    let (meta, strides, offset) = (
                        input.meta().clone(),
                        Strides::from_slice(input.strides()),
                        input.byte_offset() / input.dtype().size(),
                    );
                    Array::from_shared(input.into_buffer(), meta, strides, offset)
                }
                Source::Passed(_) => passed.unwrap_or_else(|| unreachable!("cloned above")),
                Source::Same(earlier) => outputs[*earlier].clone(),
            };
            outputs.push(array);
        }
        outputs
    }

    fn check_inputs(&self, inputs: &[Array]) -> Result<()> {
        let block = &self.trace.block;
        if inputs.len() != block.parameters.len() {
            return Err(Error::Argument {
                argument: "inputs".into(),
                message: format!("the program takes {} inputs, got {}", block.parameters.len(), inputs.len()),
            });
        }
        for (i, array) in inputs.iter().enumerate() {
            let value = block.value(block.parameters[i]);
            let wrong = |message: String| Error::Argument { argument: value.name.to_string(), message };
            if *array.meta() != value.meta {
                return Err(wrong(format!("is {}, the program was compiled for {}", array.meta(), value.meta)));
            }
            let slot = &self.slots[block.parameters[i].index()];
            if array.strides() != &slot.strides[..]
                && !(array.is_contiguous() && fulgurite_kernels::view::is_contiguous(array.shape(), &slot.strides))
            {
                return Err(wrong(format!(
                    "has strides {:?}, the program was compiled for {:?}",
                    array.strides(),
                    slot.strides
                )));
            }
            if self.overwritten.contains(&i) && !array.is_unique() {
                return Err(wrong(
                    "is donated but somebody else still holds it; give the only copy away, or do not donate it".into(),
                ));
            }
        }
        Ok(())
    }

    /// Runs the program with every value in memory of its own between guard bytes, filled with NaN beforehand. An error if
    /// a kernel leaves part of a result unwritten (it stays NaN for the caller to see), writes past the end of a
    /// result, or changes an operand.
    pub fn run_checked(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.check_inputs(&inputs)?;
        // Roots of everything: inputs are copied with their layout, results get fenced memory.
        let mut roots: Vec<Option<Arc<Buffer>>> = vec![None; self.slots.len()];
        let layouts = layouts(&self.trace);
        let mut input_bases = Vec::with_capacity(inputs.len());
        for array in &inputs {
            let mut copy = Buffer::fenced(array.buffer().len())?;
            copy.as_bytes_mut().copy_from_slice(array.buffer().as_bytes());
            input_bases.push(Arc::new(copy));
        }
        for (i, parameter) in self.trace.block.parameters.iter().enumerate() {
            roots[parameter.index()] = Some(input_bases[i].clone());
        }
        let mut bases: Vec<*mut u8> = vec![std::ptr::null_mut(); self.slots.len()];
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
                    bases[index] = bases[root].wrapping_offset(self.slots[index].offset);
                } else {
                    let buffer = Arc::new(Buffer::fenced(self.slots[index].meta.bytes())?);
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
                let slot = &self.slots[*i];
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
        }
        let block = &self.trace.block;
        block
            .results
            .iter()
            .map(|id| {
                let slot = &self.slots[id.index()];
                let buffer = roots[id.index()].clone().unwrap_or_else(|| unreachable!("every value has memory"));
                let offset = (bases[id.index()] as usize - buffer.as_ptr() as usize) / slot.meta.dtype().size().max(1);
                Array::from_shared(buffer, slot.meta.clone(), slot.strides.clone(), offset).to_contiguous()
            })
            .collect()
    }
}

/// The first element that still has the poison's bits. No kernel computes this NaN, this integer (-1 as an index or count
/// does not come out of the samples' operators by chance in every byte) or this boolean.
fn first_unwritten(bytes: &[u8], dtype: DType) -> Option<usize> {
    if !(dtype.is_floating() || dtype == DType::Bool) {
        return None;
    }
    bytes.chunks_exact(dtype.size()).position(|element| element.iter().all(|byte| *byte == POISON))
}
