//! The device work of one symbol: launches, library calls, fills and copies, in order, with places instead of addresses.
//!
//! A plan is made without a device. What it needs beside its operands and results is a declared workspace.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use fulgurite_kernels::cuda::cublaslt::Problem;
use fulgurite_kernels::cuda::{LaunchShape, sources};
use smallvec::SmallVec;

use crate::argument::Arg;
use crate::error::{Failure, Result};
use crate::meta::TensorMeta;

/// The device work of a symbol: arguments with an operand in place of each tensor, and the results.
pub type PlanRule = fn(&mut Plan, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure>;

/// What an address is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The symbol's n-th tensor operand: its first element.
    Operand(u32),
    /// The symbol's n-th result.
    Result(u32),
    /// The plan's workspace.
    Workspace,
    /// Where kernels report an index out of range; see [`Plan::fault`].
    Fault,
}

/// A place in device memory that is known when the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// What it is counted from.
    pub place: Place,
    /// In bytes.
    pub offset: u64,
}

impl Address {
    /// The address `bytes` bytes further.
    pub fn offset(self, bytes: u64) -> Address {
        Address { offset: self.offset + bytes, ..self }
    }
}

/// A tensor that a device kernel reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTensor {
    /// Shape, element type, device.
    pub meta: TensorMeta,
    /// In elements.
    pub strides: Vec<isize>,
    /// Of its first element.
    pub address: Address,
    /// The address is a multiple of this number of bytes, a power of two.
    pub alignment: usize,
}

impl Deref for DeviceTensor {
    type Target = TensorMeta;
    fn deref(&self) -> &TensorMeta {
        &self.meta
    }
}

impl DeviceTensor {
    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        fulgurite_kernels::view::is_contiguous(self.meta.shape(), &self.strides)
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// A pointer.
    Address(Address),
    /// A structure of pointers, passed by value. (The launch has room for 32764 bytes of arguments from compute capability 7.0
    /// on.)
    Addresses(Vec<Address>),
    /// A value of these bytes.
    Value(SmallVec<[u8; 8]>),
    /// Who the symbol is, an `unsigned`: what a kernel gives to `report_fault`.
    FaultCode,
}

impl From<&DeviceTensor> for Parameter {
    fn from(operand: &DeviceTensor) -> Parameter {
        Parameter::Address(operand.address)
    }
}
impl From<Address> for Parameter {
    fn from(address: Address) -> Parameter {
        Parameter::Address(address)
    }
}
impl From<Vec<Address>> for Parameter {
    fn from(addresses: Vec<Address>) -> Parameter {
        Parameter::Addresses(addresses)
    }
}
macro_rules! values {
    ($($ty:ty)*) => {$(
        impl From<$ty> for Parameter {
            fn from(value: $ty) -> Parameter {
                Parameter::Value(SmallVec::from_slice(&value.to_le_bytes()))
            }
        }
    )*};
}
values! { i32 u32 i64 u64 f32 f64 }
/// A structure of integers, passed by value.
impl<const N: usize> From<[i64; N]> for Parameter {
    fn from(values: [i64; N]) -> Parameter {
        Parameter::Value(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}
impl From<usize> for Parameter {
    fn from(value: usize) -> Parameter {
        Parameter::from(value as u64)
    }
}

/// CUDA C++ and how it is compiled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// What messages call it, such as `layer_norm.cu`.
    pub name: Arc<str>,
    /// The text. It includes no headers.
    pub text: Arc<str>,
    /// What else NVRTC is told.
    pub options: Vec<String>,
}

/// One piece of device work.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A kernel.
    Launch {
        /// Where it comes from.
        source: Arc<Source>,
        /// Its name (`extern "C"`).
        kernel: String,
        /// Grid, block, cluster, shared memory.
        shape: LaunchShape,
        /// In the order of its parameters.
        parameters: Vec<Parameter>,
    },
    /// A product of matrices.
    Matmul {
        /// What product.
        problem: Box<Problem>,
        /// Left operand.
        a: Address,
        /// Right operand.
        b: Address,
        /// What is added if the product accumulates; otherwise, and if it is absent, what is written.
        c: Option<Address>,
        /// What is written.
        d: Address,
        /// The epilogue's vector.
        bias: Option<Address>,
        /// The epilogue's matrix.
        aux: Option<Address>,
        /// A factor of the product.
        alpha: f64,
        /// Its workspace and the bytes of it.
        workspace: (Address, u64),
        /// What is done instead if the library has no algorithm for the product on the device at hand, which is known when
        /// the program is loaded. Empty if that is an error.
        instead: Vec<Command>,
    },
    /// Equal bytes.
    Fill {
        /// The first byte.
        to: Address,
        /// Each byte's value.
        byte: u8,
        /// How many.
        bytes: u64,
    },
    /// A copy of bytes.
    Copy {
        /// From here.
        from: Address,
        /// To here.
        to: Address,
        /// How many.
        bytes: u64,
    },
}

/// What `report_fault(fault, code, index, size)` of a kernel means: a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The failure's code.
    pub code: &'static str,
    /// Its message, with `{index}` and `{size}` where the kernel's numbers belong.
    pub message: String,
}

impl Report {
    /// The failure for the numbers that a kernel left.
    pub fn failure(&self, index: i64, size: i64) -> Failure {
        let message = self.message.replace("{index}", &index.to_string()).replace("{size}", &size.to_string());
        Failure::new(self.code, message)
    }
}

