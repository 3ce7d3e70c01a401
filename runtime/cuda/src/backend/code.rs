//! A program loaded onto a CUDA device: its steps, and graphs of whole runs, recorded once, replayed, and updated where
//! an input or output is elsewhere.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Instant;

use crate::collectives::{Watch, Watched};
use crate::{CaptureMode, Context, CudaError, ExecutableGraph, Fill, Graph, NodeCounts, Stream};
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::ranks::{self, RankError};

use super::choice::{Choice, Miss};
use super::library::Libraries;
use super::recorders::Recorders;
use super::stream::CudaStream;
use super::work::{Link, Work, enqueue, fill_of, ready};
use fulgurite_base::device::{
    Addresses, CodeError, DeviceCode, DeviceError, DeviceStream, LoadedCode, RECORD_BYTES, ReplayCounts, Room,
    StreamKind, same_addresses,
};

/// Graphs that are kept for different addresses of large inputs and outputs.
const MOST_GRAPHS: usize = 4;

/// A graph, and the addresses of inputs and outputs that it uses.
struct Recorded {
    key: Arc<[DeviceAddress]>,
    /// What it was made from; an update names its nodes.
    graph: Graph,
    executable: ExecutableGraph,
}

/// A program on its device.
pub(super) struct CudaCode {
    context: Context,
    code: Arc<DeviceCode>,
    room: Room,
    /// The one used last is the last. The field is before `work`, so that graphs are dropped first: dropping a
    /// communicator waits until no graph has its transfers.
    graphs: Vec<Recorded>,
    /// The work of each step, in order.
    work: Vec<Vec<Work>>,
    /// If other ranks take part in it.
    collective: Option<Collectives>,
    /// Clears the record of faults, and fills what calls of libraries have the driver fill.
    fill: OnceCell<Option<Fill>>,
    choice: Choice,
    /// The streams that work is recorded on: other threads may enqueue on the device's meanwhile, which is no part of a
    /// graph.
    recorders: Option<Recorders>,
    counts: ReplayCounts,
}

impl CudaCode {
    /// Compiles sources, loads modules, plans products and attention.
    pub(super) fn load(
        context: &Context,
        libraries: &Libraries,
        code: &Arc<DeviceCode>,
        stream: &Stream,
        room: Room,
    ) -> Result<CudaCode, CodeError> {
        let work = ready(context, libraries, code, stream, room)?;
        Ok(CudaCode {
            context: context.clone(),
            collective: Collectives::of(code, &work, libraries),
            work,
            fill: match room.fault {
                Some(_) => OnceCell::from(fill_of(context)?),
                None => OnceCell::new(),
            },
            code: code.clone(),
            room,
            graphs: Vec::new(),
            choice: Choice::default(),
            recorders: None,
            counts: ReplayCounts::default(),
        })
    }

    /// # Safety
    /// As [`LoadedCode::step`].
    unsafe fn enqueue(&self, stream: &Stream, step: usize, addresses: &Addresses) -> Result<(), CudaError> {
        let of = &self.code.steps[step];
        // SAFETY: promised by the caller.
        unsafe { enqueue(&self.work[step], stream, of.fault_code, &|address| addresses.at(of, address)) }
    }

    /// Records the work of some steps, a piece each. Before the first piece of a whole program comes what begins a run.
    ///
    /// # Safety
    /// As [`LoadedCode::step`], for when the graph is launched.
    unsafe fn capture(&mut self, given: &[DeviceAddress], steps: &[usize]) -> Result<Graph, CodeError> {
        let addresses = self.code.addresses(&self.room, given);
        if self.recorders.is_none() {
            self.recorders = Some(Recorders::new(&self.context, &self.code)?);
        }
        let recorders = self.recorders.as_ref().unwrap_or_else(|| unreachable!("made above"));
        // Part of a program is recorded in one order: it only takes the place of nodes that are in their own.
        let whole = steps.len() == self.code.steps.len();
        let fences = recorders.fences.as_ref().filter(|_| whole);
        let main = recorders.main();
        let mut graph = main.capture_pieces(CaptureMode::ThreadLocal, steps.len() + 1, |piece| {
            let Some(at) = piece.checked_sub(1) else {
                if let Some(record) = self.room.fault.filter(|_| whole) {
                    // SAFETY: the record has as many bytes, and is used by work of this program alone, which the
                    // other streams of it go on behind.
                    unsafe {
                        match self.fill.get().and_then(Option::as_ref) {
                            Some(fill) => fill.enqueue(main, record, 0, RECORD_BYTES),
                            None => main.fill_u8(record, 0, RECORD_BYTES),
                        }
                    }?;
                }
                return Ok(fences.map_or(Ok(()), |fences| fences.begin(recorders))?);
            };
            let step = steps[at];
            let of = &self.code.steps[step];
            let stream = recorders.of(if fences.is_some() { of.stream } else { StreamKind::Compute });
            let record = || -> Result<(), DeviceError> {
                fences.map_or(Ok(()), |fences| fences.before(stream, &of.after))?;
                // SAFETY: promised by the caller.
                unsafe { self.enqueue(stream.raw(), step, &addresses) }?;
                let Some(fences) = fences else { return Ok(()) };
                fences.after(stream, step)?;
                if step + 1 == self.code.steps.len() { fences.end(recorders) } else { Ok(()) }
            };
            record().map_err(|error| CodeError::at(step, error))
        })?;
        if graph.node_counts()?.fills > 0 {
            if self.fill.get().is_none() {
                self.fill = OnceCell::from(fill_of(&self.context)?);
            }
            if let Some(Some(fill)) = self.fill.get() {
                graph.fill_by(fill)?;
            }
        }
        Ok(graph)
    }

