//! Planned traces made ready to run: kernels prepared once, memory laid out, run as often as needed.

mod ceilings;
mod device;
mod host;
mod overwritten;
mod placement;
mod profile;
mod totals;

use std::fmt;
use std::sync::Arc;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::meta::Device;
use crate::ranks;
use crate::trace::verify::on_the_mesh;
use crate::trace::{BoundSymbol, Trace};
use crate::transforms::plan::{MemoryUse, memory_use};
use overwritten::note_overwritten;

pub use ceilings::{Ceiling, Ceilings, Source};
pub use device::RunCounts;
pub use overwritten::with_overwritten;
pub use profile::{Profile, Span, SymbolTime};
pub use totals::Totals;

/// A program ready to run.
pub struct Program {
    trace: Arc<Trace>,
    memory: MemoryUse,
    ready: Ready,
    /// Whether other ranks wait for collectives of it.
    collective: bool,
}

enum Ready {
    Host(Box<host::HostProgram>),
    Device(Box<device::DeviceProgram>),
}

/// A state that is bound to a program.
pub(crate) struct BoundState(device::bound::State);

impl BoundState {
    /// The arrays of the state, as the last run left them.
    pub(crate) fn into_arrays(self) -> Vec<Array> {
        self.0.into_arrays()
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({}, {} symbols)", self.trace.name, self.trace.block.symbols.len())
    }
}

impl Program {
    /// Prepares a planned trace (every symbol claimed, every value placed). Needs no device: that of the target is
    /// opened when the program first runs.
    ///
    /// # Errors
    /// If the trace breaks a rule of the language or of the memory plan ([`Trace::verify`]), the predicted peak is
    /// above `limit` bytes, or a symbol has no kernel.
    pub fn new(trace: Trace, limit: Option<u64>) -> Result<Program> {
        trace.verify()?;
        Program::trusted(trace, limit)
    }

    /// As [`Program::new`], of a trace that the verifier need not see: it was verified, or it is what the transforms
    /// made of one. Kernels read and write where the plan says, so that running a plan that does not verify is
    /// undefined behaviour.
    pub fn trusted(trace: Trace, limit: Option<u64>) -> Result<Program> {
        on_the_mesh(&trace).map_err(|elsewhere| elsewhere.error())?;
        let trace = Arc::new(trace);
        let placement = placement::Placement::new(&trace)?;
        let mut memory = memory_use(&trace);
        let ready = if Device::is_host(trace.target.kind()) {
            // A plan that is too large is refused before anything is prepared.
            within(&memory, limit)?;
            Ready::Host(Box::new(host::HostProgram::new(trace.clone(), placement)?))
        } else {
            let program = device::DeviceProgram::new(trace.clone(), placement)?;
            memory = program.memory_use();
            within(&memory, limit)?;
            Ready::Device(Box::new(program))
        };
        let collective = trace.block.symbols.iter().any(BoundSymbol::is_ordered);
        Ok(Program { trace, memory, ready, collective })
    }

    /// The trace that is run.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What the plan predicts.
    pub fn memory(&self) -> MemoryUse {
        self.memory
    }

    /// How often it ran, and how; `None` on the host, where there is nothing to record.
    pub fn counts(&self) -> Option<RunCounts> {
        match &self.ready {
            Ready::Host(_) => None,
            Ready::Device(program) => Some(program.counts()),
        }
    }

    /// The device sources of its kernels, each once, in the order of their first use; none on the host.
    pub fn sources(&self) -> Vec<Arc<crate::device::Source>> {
        match &self.ready {
            Ready::Host(_) => Vec::new(),
            Ready::Device(program) => program.sources(),
        }
    }

    /// The device sources of each symbol that has any, with the symbol's number in [`Program::trace`]; none on the
    /// host.
    pub fn sources_by_symbol(&self) -> Vec<(usize, Vec<Arc<crate::device::Source>>)> {
        match &self.ready {
            Ready::Host(_) => Vec::new(),
            Ready::Device(program) => program.sources_by_symbol(),
        }
    }

    /// Has the program loaded on its device, with its kernels compiled, as its first run does otherwise.
    pub fn load(&self) -> Result<()> {
        match &self.ready {
            Ready::Host(_) => Ok(()),
            Ready::Device(program) => program.hold().map(drop),
        }
    }

    /// Whether a device's program takes these inputs; the host's looks at them when it runs.
    pub(crate) fn check_inputs(&self, inputs: &[Array]) -> Result<()> {
        match &self.ready {
            Ready::Host(_) => Ok(()),
            Ready::Device(program) => program.check_inputs(inputs),
        }
    }

    /// Runs the program. Donated inputs that are updated in place must not be shared. On a device the work is enqueued:
    /// what goes wrong there is told when an output is read.
    pub fn run(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.with_ranks(|| {
            self.check_inputs(&inputs)?;
            self.run_matching(inputs)
        })
    }

