//! A planned trace on a device: the driver of its runs. The work of a run is enqueued on the compute stream, and from
//! the second run on replayed where the backend can. Addresses are static: what is small and not donated is copied to a
//! place of the program's own first, perhaps beside the run before. A mark behind the run is what readers of its
//! results wait for.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use super::overwritten::note_overwritten;
use super::placement::{Base, Placement, Source as OutputSource, not_unique};
use crate::array::{Array, Memory};
use crate::device::faults::Origins;
use crate::device::host_time::counted;
use crate::device::host_work::Outside;
use crate::device::memory::{Content, Known};
use crate::device::{
    Address, Addresses, CodeError, CodeStep, DeviceBuffer, DeviceCode, DeviceError, DeviceState, DeviceStream,
    Location, RECORD_BYTES, Root, Source,
};
use crate::error::{Error, Failure, Result};
use crate::stream_kind::StreamKind;
use crate::trace::Trace;
use crate::transforms::plan::{MemoryUse, memory_use};

pub(super) mod bound;
mod checked;
mod fault;
mod inputs;
mod loaded;
mod on_host;
mod on_stream;
mod regions;
mod stage;
mod staging;
mod steps;
mod timed;

use inputs::Seen;
use loaded::{Loaded, Refused};
use regions::Regions;
use steps::{Step, Steps};

/// Set to 0, each kernel is launched by itself instead of replaying a graph, and each symbol waited for: to find what
/// fails.
const GRAPH_VARIABLE: &str = "FULGURITE_GRAPH";

/// Programs of so many commands are not replayed: launching them costs the host no more than replaying a graph, and
/// than the copies to places that do not change. An operator that is called by itself is such a program.
const FEW_COMMANDS: usize = 1;

/// How often a device program ran, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Number of runs.
    pub runs: usize,
    /// Graphs recorded.
    pub graphs: usize,
    /// Those of them with work of several streams side by side.
    pub branched: usize,
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

/// A program ready to run on a device.
pub(super) struct DeviceProgram {
    trace: Arc<Trace>,
    placement: Placement,
    /// One for each of the code's.
    steps: Vec<Step>,
    code: Arc<DeviceCode>,
    regions: Regions,
    loaded: Mutex<Option<Loaded>>,
    runs: AtomicUsize,
    /// Whether runs may be replayed; otherwise each symbol is waited for.
    graph: bool,
    /// Whether it has too few commands to be replayed.
    few: bool,
    /// Whether its kernels assume element alignment only.
    least_aligned: bool,
}

/// Before or behind a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Begin,
    End,
}

/// A run that is enqueued.
struct Enqueued<'a> {
    /// As the run used them, in order.
    inputs: Vec<Array>,
    /// Memory of fresh outputs, in order.
    fresh: Vec<DeviceBuffer>,
    /// What was known of the inputs.
    seen: &'a Seen,
    /// Its number among the device's.
    number: u64,
}

/// The program, loaded; held as long as work is enqueued.
pub(super) struct Held<'a>(MutexGuard<'a, Option<Loaded>>);

impl Held<'_> {
    fn get(&mut self) -> &mut Loaded {
        self.0.as_mut().unwrap_or_else(|| unreachable!("loaded where it was locked"))
    }
}

impl DeviceProgram {
    /// Plans the device work of every symbol.
    pub(super) fn new(trace: Arc<Trace>, placement: Placement) -> Result<DeviceProgram> {
        DeviceProgram::planned(trace, placement, false)
    }

    /// The same program with kernels that assume element alignment only, for a checked run.
    pub(super) fn least_aligned(&self) -> Result<DeviceProgram> {
        DeviceProgram::planned(self.trace.clone(), Placement::new(&self.trace)?, true)
    }

    fn planned(trace: Arc<Trace>, placement: Placement, least_aligned: bool) -> Result<DeviceProgram> {
        let Steps { steps, work, workspace_bytes, in_place } = steps::planned(&trace, &placement, least_aligned)?;
        let few = work.iter().map(|step| step.commands.len()).sum::<usize>() <= FEW_COMMANDS;
        let regions = Regions::new(&trace, &placement, (workspace_bytes, &in_place), !few);
        let inputs = trace.block.parameters.len();
        let values = placement.slots.iter().map(|slot| {
            let (root, start) = match slot.base {
                Base::Input(n) => (Root::Given(n), 0),
                Base::Output(n) => (Root::Given(inputs + n), 0),
                Base::Arena(start) => (Root::Own, start),
            };
            Location { root, offset: start.wrapping_add_signed(slot.offset as i64) as i64 }
        });
        let code = DeviceCode {
            name: trace.name.as_str().into(),
            values: values.collect(),
            steps: work,
            workspaces: regions.workspaces,
        };
        Ok(DeviceProgram {
            least_aligned,
            trace,
            placement,
            steps,
            code: Arc::new(code),
            regions,
            loaded: Mutex::new(None),
            runs: AtomicUsize::new(0),
            few,
            graph: std::env::var_os(GRAPH_VARIABLE).is_none_or(|value| value != "0"),
        })
    }

