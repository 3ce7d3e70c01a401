//! A planned trace on a CUDA device: all work of a run is enqueued on one stream, and from the second run on replayed as a
//! graph ([`replay`]). Addresses are static: what is small and not donated is copied to a place of the program's own first.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fulgurite_kernels::cuda::{CopyRange, DeviceAddress, DeviceMemory, Event, Gather, Stream};

use super::placement::{Base, Placement, Source as OutputSource};
use super::profile::SymbolTime;
use crate::argument::{Arg, map_arguments};
use crate::array::{Array, Memory, Strides};
use crate::device::faults::Origins;
use crate::device::plan::{Address, Command, DeviceTensor, Place, Plan, Report, Source};
use crate::device::{DeviceBuffer, DeviceState};
use crate::error::{Error, Failure, Result};
use crate::executor::{VIEW, find_executor, find_implementation};
use crate::meta::{Device, TensorMeta};
use crate::operator::OperatorKind;
use crate::trace::{BoundSymbol, Callee, Trace, ValueId};
use crate::transforms::plan::{MemoryUse, memory_use};

mod checked;
mod fault;
mod load;
mod replay;
mod staging;

use fault::FaultCell;
use load::Loaded;
use staging::Staging;

/// Larger inputs and outputs, in bytes, are used where they are; smaller ones have a place of the program's own, so that their
/// addresses do not change from run to run.
const LARGEST_STAGED: usize = 1 << 20;
/// What the address of an input's first element is a multiple of, in bytes: the widest load.
const INPUT_ALIGNMENT: usize = 16;
/// Alignment of the regions of the program's memory, in bytes.
const ALIGNMENT: u64 = 256;
/// Set to 0, each kernel is launched by itself instead of replaying a graph, and each symbol waited for: to find what fails.
const GRAPH_VARIABLE: &str = "FULGURITE_GRAPH";

/// How often a device program ran, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Runs.
    pub runs: usize,
    /// Graphs recorded.
    pub graphs: usize,
    /// Runs that replayed a graph.
    pub replays: usize,
    /// Runs for which a graph was updated, since inputs or outputs were elsewhere.
    pub updates: usize,
    /// Graphs that could not be updated. After the first one, runs with other addresses launch every kernel, or have
    /// a graph of their own if the addresses come again.
    pub refused: usize,
    /// Launches, products, fills and copies of one run.
    pub commands: usize,
    /// The host's time in the driver's launches of graphs, of all replays together.
    pub launching: Duration,
}

/// The work of one symbol.
struct Step {
    commands: Vec<Command>,
    /// Indices of values.
    operands: Vec<usize>,
    results: Vec<usize>,
    /// The symbol of the trace.
    symbol: usize,
    /// What it means if the kernels report a fault.
    report: Option<Report>,
    /// Operands whose elements the kernels expect where results lie: indices of values.
    continued: Vec<(usize, usize)>,
}

/// The program's own memory, in bytes from its start.
#[derive(Debug, Default)]
struct Regions {
    workspace: u64,
    workspace_bytes: usize,
    /// For each input that is staged.
    staging: Vec<Option<u64>>,
    /// What the staged inputs take up together.
    staged: Range<u64>,
    /// For each fresh output that is small; larger ones are written where the caller gets them.
    outputs: Vec<Option<u64>>,
    total: u64,
}

/// A program ready to run on a device.
pub(super) struct DeviceProgram {
    trace: Arc<Trace>,
    placement: Placement,
    steps: Vec<Step>,
    regions: Regions,
    loaded: Mutex<Option<Loaded>>,
    runs: AtomicUsize,
    graphs: AtomicUsize,
    replays: AtomicUsize,
    updates: AtomicUsize,
    refused: AtomicUsize,
    launching_nanoseconds: AtomicU64,
    /// Whether runs replay a graph.
    graph: bool,
    /// The function's name.
    name: Arc<str>,
    /// Whether its kernels know of no more than that operands are aligned to an element.
    least_aligned: bool,
}