    /// Records the work for these addresses.
    ///
    /// # Safety
    /// As [`CudaCode::capture`].
    unsafe fn record(&mut self, stream: &Stream, given: &Arc<[DeviceAddress]>) -> Result<(), CodeError> {
        let all: Vec<usize> = (0..self.code.steps.len()).collect();
        // SAFETY: promised by the caller.
        let graph = unsafe { self.capture(given, &all) }?;
        let executable = graph.instantiate()?;
        executable.upload(stream)?;
        self.counts.graphs += 1;
        self.counts.branched += usize::from(!graph.is_chain());
        if tracing::enabled!(tracing::Level::INFO) {
            let NodeCounts { kernels, copies, fills, others } = graph.node_counts()?;
            tracing::info!(function = %self.code.name, kernels, copies, fills, others, "recorded a graph");
        }
        if self.graphs.len() == MOST_GRAPHS {
            self.graphs.remove(0);
        }
        self.graphs.push(Recorded { key: given.clone(), graph, executable });
        Ok(())
    }

    /// Has a graph use these addresses, of which those of `steps` are new. It is then the last. False if it cannot, and
    /// is gone.
    ///
    /// # Safety
    /// As [`CudaCode::capture`].
    unsafe fn update(
        &mut self,
        given: &Arc<[DeviceAddress]>,
        graph: usize,
        steps: &[usize],
    ) -> Result<bool, CodeError> {
        let mut recorded = self.graphs.remove(graph);
        if !steps.is_empty() {
            // SAFETY: promised by the caller.
            let other = unsafe { self.capture(given, steps) }?;
            for (at, step) in steps.iter().enumerate() {
                if !recorded.executable.update(&recorded.graph, step + 1, &other, at + 1)? {
                    return Ok(false);
                }
            }
        }
        recorded.key = given.clone();
        self.graphs.push(recorded);
        self.counts.updates += 1;
        Ok(true)
    }
}

/// The links of a program's collectives.
fn links(work: &[Vec<Work>]) -> impl Iterator<Item = &Link> {
    work.iter().flatten().filter_map(|work| match work {
        Work::Collective { link, .. } => Some(link),
        _ => None,
    })
}

/// What is watched of a program with collectives.
struct Collectives {
    watch: Arc<Watch>,
    /// Whether all ranks must record and launch graphs together.
    together: bool,
    whole: Arc<Watched>,
    /// Of the steps that have some.
    steps: Vec<Option<Arc<Watched>>>,
}

impl Collectives {
    fn of(code: &DeviceCode, work: &[Vec<Work>], libraries: &Libraries) -> Option<Collectives> {
        let watched = |work: &mut dyn Iterator<Item = &Work>| {
            let all: Vec<_> = work
                .filter_map(|work| match work {
                    Work::Collective { link, collective, .. } => Some((link, collective)),
                    _ => None,
                })
                .collect();
            let texts: Vec<String> = all.iter().map(|(_, collective)| collective.told()).collect();
            let waits = match &texts[..] {
                [] => return None,
                [only] => format!("'{}', in {only}", code.name),
                [first, .., last] => {
                    format!("'{}', in one of {} collectives from {first} to {last}", code.name, texts.len())
                }
            };
            let groups = all.iter().map(|(link, _)| link.waiting()).collect();
            Some(Arc::new(Watched { waits, groups }))
        };
        Some(Collectives {
            watch: libraries.groups.watch.clone(),
            together: links(work).any(|link| matches!(link, Link::Nccl(_))),
            whole: watched(&mut work.iter().flatten())?,
            steps: work.iter().map(|work| watched(&mut work.iter())).collect(),
        })
    }
}

impl CudaCode {
    /// Fails where this program's collectives would wait in vain.
    fn check_ranks(&self) -> Result<(), CudaError> {
        let Some(collectives) = &self.collective else { return Ok(()) };
        let run = ranks::run_number();
        if links(&self.work).any(|link| link.run_number() != run) {
            return Err(RankError::OtherSimulation.into());
        }
        collectives.watch.check_known()?;
        match ranks::ended() {
            Some(ended) => {
                let called = format!("a run of '{}'", self.code.name);
                Err(RankError::Ended { rank: ranks::rank(), called, ended }.into())
            }
            None => Ok(()),
        }
    }

