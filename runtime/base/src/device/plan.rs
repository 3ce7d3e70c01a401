//! The device work of one symbol: launches, library calls, fills and copies, in order, with places instead of
//! addresses.
//!
//! A plan is made without a device. Besides its operands and results it may use a declared workspace.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use fulgurite_kernels::launch::LaunchShape;

use super::command::{Address, Command, LibraryCall, Parameter, Payload, Place, Report, Source};
use super::host_work::{HostWork, Outside, StreamWork};
use super::kind::{DeviceKind, find_kind};
use super::properties::Properties;
use super::tensor::DeviceTensor;
use crate::argument::Arg;
use crate::error::{Failure, Result};
use crate::meta::Target;

/// The device work of a symbol: arguments with an operand in place of each tensor, and the results.
pub type PlanRule =
    &'static (dyn Fn(&mut Plan, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync);

/// The device work of a symbol being written down.
#[derive(Debug)]
pub struct Plan {
    kind: &'static dyn DeviceKind,
    properties: Properties,
    /// The present source, without the names that it is given.
    source: Option<SourceText>,
    /// Names that it is given, with their values.
    defines: Vec<(String, String)>,
    /// The present source as the last launch had it, which the next one shares if no define came between.
    shared: Option<Arc<Source>>,
    commands: Vec<Command>,
    workspace: u64,
    report: Option<Report>,
    /// Operands and the results that share their memory.
    overlaid: Vec<(u32, u32)>,
    /// Those of which the kernels make use.
    continued: Vec<(u32, u32)>,
    /// Operands that no kernel of the program writes.
    settled: Vec<u32>,
    /// Those of them that a plan relies on.
    in_place: Vec<u32>,
    /// Operands whose element `i` is `i`.
    counted: Vec<u32>,
    outside: Option<Outside>,
}

/// A source as its author wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    name: Cow<'static, str>,
    text: Cow<'static, str>,
}

impl SourceText {
    /// A text in the kind's language; messages call it `name`, such as `layer_norm.cu`. If it was put together from
    /// several files, a line `#line 1 "FILE"` is before each.
    pub fn new(name: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> SourceText {
        SourceText { name: name.into(), text: text.into() }
    }
}

/// Alignment of each piece of workspace, in bytes.
const WORKSPACE_ALIGNMENT: u64 = 256;

impl Plan {
    /// An empty plan for devices of a kind that have these properties.
    pub fn new(kind: &'static dyn DeviceKind, properties: Properties) -> Plan {
        Plan {
            kind,
            properties,
            source: None,
            defines: Vec::new(),
            shared: None,
            commands: Vec::new(),
            workspace: 0,
            report: None,
            overlaid: Vec::new(),
            continued: Vec::new(),
            settled: Vec::new(),
            in_place: Vec::new(),
            counted: Vec::new(),
            outside: None,
        }
    }

    /// An empty plan for a usual device of a target.
    ///
    /// # Errors
    /// If the target's kind is not linked.
    pub fn of(target: &Target) -> Result<Plan> {
        let kind = find_kind(target.kind())?;
        Ok(Plan::new(kind, kind.typical(target.architecture())))
    }

    /// The kind of device that is planned for.
    pub fn kind(&self) -> &'static dyn DeviceKind {
        self.kind
    }

    /// Declares that result number `result` shares the memory of operand number `operand`: the memory plan gave both
    /// one place.
    pub fn overlay(&mut self, operand: u32, result: u32) {
        self.overlaid.push((operand, result));
    }

    /// Declares that operand number `operand` is an input of the program that nothing of the program writes, and that
    /// is read where the caller has it if a plan asks [`Plan::is_settled`].
    pub fn settle(&mut self, operand: u32) {
        self.settled.push(operand);
    }

    /// Whether nothing of the program writes this operand: a kernel that
    /// [overlaps](fulgurite_kernels::launch::LaunchShape::overlaps_previous) the one before may read it while that one
    /// still runs.
    pub fn is_settled(&mut self, operand: &DeviceTensor) -> bool {
        let Place::Operand(operand) = operand.address.place else { return false };
        let found = self.settled.contains(&operand);
        if found {
            self.in_place.push(operand);
        }
        found
    }

    /// Operands of which [`Plan::is_settled`] was asked and true: the program must not copy them.
    pub fn read_in_place(&self) -> &[u32] {
        &self.in_place
    }

    /// Declares that element `i` of the memory of operand number `operand` is `i`.
    pub fn count(&mut self, operand: u32) {
        self.counted.push(operand);
    }

    /// Whether element `i` of this operand's memory, from its address on, is `i`: a kernel need not read it.
    pub fn is_counted(&self, operand: &DeviceTensor) -> bool {
        let known = matches!(operand.address.place, Place::Operand(operand) if self.counted.contains(&operand));
        known && operand.address.offset == 0
    }

    /// Whether a result shares the memory of an operand, so that its elements need no copy.
    pub fn lies_over(&mut self, result: &DeviceTensor, operand: &DeviceTensor) -> bool {
        let (Place::Operand(operand), Place::Result(result)) = (operand.address.place, result.address.place) else {
            return false;
        };
        let found = self.overlaid.contains(&(operand, result));
        if found {
            self.continued.push((operand, result));
        }
        found
    }

    /// Operands and results of which [`Plan::lies_over`] was asked and true.
    pub fn continued(&self) -> &[(u32, u32)] {
        &self.continued
    }

    /// The device that is planned for: the one that the program runs on where it is at hand, otherwise a usual one of
    /// the target's architecture.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// A usual device of the target's architecture, whatever device is at hand: for what decides the order of a sum,
    /// which must be the same on all of them.
    pub fn typical(&self) -> Properties {
        self.kind.typical(self.properties.architecture.as_deref())
    }