    /// Runs something that other ranks may wait for, and tells them if it fails.
    fn with_ranks<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = run();
        if done.is_err() && self.collective {
            ranks::fail();
        }
        done
    }

    /// Runs the program on inputs that are known to have the metas and strides it was compiled for: looking at hundreds
    /// of them again takes longer than having a graph replayed.
    pub(crate) fn run_matching(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.with_ranks(|| match &self.ready {
            Ready::Host(program) => program.run(inputs),
            Ready::Device(program) => program.run(inputs),
        })
    }

    /// Keeps the first `count` of `outputs`, those of a run of this program, as the state of the runs to come, which
    /// look at none of it; the rest are left. `None`, and all are left, where the program does not update that state in
    /// place on a device, or another array shares a part of it.
    pub(crate) fn bind(&self, outputs: &mut Vec<Array>, count: usize) -> Option<BoundState> {
        match &self.ready {
            Ready::Host(_) => None,
            Ready::Device(program) => program.bind(outputs, count).map(BoundState),
        }
    }

    /// Runs the program on the state that was bound to it and the inputs behind that, which are known to have the metas
    /// and strides that it takes. The outputs behind the state. After an error the state is not to be used.
    pub(crate) fn run_bound(&self, state: &BoundState, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.with_ranks(|| match &self.ready {
            Ready::Host(_) => unreachable!("no state is bound to a program of the host"),
            Ready::Device(program) => program.run_bound(&state.0, inputs).inspect_err(|_| note_overwritten()),
        })
    }

    /// Runs the program and says how long each symbol took: indices into the trace's symbols, in the order of the run.
    pub fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
        self.with_ranks(|| match &self.ready {
            Ready::Host(program) => program.run_timed(inputs),
            Ready::Device(program) => program.run_timed(inputs),
        })
    }

    /// Runs the program and says where the time went.
    pub fn profile(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Profile)> {
        let (outputs, times) = self.run_timed(inputs)?;
        Ok((outputs, Profile::new(&self.trace, &times)))
    }

    /// Launches every kernel by itself instead of replaying a graph, and waits for each symbol, so that an error of the
    /// device names the symbol. On the host there is no difference.
    pub fn without_graph(mut self) -> Program {
        if let Ready::Device(program) = &mut self.ready {
            program.without_graph();
        }
        self
    }

    /// Runs the program with every value in memory of its own between guard bytes, filled with NaN beforehand. An error
    /// if a kernel leaves part of a result unwritten (it stays NaN for the caller to see), writes past the end of a
    /// result, or changes an operand; on the host also if a kernel that takes any strides writes something else, or
    /// elsewhere, to results with gaps between their elements.
    pub fn run_checked(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        self.with_ranks(|| match &self.ready {
            Ready::Host(program) => program.run_checked(inputs),
            Ready::Device(program) => program.run_checked(inputs),
        })
    }

    /// The program planned for operands that are aligned to an element alone, as views of an array may be: for
    /// [`Program::run_checked`], which then places every value so. `None` on the host, whose kernels ask each address.
    ///
    /// # Errors
    /// If a kernel cannot be planned for such operands.
    pub fn least_aligned(&self) -> Result<Option<Program>> {
        let Ready::Device(program) = &self.ready else { return Ok(None) };
        let ready = Ready::Device(Box::new(program.least_aligned()?));
        Ok(Some(Program { trace: self.trace.clone(), memory: self.memory, ready, collective: self.collective }))
    }

    /// Whether some of its work is done by a library, which chooses algorithms by the alignment of operands among
    /// others.
    pub fn has_library_work(&self) -> bool {
        matches!(&self.ready, Ready::Device(program) if program.has_library_work())
    }

    /// Runs the program with every value where the plan has it, on copies of the inputs, in fenced memory filled with
    /// NaN; what a value leaves behind after its last use is filled as well. An error if a kernel writes to anything
    /// but its results or leaves part of a result unwritten. On a device it is run as always, and what reads memory too
    /// late is found by comparing with [`Program::run_checked`].
    pub fn run_planned(&self, inputs: Vec<Array>) -> Result<Vec<Array>> {
        match &self.ready {
            Ready::Host(program) => self.with_ranks(|| program.run_planned(inputs)),
            Ready::Device(_) => {
                let copies = inputs.iter().map(Array::to_contiguous).collect::<Result<_>>()?;
                self.run(copies)?.iter().map(Array::to_host).collect()
            }
        }
    }
}

fn within(memory: &MemoryUse, limit: Option<u64>) -> Result<()> {
    match limit {
        Some(limit) if memory.peak() > limit => Err(Error::PlanTooLarge {
            predicted: memory.peak(),
            resident: memory.inputs.saturating_add(memory.outputs),
            transient: memory.transient,
            limit,
            tried: String::new(),
        }),
        _ => Ok(()),
    }
}