/// The largest power of two that divides the distance of a value's first element from the start of an allocation.
fn alignment(base: Base, offset: isize) -> usize {
    let start = match base {
        Base::Arena(start) => start as usize,
        Base::Input(_) | Base::Output(_) => 0,
    };
    let distance = start.wrapping_add_signed(offset);
    let whole = ALIGNMENT as usize;
    let own = if distance == 0 { whole } else { (1 << distance.trailing_zeros()).min(whole) };
    // An input may be a view of an array; `aligned` sees to it.
    if matches!(base, Base::Input(_)) { own.min(INPUT_ALIGNMENT) } else { own }
}

/// A copy of the array, whose first element is at `start`, that begins where kernels expect it.
fn aligned(array: &Array, start: DeviceAddress, state: &DeviceState) -> Result<Array> {
    // From the lowest element that strides reach to the highest one.
    let reach = |wanted: fn(isize) -> bool| -> usize {
        let all = array.shape().iter().zip(array.strides()).filter(|(_, stride)| wanted(**stride));
        all.map(|(n, stride)| (n - 1) * stride.unsigned_abs()).sum()
    };
    let size = array.dtype().size();
    let (before, bytes) = (reach(|stride| stride < 0) * size, (reach(|_| true) + 1) * size);
    // The first element is what is aligned, whatever is before it.
    let first = before.next_multiple_of(INPUT_ALIGNMENT);
    let copy = DeviceBuffer::new(array.device(), first - before + bytes)?;
    let to = copy.address().offset(first - before);
    // SAFETY: the elements are the array's own, which it keeps alive; the copy is new, and used on this stream alone.
    unsafe { state.stream().copy_on_device(to, DeviceAddress(start.0 - before as u64), bytes) }?;
    let (meta, strides) = (array.meta().clone(), Strides::from_slice(array.strides()));
    Ok(Array::from_memory(Memory::Device(Arc::new(copy)), meta, strides, first / size))
}

fn plan_of(
    plan: &mut Plan,
    symbol: &BoundSymbol,
    arguments: &[Arg<DeviceTensor>],
    results: &[DeviceTensor],
) -> Result<(), Failure> {
    let missing = |what: &str| Failure::new("NoKernel", format!("{what} has no device kernel"));
    match (&symbol.callee, symbol.executor) {
        (Callee::Region { executor }, _) => {
            let executor =
                find_executor(executor).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            let rule = executor.plan_region.ok_or_else(|| missing(executor.name))?;
            let body = symbol.body.as_ref().ok_or_else(|| Failure::new("NoBody", "the region has no body"))?;
            let operands: Vec<DeviceTensor> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
            rule(plan, body, &operands, results)
        }
        (Callee::Operator(def), Some(name)) => {
            if let OperatorKind::Symbol(_) = def.kind {
                return KernelRules::of(def).plan.ok_or_else(|| missing(def.name))?(plan, arguments, results);
            }
            if let Some(implementation) = find_implementation(def.name, name) {
                return implementation.kernel.plan.ok_or_else(|| missing(def.name))?(plan, arguments, results);
            }
            let executor = find_executor(name).map_err(|error| Failure::new("UnknownExecutor", error.to_string()))?;
            executor.plan.ok_or_else(|| missing(def.name))?(plan, def, arguments, results)
        }
        _ => Err(Failure::new("Unclaimed", format!("'{}' was not claimed by an executor", symbol.name()))),
    }
}

/// The sources of launches, each once, in the order of their first use.
fn sources_of<'a>(commands: impl Iterator<Item = &'a Command>) -> Vec<Arc<Source>> {
    let mut seen = rustc_hash::FxHashSet::default();
    commands
        .filter_map(|command| match command {
            Command::Launch { source, .. } => seen.insert(source.clone()).then(|| source.clone()),
            _ => None,
        })
        .collect()
}