/// The device work of a symbol being written down.
#[derive(Debug, Default)]
pub struct Plan {
    architecture: String,
    /// The name and the text of the present source, without what comes before it.
    source: Option<(Arc<str>, String)>,
    /// Its defines, as lines.
    defines: String,
    /// The present source as the last launch had it, which the next one shares if no define came between.
    shared: Option<Arc<Source>>,
    commands: Vec<Command>,
    workspace: u64,
    report: Option<Report>,
    /// Operands and the results that lie over them.
    overlaid: Vec<(u32, u32)>,
    /// Those of which the kernels make use.
    continued: Vec<(u32, u32)>,
}

/// Alignment of each piece of workspace, in bytes.
const WORKSPACE_ALIGNMENT: u64 = 256;

impl Plan {
    /// An empty plan for an architecture such as `sm_90a`.
    pub fn new(architecture: &str) -> Plan {
        Plan { architecture: architecture.to_owned(), ..Plan::default() }
    }

    /// Says that result number `result` lies over operand number `operand`: the memory plan gave both one place.
    pub fn overlay(&mut self, operand: u32, result: u32) {
        self.overlaid.push((operand, result));
    }

    /// Whether a result lies over an operand, so that its elements are there already and need no copy.
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

    /// The architecture that kernels are compiled for.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The source that the following launches take their kernels from, after the shared header; forgets all defines.
    pub fn source(&mut self, name: &str, text: &str) {
        self.source = Some((name.into(), text.to_owned()));
        self.defines.clear();
        self.shared = None;
    }

    /// Gives a name a value in the source of the following launches. The line comes after the shared header, which has names of its
    /// own, and after what the compiler itself includes: there `T` is a template's parameter.
    pub fn define(&mut self, name: &str, value: impl Display) {
        self.defines += &format!("#define {name} {value}\n");
        self.shared = None;
    }

    /// Launches a kernel of the present source.
    ///
    /// # Errors
    /// If no source was named, or the folder of [`sources::SOURCES_VARIABLE`] cannot be read.
    pub fn launch(&mut self, kernel: &str, shape: LaunchShape, parameters: Vec<Parameter>) -> Result<(), Failure> {
        let Some((name, text)) = &self.source else {
            return Err(Failure::new("NoSource", format!("'{kernel}' is launched, but the plan names no source")));
        };
        let source = match &self.shared {
            Some(source) => source.clone(),
            None => {
                let unread = |reason| Failure::new("Sources", reason);
                let header = sources::header().map_err(unread)?;
                let text = sources::edited(name, text).map_err(unread)?;
                let text = format!("{header}\n{}#line 1 \"{name}\"\n{text}", self.defines).into();
                // No contraction of products and sums: the device computes what the host computes.
                Arc::new(Source { name: name.clone(), text, options: vec!["--fmad=false".to_owned()] })
            }
        };
        self.shared = Some(source.clone());
        self.commands.push(Command::Launch { source, kernel: kernel.into(), shape, parameters });
        Ok(())
    }

    /// Launches a kernel of a source of its own, which stands as it is.
    pub fn launch_from(&mut self, source: Source, kernel: &str, shape: LaunchShape, parameters: Vec<Parameter>) {
        self.commands.push(Command::Launch { source: Arc::new(source), kernel: kernel.into(), shape, parameters });
    }

    /// `bytes` bytes that the symbol alone uses while it runs, on a multiple of 256 bytes. Their content is unspecified.
    pub fn workspace(&mut self, bytes: u64) -> Address {
        let address = Address { place: Place::Workspace, offset: self.workspace };
        self.workspace += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
        address
    }

    /// Where a kernel reports an index of `argument` that is out of range, by `report_fault(fault, code, index, size)` of the
    /// shared header; `code` is [`Parameter::FaultCode`].
    pub fn fault(&mut self, argument: &str) -> Address {
        let message = format!("{argument} holds {{index}}, expected 0 to below {{size}}");
        self.fault_of(Report { code: "IndexOutOfRange", message })
    }

    /// As [`Plan::fault`] for anything else that a kernel may find wrong with its data.
    pub fn fault_of(&mut self, report: Report) -> Address {
        self.report = Some(report);
        Address { place: Place::Fault, offset: 0 }
    }

    /// What it means if the kernels report a fault.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Any other command.
    pub fn push(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Fills a contiguous tensor with equal bytes.
    pub fn fill(&mut self, to: &DeviceTensor, byte: u8) {
        self.commands.push(Command::Fill { to: to.address, byte, bytes: to.meta.bytes() as u64 });
    }

    /// Copies between contiguous tensors of as many bytes.
    pub fn copy(&mut self, from: &DeviceTensor, to: &DeviceTensor) {
        self.commands.push(Command::Copy { from: from.address, to: to.address, bytes: to.meta.bytes() as u64 });
    }

    /// What `write` writes down, apart from the plan's own commands: see `instead` of [`Command::Matmul`].
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

/// The outputs of a plan rule, one by one.
///
/// # Errors
/// If the symbol has another number of results.
pub fn outputs<const N: usize>(outputs: &[DeviceTensor]) -> Result<&[DeviceTensor; N], Failure> {
    let given = outputs.len();
    outputs
        .try_into()
        .map_err(|_| Failure::new("ResultCount", format!("the plan writes {N} results, the symbol has {given}")))
}

/// Arguments of a kernel: `binds![out, input, rows as u32]`.
#[macro_export]
macro_rules! binds {
    ($($value:expr),* $(,)?) => { vec![$($crate::device::Parameter::from($value)),*] };
}
