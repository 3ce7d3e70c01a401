//! Runs after the first: graphs, recorded once, replayed, and updated where an input or output is elsewhere.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fulgurite_kernels::cuda::{CaptureMode, DeviceAddress, ExecutableGraph, Graph, Stream};

use super::load::Loaded;
use super::{Base, DeviceProgram};
use crate::error::Result;

/// Graphs that are kept for different addresses of large inputs and outputs.
const MOST_GRAPHS: usize = 4;
/// A graph is updated if no more than one step in so many has another address: recording a step again takes about as long as
/// launching it.
const FEW: usize = 4;
/// Addresses that had no graph, and are remembered in case they come again.
const MOST_MISSED: usize = 16;

/// A graph, and the addresses of inputs and outputs that it uses.
struct Recorded {
    key: Vec<DeviceAddress>,
    /// What it was made from; an update names its nodes.
    graph: Graph,
    executable: ExecutableGraph,
}

/// The graphs of a program.
#[derive(Default)]
pub(super) struct Graphs {
    /// The one used last is the last.
    list: Vec<Recorded>,
    /// Addresses that were run without a graph, the latest last.
    missed: Vec<Vec<DeviceAddress>>,
    /// The stream that work is recorded on.
    recorder: Option<Stream>,
}

/// What is done where no graph has the addresses of a run.
#[derive(Debug, PartialEq, Eq)]
enum Miss {
    /// Another graph is recorded.
    Record,
    /// Graph number `graph` is updated in these steps.
    Update { graph: usize, steps: Vec<usize> },
    /// Every step is launched by itself.
    Launch,
}

impl DeviceProgram {
    /// Replays a graph for these addresses, or launches every step by itself: the first time, without graphs, and where it is
    /// not known that the addresses come again.
    pub(super) fn replay(&self, loaded: &mut Loaded, starts: &[DeviceAddress]) -> Result<()> {
        if !self.graph {
            // Each symbol is waited for, so that an error is that of the symbol it names.
            return self.launch(loaded, starts, |step, stream| {
                stream.synchronize().map_err(|error| self.located(error.into(), step))
            });
        }
        if self.runs.load(Ordering::Relaxed) == 0 {
            return self.launch(loaded, starts, |_, _| Ok(()));
        }
        let mut graphs = std::mem::take(&mut loaded.graphs);
        let replayed = self.replay_of(&mut graphs, loaded, starts);
        loaded.graphs = graphs;
        replayed
    }

    fn launch(
        &self,
        loaded: &Loaded,
        starts: &[DeviceAddress],
        mut after: impl FnMut(usize, &Stream) -> Result<()>,
    ) -> Result<()> {
        let addresses = self.addresses(loaded, starts);
        let stream = loaded.state.stream();
        loaded.begin(stream)?;
        (0..self.steps.len()).try_for_each(|step| {
            self.enqueue(loaded, stream, step, &addresses)?;
            after(step, stream)
        })
    }