impl DeviceProgram {
    /// Plans the device work of every symbol.
    pub(super) fn new(trace: Arc<Trace>, placement: Placement) -> Result<DeviceProgram> {
        DeviceProgram::planned(trace, placement, false)
    }

    /// The same program, whose kernels know of no more than that operands are aligned to an element, for a checked run.
    pub(super) fn least_aligned(&self) -> Result<DeviceProgram> {
        DeviceProgram::planned(self.trace.clone(), Placement::new(&self.trace)?, true)
    }

    fn planned(trace: Arc<Trace>, placement: Placement, least_aligned: bool) -> Result<DeviceProgram> {
        let architecture = match trace.target.architecture() {
            Some(architecture) => architecture.to_owned(),
            None => DeviceState::of(device_of(&trace))?.architecture(),
        };
        let block = &trace.block;
        let mut steps = Vec::with_capacity(block.symbols.len());
        let mut workspace_bytes = 0;
        for (index, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee == Callee::Delete || symbol.executor == Some(VIEW) {
                continue;
            }
            let tensor = |id: ValueId, place: Place| {
                let slot = &placement.slots[id.index()];
                DeviceTensor {
                    meta: slot.meta.clone(),
                    strides: slot.strides.to_vec(),
                    address: Address { place, offset: 0 },
                    alignment: if least_aligned { slot.meta.dtype().size() } else { alignment(slot.base, slot.offset) },
                }
            };
            let mut operand = 0;
            let arguments = map_arguments(&symbol.arguments, |id| {
                operand += 1;
                tensor(*id, Place::Operand(operand - 1))
            });
            let results: Vec<DeviceTensor> =
                symbol.results.iter().enumerate().map(|(i, id)| tensor(*id, Place::Result(i as u32))).collect();
            let mut plan = Plan::new(&architecture);
            let place = |id: ValueId| (placement.slots[id.index()].base, placement.slots[id.index()].offset);
            for (operand, read) in symbol.operands().enumerate() {
                for (result, written) in symbol.results.iter().enumerate().filter(|(_, id)| place(**id) == place(read))
                {
                    // Of nothing there are no elements to be found.
                    if !block.meta(*written).is_empty() {
                        plan.overlay(operand as u32, result as u32);
                    }
                }
            }
            plan_of(&mut plan, symbol, &arguments, &results).map_err(|failure| symbol.failed(block, failure))?;
            workspace_bytes = workspace_bytes.max(plan.workspace_bytes());
            let report = plan.report().cloned();
            let operands: Vec<usize> = symbol.operands().map(ValueId::index).collect();
            let results: Vec<usize> = symbol.results.iter().map(|id| id.index()).collect();
            let continued = plan.continued().iter();
            steps.push(Step {
                continued: continued
                    .map(|(operand, result)| (operands[*operand as usize], results[*result as usize]))
                    .collect(),
                commands: plan.into_commands(),
                operands,
                results,
                symbol: index,
                report,
            });
        }
        let regions = regions(&trace, &placement, workspace_bytes);
        let name = trace.name.as_str().into();
        Ok(DeviceProgram {
            name,
            least_aligned,
            trace,
            placement,
            steps,
            regions,
            loaded: Mutex::new(None),
            runs: AtomicUsize::new(0),
            graphs: AtomicUsize::new(0),
            replays: AtomicUsize::new(0),
            updates: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            launching_nanoseconds: AtomicU64::new(0),
            graph: std::env::var_os(GRAPH_VARIABLE).is_none_or(|value| value != "0"),
        })
    }

    /// What it needs on the device: arrays used where they are, the copies of fresh outputs that callers get, and the
    /// program's own memory.
    pub(super) fn memory_use(&self) -> MemoryUse {
        let block = &self.trace.block;
        let direct = block.parameters.iter().zip(&self.regions.staging).filter(|(_, staged)| staged.is_none());
        let inputs = direct.map(|(id, _)| block.meta(*id).bytes() as u64).fold(0, u64::saturating_add);
        let record = if self.steps.iter().any(|step| step.report.is_some()) { fault::BYTES as u64 } else { 0 };
        MemoryUse { inputs, transient: self.regions.total.saturating_add(record), ..memory_use(&self.trace) }
    }