    /// What it needs on the device: arrays used where they are, the copies of fresh outputs that callers get, and the
    /// program's own memory.
    pub(super) fn memory_use(&self) -> MemoryUse {
        let block = &self.trace.block;
        let direct = block.parameters.iter().zip(&self.regions.staging).filter(|(_, staged)| staged.is_none());
        let inputs = direct.map(|(id, _)| block.meta(*id).bytes() as u64).fold(0, u64::saturating_add);
        let record = if self.steps.iter().any(|step| step.report.is_some()) { RECORD_BYTES as u64 } else { 0 };
        MemoryUse { inputs, transient: self.regions.total.saturating_add(record), ..memory_use(&self.trace) }
    }

    /// How often it ran, and how.
    pub(super) fn counts(&self) -> RunCounts {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let replayed = loaded.as_ref().map(|loaded| loaded.code.counts()).unwrap_or_default();
        RunCounts {
            runs: self.runs.load(Ordering::Relaxed),
            graphs: replayed.graphs,
            branched: replayed.branched,
            replays: replayed.replays,
            updates: replayed.updates,
            refused: replayed.refused,
            commands: self.code.steps.iter().map(|step| step.commands.len()).sum(),
            launching: replayed.launching,
        }
    }

    /// The sources of its kernels, each once, in the order of their first use; also of those that run only where a
    /// library cannot.
    pub(super) fn sources(&self) -> Vec<Arc<Source>> {
        steps::sources_of(&self.code.steps)
    }

    /// The sources of each symbol that has any, with the symbol's number in the trace.
    pub(super) fn sources_by_symbol(&self) -> Vec<(usize, Vec<Arc<Source>>)> {
        let all = self.steps.iter().zip(&self.code.steps);
        let of = all.map(|(step, work)| (step.symbol, steps::sources_of([work])));
        of.filter(|(_, sources)| !sources.is_empty()).collect()
    }

    /// Whether it has calls of a library.
    pub(super) fn has_library_work(&self) -> bool {
        use crate::device::Command;
        self.code.steps.iter().flat_map(|step| &step.commands).any(|command| matches!(command, Command::Library(_)))
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
        self.run_with(inputs, |loaded, starts| {
            let state = loaded.state.clone();
            state.timed(StreamKind::Compute, || self.trace.name.clone(), |_| self.replay(loaded, starts))
        })
    }

    /// Enqueues the work for these addresses: replayed, or every step by itself. The first run is launched, since there
    /// may be no other.
    fn replay(&self, loaded: &mut Loaded, starts: &Arc<[DeviceAddress]>) -> Result<()> {
        if !self.graph {
            loaded.code.step_together()?;
            // Each symbol is waited for, so that an error is that of the symbol it names.
            loaded.room.begin(loaded.state.stream())?;
            return self.step_all(loaded, starts, |stream, step, at| match at {
                Edge::Begin => Ok(()),
                Edge::End => stream.synchronize().map_err(|error| self.located(&error, step)),
            });
        }
        let replayed = !self.few && self.runs.load(Ordering::Relaxed) > 0;
        if replayed && self.steps.iter().all(|step| step.outside.is_none()) {
            // SAFETY: the code uses the program's memory, and inputs and outputs at these addresses, all alive: the
            // caller's arrays hold them until what follows on this stream may use their memory again.
            let replayed = unsafe { loaded.code.replay(loaded.state.stream(), starts) };
            if replayed.map_err(|error| self.code_error(error))? {
                return Ok(());
            }
        } else {
            loaded.code.step_together()?;
        }
        loaded.room.begin(loaded.state.stream())?;
        self.step_all(loaded, starts, |_, _, _| Ok(()))
    }

