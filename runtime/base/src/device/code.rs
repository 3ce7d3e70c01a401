//! The work of a program as a backend loads it: commands with places, and where the places are found in a run.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_kernels::launch::DeviceAddress;

use super::command::{Address, Command, LibraryCall, Place};
use super::error::{Category, DeviceError};
use super::stream::DeviceStream;
use crate::stream_kind::StreamKind;

/// Size of a record in device memory: the fault code of the reporting symbol as u32, four bytes of padding, and two
/// i64, the value found and the number that it must be below.
pub const RECORD_BYTES: usize = 24;

/// What a value's address is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The program's own memory.
    Own,
    /// The n-th of the addresses that a run is given: of inputs, and behind them of fresh outputs.
    Given(usize),
}

/// Where a value starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// What it is counted from.
    pub root: Root,
    /// Bytes from the root.
    pub offset: i64,
}

/// The work of one symbol.
#[derive(Debug, Clone)]
pub struct CodeStep {
    /// The commands in the order in which they run.
    pub commands: Vec<Command>,
    /// Indices of values.
    pub operands: Vec<usize>,
    /// Indices of values.
    pub results: Vec<usize>,
    /// The meaning of [`super::Parameter::FaultCode`].
    pub fault_code: u32,
    /// The stream that it runs on.
    pub stream: StreamKind,
    /// Steps that must have ended before it begins, beside those before it on its stream.
    pub after: Vec<usize>,
}

/// The work of a program.
#[derive(Debug)]
pub struct DeviceCode {
    /// The function's name.
    pub name: Arc<str>,
    /// The steps in the order of the program.
    pub steps: Vec<CodeStep>,
    /// Where each value starts.
    pub values: Vec<Location>,
    /// Where the workspace of the steps of each stream is in the program's own memory, by [`StreamKind::index`].
    pub workspaces: [u64; StreamKind::ALL.len()],
}

/// Memory of a program that stays where it is.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// The program's own memory. Nothing is in it while code is loaded, which may use it meanwhile.
    pub own: DeviceAddress,
    /// Size of `own` in bytes.
    pub bytes: usize,
    /// Where kernels report wrong data, if one of them checks its data; see [`super::Plan::fault`].
    pub fault: Option<DeviceAddress>,
}

impl Room {
    /// Enqueues what comes before a run's first step: nothing is reported yet.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin(&self, stream: &dyn DeviceStream) -> Result<(), DeviceError> {
        match self.fault {
            // SAFETY: the record was allocated with as many bytes, and is used by work of this program alone, which is
            // in one order.
            Some(record) => unsafe { stream.fill(record, 0, RECORD_BYTES) },
            None => Ok(()),
        }
    }
}

/// Where everything is in one run.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The address of each value.
    pub values: Vec<DeviceAddress>,
    /// Of the workspace of each stream, by [`StreamKind::index`].
    pub workspaces: [DeviceAddress; StreamKind::ALL.len()],
    /// Where kernels report wrong data.
    pub fault: DeviceAddress,
}

impl Addresses {
    /// Where a place of a step is.
    pub fn at(&self, step: &CodeStep, address: &Address) -> DeviceAddress {
        let start = match address.place {
            Place::Operand(n) => self.values[step.operands[n as usize]],
            Place::Result(n) => self.values[step.results[n as usize]],
            Place::Workspace => self.workspaces[step.stream.index()],
            Place::Fault => self.fault,
        };
        start.offset(address.offset as usize)
    }
}

/// Whether two runs have the same addresses. Those of one allocation are not compared: hundreds of them may be in no
/// cache of the processor.
pub fn same_addresses(known: &Arc<[DeviceAddress]>, given: &Arc<[DeviceAddress]>) -> bool {
    Arc::ptr_eq(known, given) || known == given
}

impl DeviceCode {
    /// Where everything is in a run with these addresses of inputs and fresh outputs.
    pub fn addresses(&self, room: &Room, given: &[DeviceAddress]) -> Addresses {
        let of = |location: &Location| {
            let root = match location.root {
                Root::Own => room.own,
                Root::Given(n) => given[n],
            };
            DeviceAddress(root.0.wrapping_add_signed(location.offset))
        };
        Addresses {
            values: self.values.iter().map(of).collect(),
            workspaces: self.workspaces.map(|start| room.own.offset(start as usize)),
            fault: room.fault.unwrap_or(DeviceAddress::NULL),
        }
    }