    /// The least that the ranks of this program offer.
    fn agree(&self, own: Way) -> Result<u8, CudaError> {
        Ok(ranks::least(&format!("a run of '{}'", self.code.name), own as u8)?)
    }

    /// Whether all ranks run this program by a graph, which NCCL wants of its collectives: while it records them it
    /// waits for the other ranks to do the same. They do if each of them has a graph; if one has none for its
    /// addresses, all record one where they came before on each, and launch where they did not.
    fn together(&mut self, given: &Arc<[DeviceAddress]>) -> Result<bool, CodeError> {
        let at = self.graphs.iter().position(|recorded| same_addresses(&recorded.key, given));
        let own = match at {
            Some(_) => Way::Replay,
            None if self.graphs.is_empty() || self.choice.came_before(given) => Way::Record,
            None => Way::Launch,
        };
        let agreed = self.agree(own)?;
        if let (Some(at), true) = (at, agreed == Way::Record as u8) {
            self.graphs.remove(at);
        }
        if agreed == Way::Launch as u8 && at.is_none() {
            self.choice.came_again(given);
        }
        Ok(agreed != Way::Launch as u8)
    }
}

/// How a rank can run a program. The least of what the ranks offer is what all of them do.
#[derive(Clone, Copy)]
enum Way {
    Launch = 0,
    Record = 1,
    Replay = 2,
}

impl LoadedCode for CudaCode {
    unsafe fn step(
        &mut self,
        stream: &dyn DeviceStream,
        step: usize,
        addresses: &Addresses,
    ) -> Result<(), DeviceError> {
        let stream = CudaStream::of(stream)?.raw();
        // SAFETY: promised by the caller.
        unsafe { self.enqueue(stream, step, addresses) }?;
        if let Some(Collectives { watch, steps, .. }) = &self.collective
            && let Some(watched) = &steps[step]
        {
            watch.mark(stream, watched)?;
        }
        Ok(())
    }

    /// Replays a graph for these addresses. False if there is none, and it is not known that the addresses come again.
    unsafe fn replay(&mut self, stream: &dyn DeviceStream, given: &Arc<[DeviceAddress]>) -> Result<bool, CodeError> {
        let stream = CudaStream::of(stream)?.raw();
        self.check_ranks()?;
        let together = self.collective.as_ref().is_some_and(|collectives| collectives.together);
        if together && !self.together(given)? {
            return Ok(false);
        }
        match self.graphs.iter().rposition(|recorded| same_addresses(&recorded.key, given)) {
            Some(at) if at + 1 < self.graphs.len() => {
                let recorded = self.graphs.remove(at);
                self.graphs.push(recorded);
            }
            Some(_) => {}
            // SAFETY: promised by the caller.
            None if together => unsafe { self.record(stream, given) }?,
            // A graph with flags of other ranks is not updated.
            None if self.collective.is_some() => {
                if !self.graphs.is_empty() && !self.choice.came_before(given) {
                    return Ok(false);
                }
                // SAFETY: promised by the caller.
                unsafe { self.record(stream, given) }?;
            }
            None => {
                let moved: Vec<Vec<usize>> =
                    self.graphs.iter().map(|recorded| self.code.moved_steps(&recorded.key, given)).collect();
                match self.choice.miss(moved.into_iter(), self.code.steps.len(), given) {
                    // SAFETY: promised by the caller.
                    Miss::Record => unsafe { self.record(stream, given) }?,
                    Miss::Update { graph, steps } => {
                        // SAFETY: promised by the caller.
                        if !unsafe { self.update(given, graph, &steps) }? {
                            self.choice.refuse(given);
                            self.counts.refused += 1;
                            return Ok(false);
                        }
                    }
                    Miss::Launch => return Ok(false),
                }
            }
        }
        if let Some(recorded) = self.graphs.last() {
            let started = Instant::now();
            // SAFETY: the graph uses the program's memory, and inputs and outputs at these addresses, all alive as the
            // caller promises.
            unsafe { recorded.executable.launch(stream) }?;
            self.counts.launching += started.elapsed();
            self.counts.replays += 1;
            if let Some(Collectives { watch, whole, .. }) = &self.collective {
                watch.mark(stream, whole)?;
            }
        }
        Ok(true)
    }

    fn step_together(&mut self) -> Result<(), DeviceError> {
        self.check_ranks()?;
        if self.collective.as_ref().is_some_and(|collectives| collectives.together) {
            self.agree(Way::Launch)?;
        }
        Ok(())
    }

    fn counts(&self) -> ReplayCounts {
        self.counts
    }
}