    /// Enqueues every step by itself on its stream, and what `around` says before and behind each.
    fn step_all(
        &self,
        loaded: &mut Loaded,
        starts: &[DeviceAddress],
        mut around: impl FnMut(&dyn DeviceStream, usize, Edge) -> Result<()>,
    ) -> Result<()> {
        let addresses = self.code.addresses(&loaded.room, starts);
        let state = loaded.state.clone();
        let fences = loaded.fences.take();
        let mut enqueue = || {
            fences.as_ref().map_or(Ok(()), |fences| fences.begin(&*state))?;
            for (step, CodeStep { stream, after, .. }) in self.code.steps.iter().enumerate() {
                let stream = state.stream_of(*stream);
                fences.as_ref().map_or(Ok(()), |fences| fences.before(stream, after))?;
                around(stream, step, Edge::Begin)?;
                // SAFETY: as in `replay`.
                unsafe { self.step(loaded, stream, step, &addresses) }?;
                around(stream, step, Edge::End)?;
                fences.as_ref().map_or(Ok(()), |fences| fences.after(stream, step))?;
            }
            Ok(())
        };
        let done = enqueue();
        // Also behind a run that was not enqueued to its end: its memory is used again on the compute stream.
        let ended = fences.as_ref().map_or(Ok(()), |fences| fences.end(&*state));
        loaded.fences = fences;
        done.and(ended.map_err(Into::into))
    }

    /// Enqueues a step on `stream`, by itself or by its function; one that the host runs is done when this returns.
    ///
    /// # Safety
    /// As [`crate::device::LoadedCode::step`].
    unsafe fn step(
        &self,
        loaded: &mut Loaded,
        stream: &dyn DeviceStream,
        step: usize,
        addresses: &Addresses,
    ) -> Result<()> {
        let Some(work) = &self.steps[step].outside else {
            // SAFETY: promised by the caller.
            let enqueued = unsafe { loaded.code.step(stream, step, addresses) };
            return enqueued.map_err(|error| self.located(&error, step));
        };
        let at = |address: &Address| addresses.at(&self.code.steps[step], address);
        let done = match work {
            // SAFETY: promised by the caller.
            Outside::Host(work) => unsafe { on_host::run(work, stream, &at) },
            Outside::Stream(work) => on_stream::run(self.place(), work, (steps::device_of(&self.trace), stream), &at),
        };
        done.map_err(|problem| match problem {
            on_host::Problem::Error(error) => error,
            on_host::Problem::Data(failure) => {
                self.trace.block.symbols[self.steps[step].symbol].failed(&self.trace.block, failure)
            }
        })
    }

