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
    choice: Choice,
    /// The stream that work is recorded on.
    recorder: Option<Stream>,
}

/// How it is decided what to do with addresses that no graph has.
#[derive(Debug, Default)]
struct Choice {
    /// Addresses that were run without a graph, the latest last.
    missed: Vec<Vec<DeviceAddress>>,
    /// A graph of this program could not be updated. No other is tried: what fails once fails each time, after the
    /// work of recording the steps.
    fixed: bool,
}

impl Choice {
    /// `graphs` are those that there are: for each the number of its steps that have other addresses in this run, if
    /// `count` is the number of all steps.
    fn miss(&mut self, graphs: impl Iterator<Item = Vec<usize>>, count: usize, starts: &[DeviceAddress]) -> Miss {
        if !self.fixed {
            // The graph with the fewest steps that are different.
            match graphs.enumerate().min_by_key(|(_, steps)| steps.len()) {
                None => return Miss::Record,
                Some((graph, steps)) if steps.len() * FEW <= count => return Miss::Update { graph, steps },
                Some(_) => {}
            }
        }
        match self.missed.iter().position(|known| known == starts) {
            // They came before, and may come again.
            Some(at) => {
                self.missed.remove(at);
                Miss::Record
            }
            None => {
                self.remember(starts);
                Miss::Launch
            }
        }
    }

    /// Addresses that are run without a graph.
    fn remember(&mut self, starts: &[DeviceAddress]) {
        if self.missed.len() == MOST_MISSED {
            self.missed.remove(0);
        }
        self.missed.push(starts.to_vec());
    }

    /// A graph could not be updated for these addresses.
    fn refuse(&mut self, starts: &[DeviceAddress]) {
        self.fixed = true;
        self.remember(starts);
    }
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
            None => {
                let differing: Vec<Vec<usize>> =
                    graphs.list.iter().map(|recorded| self.steps_with(&recorded.key, starts)).collect();
                match graphs.choice.miss(differing.into_iter(), self.steps.len(), starts) {
                    Miss::Record => self.record(graphs, loaded, starts)?,
                    Miss::Update { graph, steps } => {
                        if !self.update(graphs, loaded, starts, graph, &steps)? {
                            graphs.choice.refuse(starts);
                            self.refused.fetch_add(1, Ordering::Relaxed);
                            return self.launch(loaded, starts, |_, _| Ok(()));
                        }
                    }
                    Miss::Launch => return self.launch(loaded, starts, |_, _| Ok(())),
                }
            }
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

    /// The steps that use an input or output that is at another address than `known` says.
    fn steps_with(&self, known: &[DeviceAddress], starts: &[DeviceAddress]) -> Vec<usize> {
        let moved: Vec<bool> = known.iter().zip(starts).map(|(known, start)| known != start).collect();
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

#[cfg(test)]
mod tests {
    use super::{Choice, DeviceAddress, MOST_MISSED, Miss};

    /// Two of eight steps have the input.
    const STEPS: [usize; 2] = [3, 4];

    fn miss(choice: &mut Choice, graphs: usize, address: u64) -> Miss {
        choice.miss((0..graphs).map(|_| STEPS.to_vec()), 8, &[DeviceAddress(address)])
    }

    #[test]
    fn a_graph_is_updated_as_long_as_that_works() {
        let mut choice = Choice::default();
        assert_eq!(miss(&mut choice, 0, 1), Miss::Record, "the first one");
        for address in 2..100 {
            assert_eq!(miss(&mut choice, 1, address), Miss::Update { graph: 0, steps: STEPS.to_vec() });
        }
    }

    #[test]
    fn where_updates_fail_no_graph_is_recorded_for_addresses_that_never_come_again() {
        let mut choice = Choice::default();
        assert!(matches!(miss(&mut choice, 1, 1), Miss::Update { .. }));
        choice.refuse(&[DeviceAddress(1)]);
        let mut recorded = 0;
        for address in 2..100 {
            // The one that could not be updated is gone, and another is there later.
            match miss(&mut choice, usize::from(address > 50), address) {
                Miss::Record => recorded += 1,
                Miss::Update { .. } => panic!("it is known to fail"),
                Miss::Launch => {}
            }
        }
        assert_eq!(recorded, 0);
        assert!(choice.missed.len() <= MOST_MISSED);
    }

    #[test]
    fn where_updates_fail_addresses_that_come_again_have_a_graph_each() {
        let mut choice = Choice::default();
        choice.refuse(&[DeviceAddress(1)]);
        assert_eq!(miss(&mut choice, 1, 2), Miss::Launch);
        assert_eq!(miss(&mut choice, 1, 1), Miss::Record, "it was run when the update failed");
        assert_eq!(miss(&mut choice, 2, 2), Miss::Record);
    }
}