    /// The source that the following launches take their kernels from; forgets all defines. Files beside the
    /// declaration are named by [`source_files!`](crate::source_files): `plan.source(source_files!["scale.cu"])`.
    pub fn source(&mut self, source: SourceText) {
        self.source = Some(source);
        self.defines.clear();
        self.shared = None;
    }

    /// Gives a name a value in the source of the following launches. The line comes after the shared headers that the
    /// source includes, which have names of their own: there `T` is a template's parameter.
    pub fn define(&mut self, name: &str, value: impl Display) {
        self.defines.push((name.to_owned(), value.to_string()));
        self.shared = None;
    }

    /// Launches a kernel of the present source.
    ///
    /// # Errors
    /// If no source was named, or the kind cannot make one of it ([`DeviceKind::source`]).
    pub fn launch(&mut self, kernel: &str, shape: LaunchShape, parameters: Vec<Parameter>) -> Result<(), Failure> {
        let Some(SourceText { name, text }) = &self.source else {
            return Err(Failure::new("NoSource", format!("'{kernel}' is launched, but the plan names no source")));
        };
        let source = match &self.shared {
            Some(source) => source.clone(),
            None => Arc::new(self.kind.source(name, &self.defines, text)?),
        };
        self.shared = Some(source.clone());
        self.commands.push(Command::Launch { source, kernel: kernel.into(), shape, parameters });
        Ok(())
    }

    /// Launches a kernel of a source of its own, which is compiled unchanged.
    pub fn launch_from(&mut self, source: Source, kernel: &str, shape: LaunchShape, parameters: Vec<Parameter>) {
        self.commands.push(Command::Launch { source: Arc::new(source), kernel: kernel.into(), shape, parameters });
    }

    /// `bytes` bytes that the symbol alone uses while it runs, on a multiple of 256 bytes. Their content is
    /// unspecified.
    pub fn workspace(&mut self, bytes: u64) -> Address {
        let address = Address { place: Place::Workspace, offset: self.workspace };
        self.workspace += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        address
    }

    /// Where a kernel reports an index of `argument` that is out of range, by `report_fault(fault, code, index, size)`
    /// of a header of the kind (`fulgurite/faults.cuh` for CUDA); `code` is [`Parameter::FaultCode`].
    pub fn fault(&mut self, argument: &str) -> Address {
        let message = format!("{argument} holds {{index}}, expected 0 to below {{size}}");
        self.fault_of(Report { code: "IndexOutOfRange", message })
    }

    /// As [`Plan::fault`] for anything else that a kernel may find wrong with its data.
    pub fn fault_of(&mut self, report: Report) -> Address {
        self.report = Some(report);
        Address { place: Place::Fault, offset: 0 }
    }

    /// Describes a fault that the kernels report.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// A call of a library: what, and what it is done to.
    pub fn library(&mut self, payload: impl Payload, operands: impl IntoIterator<Item = Option<Address>>) {
        let operands = operands.into_iter().collect();
        let call = LibraryCall { payload: Arc::new(payload), operands, instead: Vec::new() };
        self.commands.push(Command::Library(Box::new(call)));
    }

    /// The whole symbol is run on the host: the plan has no commands.
    pub fn on_host(&mut self, work: HostWork) {
        self.outside = Some(Outside::Host(work));
    }

    /// The whole symbol is enqueued by a function of the host: the plan has no commands.
    pub fn on_stream(&mut self, work: StreamWork) {
        self.outside = Some(Outside::Stream(work));
    }

    /// The work of a symbol that has no commands.
    pub fn outside(&self) -> Option<&Outside> {
        self.outside.as_ref()
    }

    /// Any other command.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Fills a contiguous tensor with equal bytes.
    pub fn fill(&mut self, to: &DeviceTensor, byte: u8) {
        self.commands.push(Command::Fill { to: to.address, byte, bytes: to.meta.bytes() as u64 });
    }

    /// Copies between contiguous tensors of the same size in bytes.
    pub fn copy(&mut self, from: &DeviceTensor, to: &DeviceTensor) {
        self.commands.push(Command::Copy { from: from.address, to: to.address, bytes: to.meta.bytes() as u64 });
    }

    /// What `write` writes down, apart from the plan's own commands: see [`LibraryCall::instead`].
    ///
    /// # Errors
    /// Those of `write`.
    pub fn aside(&mut self, write: impl FnOnce(&mut Plan) -> Result<(), Failure>) -> Result<Vec<Command>, Failure> {
        let own = self.commands.len();
        let written = write(self);
        let aside = self.commands.split_off(own);
        written.map(|()| aside)
    }

    /// What was written down.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Bytes of workspace.
    pub fn workspace_bytes(&self) -> u64 {
        self.workspace
    }

    /// The commands.
    pub fn into_commands(self) -> Vec<Command> {
        self.commands
    }
}

/// The source in files beside the caller: `source_files!["rows.cuh", "softmax.cu"]`. The last one gives it its name;
/// those before it are what several sources of a crate share. Compilers' messages name the file and its line.
#[macro_export]
macro_rules! source_files {
    ($($file:literal),+ $(,)?) => {{
        const FILES: &[&str] = &[$($file),+];
        let text = concat!($("#line 1 \"", $file, "\"\n", include_str!($file), "\n"),+);
        $crate::device::SourceText::new(FILES[FILES.len() - 1], text)
    }};
}

/// Arguments of a kernel: `binds![out, input, rows as u32]`.
#[macro_export]
macro_rules! binds {
    ($($value:expr),* $(,)?) => { vec![$($crate::device::Parameter::from($value)),*] };
}