    /// Where the program is: it stays there while it runs.
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The program on its device, which is opened and loaded where it is first needed.
    pub(super) fn hold(&self) -> Result<Held<'_>> {
        if on_stream::is_calling(self.place()) {
            let message = "a kernel of its own calls the program, which runs until the kernel returns".into();
            return Err(Error::Argument { argument: self.trace.name.clone(), message });
        }
        let mut guard = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            *guard = Some(self.load()?);
        }
        let mut held = Held(guard);
        // What is enqueued from now on is not marked before its end.
        held.get().last = None;
        Ok(held)
    }

    fn load(&self) -> Result<Loaded> {
        let state = DeviceState::of(steps::device_of(&self.trace))?;
        let mut meanings = vec![None; self.trace.block.symbols.len()];
        for step in &self.steps {
            meanings[step.symbol].clone_from(&step.report);
        }
        Loaded::new(state, &self.code, &self.regions, &self.trace, meanings).map_err(|refused| match refused {
            Refused::Memory(error) => self.too_large(&error),
            Refused::Code(error) => self.code_error(error),
            Refused::Other(error) => error,
        })
    }

    /// Names the largest values with the size that could not be had.
    fn too_large(&self, error: &DeviceError) -> Error {
        let mut largest: Vec<(usize, &str)> =
            self.trace.block.values.iter().map(|value| (value.meta.bytes(), &*value.name)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let list: Vec<String> = largest.iter().take(5).map(|(bytes, name)| format!("{name} ({bytes} bytes)")).collect();
        let memory = self.memory_use();
        let message = format!(
            "{error}; the plan's peak is {} bytes, {} of them the program's own; the largest values are {}",
            memory.peak(),
            self.regions.total,
            list.join(", ")
        );
        Error::DeviceMemory { message }
    }

    /// Stages inputs, has `work` done, and gives out outputs.
    fn run_with(
        &self,
        mut inputs: Vec<Array>,
        work: impl FnOnce(&mut Loaded, &Arc<[DeviceAddress]>) -> Result<()>,
    ) -> Result<Vec<Array>> {
        // Before the program is held, and so dropped behind it.
        let seen;
        let mut held = self.hold()?;
        let loaded = held.get();
        let state = loaded.state.clone();
        let _entered = state.context().enter()?;
        let device = steps::device_of(&self.trace);
        let own = loaded.own();
        seen = Seen::look(&mut inputs, &self.placement.overwritten, &state).map_err(|i| {
            let name = &self.trace.block.value(self.trace.block.parameters[i]).name;
            not_unique(name, &inputs[i])
        })?;
        let staging = self.staging_of(&inputs);
        counted(|spent| &mut spent.inputs, || self.stage(loaded, &inputs, &staging))?;
        let mut placed: Vec<Array> = Vec::with_capacity(inputs.len());
        let mut starts: Vec<DeviceAddress> = Vec::with_capacity(inputs.len());
        for (array, staged) in inputs.into_iter().zip(&*staging) {
            let (array, start) = match staged {
                Some(offset) => (array, own.offset(*offset as usize)),
                None => inputs::placed(array, device, &loaded.state)?,
            };
            starts.push(start);
            placed.push(array);
        }
        let mut fresh = Vec::with_capacity(self.placement.fresh.len());
        for (meta, offset) in self.placement.fresh.iter().zip(&self.regions.outputs) {
            let buffer = DeviceBuffer::on(&state, meta.bytes())?;
            starts.push(offset.map_or(buffer.address(), |offset| own.offset(offset as usize)));
            fresh.push(buffer);
        }
        let number = loaded.state.enqueued(&self.code.name);
        tracing::trace!(function = %self.code.name, "inputs are on the device");
        let starts: Arc<[DeviceAddress]> = starts.into();
        counted(|spent| &mut spent.launching, || work(loaded, &starts)).inspect_err(|_| note_overwritten())?;
        let run = Enqueued { inputs: placed, fresh, seen: &seen, number };
        counted(|spent| &mut spent.results, || self.hand_out(loaded, run)).inspect_err(|_| note_overwritten())
    }

    /// The places of small inputs. Where runs are not replayed, only what is on the host has one.
    fn staging_of(&self, inputs: &[Array]) -> Cow<'_, [Option<u64>]> {
        let staging = &self.regions.staging;
        if !self.few {
            return Cow::Borrowed(staging);
        }
        let of = |(array, staged): (&Array, &Option<u64>)| (*staged).filter(|_| array.device().is_cpu());
        inputs.iter().zip(staging).map(of).collect()
    }

    /// What callers get of a run that is enqueued.
    fn hand_out(&self, loaded: &mut Loaded, run: Enqueued<'_>) -> Result<Vec<Array>> {
        let Enqueued { inputs, fresh, seen, number } = run;
        let (known, fresh) = self.ended(loaded, fresh, seen.origins.clone(), number)?;
        // Where a run overwrites all results of the run before, as a training step does, one record says it of all.
        let shared = seen.shared();
        if let Some(content) = shared {
            content.replace(known.clone());
        }
        let outputs = self.placement.collect(inputs, fresh);
        // Fresh results have a record of their own: callers may keep them.
        let (overwritten, fresh) = (Content::new(known.clone()), Content::new(known));
        for (array, source) in outputs.iter().zip(&self.placement.outputs) {
            let content = match source {
                OutputSource::Fresh(_) => &fresh,
                OutputSource::Donated(_) if shared.is_none() => &overwritten,
                // An input that is given back as it came keeps the origins that it has.
                OutputSource::Donated(_) | OutputSource::Passed(_) | OutputSource::Same(_) => continue,
            };
            if let Memory::Device(buffer) = array.memory() {
                buffer.set_written(content);
            }
        }
        Ok(outputs)
    }

    /// What comes behind a run that is enqueued, whose inputs come from the runs `origins`: small fresh outputs are
    /// copied to the memory that callers get, and the end is marked. What is known of what it wrote, and that memory.
    fn ended(
        &self,
        loaded: &mut Loaded,
        fresh: Vec<DeviceBuffer>,
        mut origins: Origins,
        number: u64,
    ) -> Result<(Known, Vec<Memory>)> {
        let own = loaded.own();
        if let Some(fault) = &loaded.fault {
            origins = fault.fetch(&loaded.state, origins)?;
        }
        for (buffer, offset) in fresh.iter().zip(&self.regions.outputs) {
            if let Some(offset) = offset {
                let from = own.offset(*offset as usize);
                let range = CopyRange { from, to: buffer.address(), bytes: buffer.len() };
                // SAFETY: both ranges are allocated for as many bytes, and used on this stream alone.
                unsafe { loaded.state.stream().copy(range) }?;
            }
        }
        let written = loaded.state.written(number)?;
        loaded.last = Some(written.clone());
        let fresh = fresh.into_iter().map(|buffer| Memory::Device(Arc::new(buffer))).collect();
        self.runs.fetch_add(1, Ordering::Relaxed);
        Ok((Known { origins, written: Some(written) }, fresh))
    }

    /// Says which symbol an error of its work comes from.
    fn located(&self, error: &DeviceError, step: usize) -> Error {
        let symbol = &self.trace.block.symbols[self.steps[step].symbol];
        symbol.failed(&self.trace.block, Failure::new("Device", error.to_string()))
    }

    fn code_error(&self, CodeError { step, error }: CodeError) -> Error {
        match step {
            Some(step) => self.located(&error, step),
            None => error.into(),
        }
    }
}