    fn replay_of(&self, graphs: &mut Graphs, loaded: &Loaded, starts: &[DeviceAddress]) -> Result<()> {
        match graphs.list.iter().rposition(|recorded| recorded.key == starts) {
            Some(at) if at + 1 < graphs.list.len() => {
                let recorded = graphs.list.remove(at);
                graphs.list.push(recorded);
            }
            Some(_) => {}
            None => match self.missed(graphs, starts) {
                Miss::Update { graph, steps } if self.update(graphs, loaded, starts, graph, &steps)? => {}
                Miss::Record | Miss::Update { .. } => self.record(graphs, loaded, starts)?,
                Miss::Launch => {
                    if graphs.missed.len() == MOST_MISSED {
                        graphs.missed.remove(0);
                    }
                    graphs.missed.push(starts.to_vec());
                    return self.launch(loaded, starts, |_, _| Ok(()));
                }
            },
        }
        if let Some(recorded) = graphs.list.last() {
            let started = Instant::now();
            // SAFETY: the graph uses the program's memory, and inputs and outputs at these addresses, all alive: the caller's
            // arrays hold them until what follows on this stream may use their memory again.
            unsafe { recorded.executable.launch(loaded.state.stream()) }?;
            self.launching_nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.replays.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn missed(&self, graphs: &mut Graphs, starts: &[DeviceAddress]) -> Miss {
        // The graph with the fewest steps that are different.
        let candidates = graphs.list.iter().enumerate().map(|(graph, recorded)| {
            let moved: Vec<bool> = recorded.key.iter().zip(starts).map(|(known, start)| known != start).collect();
            (graph, self.steps_with(&moved))
        });
        let Some((graph, steps)) = candidates.min_by_key(|(_, steps)| steps.len()) else { return Miss::Record };
        if steps.len() * FEW <= self.steps.len() {
            return Miss::Update { graph, steps };
        }
        match graphs.missed.iter().position(|known| known == starts) {
            // They came before, and may come again.
            Some(at) => {
                graphs.missed.remove(at);
                Miss::Record
            }
            None => Miss::Launch,
        }
    }

    /// The steps that use an input or output that was moved.
    fn steps_with(&self, moved: &[bool]) -> Vec<usize> {
        let inputs = self.trace.block.parameters.len();
        let is_moved = |value: &usize| match self.placement.slots[*value].base {
            Base::Input(input) => moved[input],
            Base::Output(output) => moved[inputs + output],
            Base::Arena(_) => false,
        };
        let uses = |step: &usize| {
            let step = &self.steps[*step];
            step.operands.iter().chain(&step.results).any(is_moved)
        };
        (0..self.steps.len()).filter(uses).collect()
    }

    /// Records the work of some steps, a piece each. Before the first piece of a whole program comes what begins a run.
    fn capture(
        &self,
        graphs: &mut Graphs,
        loaded: &Loaded,
        starts: &[DeviceAddress],
        steps: &[usize],
    ) -> Result<Graph> {
        let addresses = self.addresses(loaded, starts);
        // On a stream of its own: other threads may enqueue on the device's meanwhile, which is no part of the graph.
        let recorder = match &mut graphs.recorder {
            Some(recorder) => recorder,
            none => none.insert(Stream::new(loaded.state.context())?),
        };
        recorder.capture_pieces(CaptureMode::ThreadLocal, steps.len() + 1, |piece| match piece.checked_sub(1) {
            None if steps.len() == self.steps.len() => loaded.begin(recorder),
            None => Ok(()),
            Some(at) => self.enqueue(loaded, recorder, steps[at], &addresses),
        })
    }

    /// Records the work for these addresses.
    fn record(&self, graphs: &mut Graphs, loaded: &Loaded, starts: &[DeviceAddress]) -> Result<()> {
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let graph = self.capture(graphs, loaded, starts, &all)?;
        let executable = graph.instantiate()?;
        executable.upload(loaded.state.stream())?;
        self.graphs.fetch_add(1, Ordering::Relaxed);
        tracing::info!(function = self.trace.name, "recorded a graph");
        if graphs.list.len() == MOST_GRAPHS {
            graphs.list.remove(0);
        }
        graphs.list.push(Recorded { key: starts.to_vec(), graph, executable });
        Ok(())
    }

    /// Has a graph use these addresses, of which those of `steps` are new. It is then the last. False if it cannot, and is gone.
    fn update(
        &self,
        graphs: &mut Graphs,
        loaded: &Loaded,
        starts: &[DeviceAddress],
        graph: usize,
        steps: &[usize],
    ) -> Result<bool> {
        let mut recorded = graphs.list.remove(graph);
        if !steps.is_empty() {
            let other = self.capture(graphs, loaded, starts, steps)?;
            for (at, step) in steps.iter().enumerate() {
                if !recorded.executable.update(&recorded.graph, step + 1, &other, at + 1)? {
                    return Ok(false);
                }
            }
        }
        recorded.key = starts.to_vec();
        graphs.list.push(recorded);
        self.updates.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}