    /// How often it ran, and how.
    pub(super) fn counts(&self) -> RunCounts {
        RunCounts {
            runs: self.runs.load(Ordering::Relaxed),
            graphs: self.graphs.load(Ordering::Relaxed),
            replays: self.replays.load(Ordering::Relaxed),
            updates: self.updates.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            commands: self.steps.iter().map(|step| step.commands.len()).sum(),
            launching: Duration::from_nanos(self.launching_nanoseconds.load(Ordering::Relaxed)),
        }
    }

    /// The sources of its kernels, each once, in the order of their first use; also of those that run only where the library
    /// lacks a product.
    pub(super) fn sources(&self) -> Vec<Arc<Source>> {
        let commands = self.steps.iter().flat_map(|step| &step.commands);
        sources_of(commands.flat_map(|command| match command {
            Command::Matmul { instead, .. } => instead.iter().collect(),
            other => vec![other],
        }))
    }

    /// Whether it has products of the library.
    #[cfg(feature = "testing")]
    pub(super) fn has_products(&self) -> bool {
        self.steps.iter().flat_map(|step| &step.commands).any(|command| matches!(command, Command::Matmul { .. }))
    }

    /// Has every run launch every kernel by itself, and wait for each symbol.
    pub(super) fn without_graph(&mut self) {
        self.graph = false;
    }

    /// Whether arrays are what the program takes.
    pub(super) fn check_inputs(&self, inputs: &[Array]) -> Result<()> {
        self.placement.check_inputs(&self.trace, inputs)
    }

    /// Enqueues a run of inputs that have the metas and strides that the program takes.
    pub(super) fn run(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.placement.check_unique(&self.trace, &inputs)?;
        self.run_with(inputs, |loaded, starts| self.replay(loaded, starts))
    }