    /// Where in the program's own memory an address of a step is; `None` for what a run is given, and for the record of
    /// faults.
    pub fn own(&self, step: &CodeStep, address: &Address) -> Option<u64> {
        let of_value = |value: usize| match self.values[value] {
            Location { root: Root::Own, offset } => u64::try_from(offset).ok(),
            Location { root: Root::Given(_), .. } => None,
        };
        let start = match address.place {
            Place::Operand(n) => of_value(step.operands[n as usize]),
            Place::Result(n) => of_value(step.results[n as usize]),
            Place::Workspace => Some(self.workspaces[step.stream.index()]),
            Place::Fault => None,
        };
        start.map(|start| start + address.offset)
    }

    /// The commands of each step that run on the present device. A library call for which `runs` returns false is
    /// replaced by its [`LibraryCall::instead`], and so are the calls in there.
    ///
    /// # Errors
    /// The errors of `runs`, and [`Category::Unsupported`] for a call without a replacement. Both name the step.
    pub fn commands(
        &self,
        mut runs: impl FnMut(&LibraryCall) -> Result<bool, DeviceError>,
    ) -> Result<Vec<Vec<&Command>>, CodeError> {
        let mut steps = Vec::with_capacity(self.steps.len());
        for (i, step) in self.steps.iter().enumerate() {
            let mut chosen = Vec::with_capacity(step.commands.len());
            // The next one is the last.
            let mut left: Vec<&Command> = step.commands.iter().rev().collect();
            while let Some(command) = left.pop() {
                match command {
                    Command::Library(call) if !runs(call).map_err(|error| CodeError::at(i, error))? => {
                        if call.instead.is_empty() {
                            let message = format!("the device's library cannot do {:?}", call.payload);
                            return Err(CodeError::at(i, DeviceError::new(Category::Unsupported, message)));
                        }
                        left.extend(call.instead.iter().rev());
                    }
                    _ => chosen.push(command),
                }
            }
            steps.push(chosen);
        }
        Ok(steps)
    }

    /// The streams beside that of computation that steps are on.
    pub fn other_streams(&self) -> Vec<StreamKind> {
        let other = |stream: &StreamKind| {
            *stream != StreamKind::Compute && self.steps.iter().any(|step| step.stream == *stream)
        };
        StreamKind::ALL.into_iter().filter(other).collect()
    }

    /// For each step whether another waits for it.
    pub fn awaited(&self) -> Vec<bool> {
        let mut awaited = vec![false; self.steps.len()];
        self.steps.iter().flat_map(|step| &step.after).for_each(|step| awaited[*step] = true);
        awaited
    }

    /// The steps that use an input or output that is elsewhere in a run with `given` than in one with `known`.
    pub fn moved_steps(&self, known: &[DeviceAddress], given: &[DeviceAddress]) -> Vec<usize> {
        let moved: Vec<bool> = known.iter().zip(given).map(|(known, given)| known != given).collect();
        let is_moved = |value: &usize| matches!(self.values[*value].root, Root::Given(n) if moved[n]);
        let uses = |step: &CodeStep| step.operands.iter().chain(&step.results).any(is_moved);
        (0..self.steps.len()).filter(|step| uses(&self.steps[*step])).collect()
    }
}

/// An error of a backend, and the step that it comes from, where that is known.
#[derive(Debug, Clone)]
pub struct CodeError {
    /// The step that failed, if one did.
    pub step: Option<usize>,
    /// The error of the device.
    pub error: DeviceError,
}

impl CodeError {
    /// The error of one step.
    pub fn at(step: usize, error: impl Into<DeviceError>) -> CodeError {
        CodeError { step: Some(step), error: error.into() }
    }
}

impl<E: Into<DeviceError>> From<E> for CodeError {
    fn from(error: E) -> CodeError {
        CodeError { step: None, error: error.into() }
    }
}