    /// Runs each symbol by itself, between events.
    pub(super) fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
        self.check_inputs(&inputs)?;
        let mut times = Vec::with_capacity(self.steps.len());
        let outputs = self.run_with(inputs, |loaded, starts| {
            let addresses = self.addresses(loaded, starts);
            let context = loaded.state.context();
            let events = (0..=self.steps.len()).map(|_| Event::timed(context)).collect::<Result<Vec<_>, _>>()?;
            loaded.begin(loaded.state.stream())?;
            events[0].record(loaded.state.stream())?;
            for i in 0..self.steps.len() {
                self.enqueue(loaded, loaded.state.stream(), i, &addresses)?;
                events[i + 1].record(loaded.state.stream())?;
            }
            events[self.steps.len()].synchronize()?;
            for (i, step) in self.steps.iter().enumerate() {
                let milliseconds = events[i + 1].milliseconds_since(&events[i])?;
                times.push((step.symbol, Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3)));
            }
            Ok(())
        })?;
        Ok((outputs, times))
    }

    /// Stages inputs, has `work` done, and gives out outputs.
    fn run_with(
        &self,
        inputs: Vec<Array>,
        work: impl FnOnce(&mut Loaded, &[DeviceAddress]) -> Result<()>,
    ) -> Result<Vec<Array>> {
        let mut guard = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = match &mut *guard {
            Some(loaded) => loaded,
            none => none.insert(self.load()?),
        };
        let device = device_of(&self.trace);
        let own = loaded.memory.address();
        let mut origins = origins_of(&inputs, device);
        self.stage(loaded, &inputs)?;
        let mut placed: Vec<Array> = Vec::with_capacity(inputs.len());
        let mut starts: Vec<DeviceAddress> = Vec::with_capacity(inputs.len());
        for (mut array, staged) in inputs.into_iter().zip(&self.regions.staging) {
            if let Some(offset) = staged {
                starts.push(own.offset(*offset as usize));
            } else {
                if array.device() != device {
                    array = array.to_device(device)?;
                }
                let start = loop {
                    let Memory::Device(buffer) = array.memory() else { unreachable!("moved to the device above") };
                    let start = buffer.address().offset(array.byte_offset());
                    if start.0.is_multiple_of(INPUT_ALIGNMENT as u64) || array.meta().is_empty() {
                        break start;
                    }
                    array = aligned(&array, start, &loaded.state)?;
                };
                starts.push(start);
            }
            placed.push(array);
        }
        let mut fresh = Vec::with_capacity(self.placement.fresh.len());
        for (meta, offset) in self.placement.fresh.iter().zip(&self.regions.outputs) {
            let buffer = DeviceBuffer::new(device, meta.bytes())?;
            starts.push(offset.map_or(buffer.address(), |offset| own.offset(offset as usize)));
            fresh.push(buffer);
        }
        loaded.state.enqueued(&self.name);
        tracing::trace!(function = %self.name, "inputs are on the device");
        work(loaded, &starts)?;
        if let Some(fault) = &loaded.fault {
            origins = fault.fetch(&loaded.state, origins)?;
        }
        for (buffer, offset) in fresh.iter().zip(&self.regions.outputs) {
            if let Some(offset) = offset {
                let from = own.offset(*offset as usize);
                // SAFETY: both ranges are allocated for as many bytes, and used on this stream alone.
                unsafe { loaded.state.stream().copy_on_device(buffer.address(), from, buffer.len()) }?;
            }
        }
        let fresh = fresh.into_iter().map(|buffer| Memory::Device(Arc::new(buffer))).collect();
        self.runs.fetch_add(1, Ordering::Relaxed);
        let outputs = self.placement.collect(placed, fresh);
        for (array, source) in outputs.iter().zip(&self.placement.outputs) {
            // An input that is given back as it came keeps the origins that it has.
            if let (Memory::Device(buffer), false) = (array.memory(), matches!(source, OutputSource::Passed(_))) {
                buffer.set_origins(&origins);
            }
        }
        Ok(outputs)
    }

    /// Copies small inputs to their places: those of the host in one copy, those of the device in one launch.
    fn stage(&self, loaded: &mut Loaded, inputs: &[Array]) -> Result<()> {
        let own = loaded.memory.address();
        let stream = loaded.state.stream();
        let first = self.regions.staged.start;
        let staged =
            || inputs.iter().zip(&self.regions.staging).filter_map(|(array, staged)| Some((array, (*staged)?)));
        loaded.staging.send(&loaded.state, own.offset(first as usize), |bytes| {
            let mut end = 0;
            for (array, offset) in staged() {
                if let Memory::Host(buffer) = array.memory() {
                    let (at, length) = ((offset - first) as usize, array.meta().bytes());
                    bytes[at..at + length].copy_from_slice(&buffer.as_bytes()[array.byte_offset()..][..length]);
                    end = at + length;
                }
            }
            end
        })?;
        let copies: Vec<CopyRange> = staged()
            .filter_map(|(array, offset)| match array.memory() {
                Memory::Device(buffer) => Some(CopyRange {
                    from: buffer.address().offset(array.byte_offset()),
                    to: own.offset(offset as usize),
                    bytes: array.meta().bytes(),
                }),
                Memory::Host(_) => None,
            })
            .collect();
        if let [CopyRange { from, to, bytes }] = copies[..] {
            // SAFETY: both ranges are allocated, and whoever uses them later does so on this stream.
            unsafe { stream.copy_on_device(to, from, bytes) }?;
        } else if !copies.is_empty() {
            let gather = match &mut loaded.gather {
                Some(gather) => gather,
                none => none.insert(Gather::new(loaded.state.context())?),
            };
            // SAFETY: as above, for all of them; each input has a place of its own.
            unsafe { gather.copy(stream, &copies) }?;
        }
        Ok(())
    }

    /// Where each value starts, given where inputs and, behind them, fresh outputs do.
    fn addresses(&self, loaded: &Loaded, starts: &[DeviceAddress]) -> Addresses {
        let own = loaded.memory.address();
        let values = self
            .placement
            .slots
            .iter()
            .map(|slot| {
                let base = match slot.base {
                    Base::Input(i) => starts[i].0,
                    Base::Arena(offset) => own.0 + offset,
                    Base::Output(i) => starts[self.trace.block.parameters.len() + i].0,
                };
                DeviceAddress(base.wrapping_add_signed(slot.offset as i64))
            })
            .collect();
        Addresses { values, workspace: own.offset(self.regions.workspace as usize), fault: loaded.fault_address() }
    }

    /// Enqueues the work of a step.
    fn enqueue(&self, loaded: &Loaded, stream: &Stream, step: usize, addresses: &Addresses) -> Result<()> {
        let at = |address: &Address| {
            let step = &self.steps[step];
            let start = match address.place {
                Place::Operand(n) => addresses.values[step.operands[n as usize]],
                Place::Result(n) => addresses.values[step.results[n as usize]],
                Place::Workspace => addresses.workspace,
                Place::Fault => addresses.fault,
            };
            start.offset(address.offset as usize)
        };
        loaded.enqueue(stream, step, self.steps[step].symbol, &at).map_err(|error| self.located(error, step))
    }

    /// Says which symbol was being run.
    fn located(&self, error: Error, step: usize) -> Error {
        let symbol = &self.trace.block.symbols[self.steps[step].symbol];
        symbol.failed(&self.trace.block, Failure::new("Device", error.to_string()))
    }
}