/// How runs were replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayCounts {
    /// Graphs recorded.
    pub graphs: usize,
    /// Those of them with work of several streams side by side.
    pub branched: usize,
    /// Runs that replayed a graph.
    pub replays: usize,
    /// Runs for which a graph was updated, since inputs or outputs were elsewhere.
    pub updates: usize,
    /// Graphs that could not be updated.
    pub refused: usize,
    /// The host's time in the driver's launches of graphs, of all replays together.
    pub launching: Duration,
}

/// Code ready to run on its device. The runtime drops it after the work that uses it has ended.
pub trait LoadedCode: Send {
    /// Enqueues one step on the stream, which the runtime chose by [`CodeStep::stream`]; it has seen to what the step
    /// waits for.
    ///
    /// # Safety
    /// The addresses must be those of the step's operands, results and workspace, allocated, and used by no work that
    /// is not ordered with the stream. That a kernel stays within them is its author's promise.
    ///
    /// # Errors
    /// The backend's.
    unsafe fn step(&mut self, stream: &dyn DeviceStream, step: usize, addresses: &Addresses)
    -> Result<(), DeviceError>;

    /// Enqueues a whole run, with what comes before its first step, in a way that costs the host less than its steps:
    /// as a graph that is recorded once and replayed. Where steps are on several streams, the backend sees to what they
    /// wait for, and `stream` goes on when all have ended. False if nothing was enqueued, and the steps are to be. It
    /// is called from the second run on. A run that is given the same allocation as one before has the addresses of
    /// that run ([`same_addresses`]).
    ///
    /// # Safety
    /// As [`LoadedCode::step`], for every step.
    ///
    /// # Errors
    /// The backend's.
    unsafe fn replay(&mut self, stream: &dyn DeviceStream, given: &Arc<[DeviceAddress]>) -> Result<bool, CodeError> {
        let _ = (stream, given);
        Ok(false)
    }

    /// Says to the other ranks of the program that its steps are about to be enqueued one by one. It is called before
    /// the steps of a run for which [`LoadedCode::replay`] was not asked.
    ///
    /// # Errors
    /// If another rank runs another program, or has ended.
    fn step_together(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// How runs were replayed.
    fn counts(&self) -> ReplayCounts {
        ReplayCounts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(byte: u8) -> Command {
        Command::Fill { to: Address { place: Place::Workspace, offset: 0 }, byte, bytes: 1 }
    }

    fn call(payload: &'static str, instead: Vec<Command>) -> Command {
        let operands = smallvec::SmallVec::new();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(payload), operands, instead }))
    }

    fn code(commands: Vec<Command>) -> DeviceCode {
        let step = |commands| CodeStep {
            commands,
            operands: Vec::new(),
            results: Vec::new(),
            fault_code: 0,
            stream: StreamKind::Compute,
            after: Vec::new(),
        };
        let steps = vec![step(vec![fill(1)]), step(commands)];
        DeviceCode { name: "f".into(), steps, values: Vec::new(), workspaces: [0; 3] }
    }

    #[test]
    fn calls_that_a_library_cannot_do_are_replaced() {
        let runs = |call: &LibraryCall| Ok(call.payload::<&str>() == Some(&"known"));
        let inner = call("unknown", vec![fill(3), call("known", Vec::new())]);
        let code = code(vec![fill(2), call("unknown", vec![inner, fill(4)]), fill(5)]);
        let commands = code.commands(runs).unwrap();
        let expected = [fill(2), fill(3), call("known", Vec::new()), fill(4), fill(5)];
        assert_eq!(commands[0], [&fill(1)]);
        assert_eq!(commands[1], expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_call_without_a_replacement_is_an_error_of_its_step() {
        let error = code(vec![call("unknown", Vec::new())]).commands(|_| Ok(false)).unwrap_err();
        assert_eq!((error.step, error.error.category()), (Some(1), Category::Unsupported));
        assert_eq!(error.error.to_string(), "the device's library cannot do \"unknown\"");
        let failing = |_: &LibraryCall| Err(DeviceError::new(Category::Other, "no library"));
        assert_eq!(code(vec![call("unknown", Vec::new())]).commands(failing).unwrap_err().step, Some(1));
    }
}