/// Where everything is in one run.
struct Addresses {
    values: Vec<DeviceAddress>,
    workspace: DeviceAddress,
    fault: DeviceAddress,
}

/// The runs that arrays on a device come from, as far as they may have a fault.
fn origins_of(arrays: &[Array], device: Device) -> Origins {
    let mut origins = Origins::default();
    for array in arrays {
        // What comes from another device is read on its way, which asks its origins.
        if let (Memory::Device(buffer), true) = (array.memory(), array.device() == device) {
            buffer.add_origins(&mut origins);
        }
    }
    origins
}

/// The device that a trace's values are on.
fn device_of(trace: &Trace) -> Device {
    let devices = trace.block.values.iter().map(|value| value.meta.device());
    devices.into_iter().find(|device| !device.is_cpu()).unwrap_or_else(|| trace.target.device())
}

fn regions(trace: &Trace, placement: &Placement, workspace_bytes: u64) -> Regions {
    let mut end = 0u64;
    let mut take = |bytes: u64| {
        let start = end;
        end = end.saturating_add(bytes.next_multiple_of(ALIGNMENT));
        start
    };
    take(trace.arena.unwrap_or(0));
    let workspace = take(workspace_bytes);
    let staged_from = take(0);
    let staging = trace
        .block
        .parameters
        .iter()
        .enumerate()
        .map(|(i, id)| {
            let meta = trace.block.meta(*id);
            let given_out = placement
                .outputs
                .iter()
                .any(|source| matches!(source, OutputSource::Passed(n) | OutputSource::Donated(n) if *n == i));
            let small = meta.bytes() <= LARGEST_STAGED && trace.inputs[i].strides.is_none();
            (small && !given_out && !trace.inputs[i].donated).then(|| take(meta.bytes() as u64))
        })
        .collect();
    let staged = staged_from..take(0);
    let place = |meta: &TensorMeta| (meta.bytes() <= LARGEST_STAGED).then(|| take(meta.bytes() as u64));
    let outputs = placement.fresh.iter().map(place).collect();
    Regions { workspace, workspace_bytes: workspace_bytes as usize, staging, staged, outputs, total: end }
}
