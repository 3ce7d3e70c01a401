//! What device work consists of: launches, calls of libraries, fills and copies, with places instead of addresses.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use fulgurite_kernels::launch::LaunchShape;
use fulgurite_kernels::mesh::Axis;
use smallvec::SmallVec;

use crate::failure::Failure;

/// What an address is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The symbol's n-th tensor operand: its first element.
    Operand(u32),
    /// The symbol's n-th result.
    Result(u32),
    /// The plan's workspace.
    Workspace,
    /// Where kernels report an index out of range; see [`Plan::fault`](super::Plan::fault).
    Fault,
}

/// A place in device memory that is known when the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// What it is counted from.
    pub place: Place,
    /// Bytes from the start of the place.
    pub offset: u64,
}

impl Address {
    /// The address `bytes` bytes further.
    pub fn offset(self, bytes: u64) -> Address {
        Address { offset: self.offset + bytes, ..self }
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// A pointer.
    Address(Address),
    /// A structure of pointers, passed by value. (The launch has room for 32764 bytes of arguments from compute
    /// capability 7.0 on.)
    Addresses(Vec<Address>),
    /// A value of these bytes.
    Value(SmallVec<[u8; 8]>),
    /// The fault code of the symbol, an `unsigned`, that a kernel gives to `report_fault`.
    FaultCode,
    /// The place along an axis of the rank that loads the program, an `unsigned long long`.
    PlaceAlong(Axis),
}

impl Parameter {
    /// Its size as a kernel takes it, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Parameter::Address(_) | Parameter::PlaceAlong(_) => 8,
            Parameter::Addresses(addresses) => 8 * addresses.len(),
            Parameter::Value(bytes) => bytes.len(),
            Parameter::FaultCode => 4,
        }
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

/// A text in the language of a kind of device, and how it is compiled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// What messages call it, such as `layer_norm.cu`.
    pub name: Arc<str>,
    /// The text. It includes no files but headers that the kind supplies.
    pub text: Arc<str>,
    /// What else the compiler is told.
    pub options: Vec<String>,
}

/// What a backend does in a library call: a type of the backend's own, by which it finds what to do. The runtime only
/// hands it on.
pub trait Payload: Any + Debug + Send + Sync {
    /// Whether both are the same call.
    fn equals(&self, other: &dyn Payload) -> bool;
}

impl<T: Any + Debug + Send + Sync + PartialEq> Payload for T {
    fn equals(&self, other: &dyn Payload) -> bool {
        (other as &dyn Any).downcast_ref::<T>() == Some(self)
    }
}

/// A call of a library.
#[derive(Debug, Clone)]
pub struct LibraryCall {
    /// The call itself.
    pub payload: Arc<dyn Payload>,
    /// What it is done to, in the order that the payload's type says; `None` for an operand that the call does without.
    pub operands: SmallVec<[Option<Address>; 8]>,
    /// What is done instead if the library cannot do it on the device at hand, which is known when the program is
    /// loaded. Empty if that is an error.
    pub instead: Vec<Command>,
}

impl PartialEq for LibraryCall {
    fn eq(&self, other: &LibraryCall) -> bool {
        self.payload.equals(&*other.payload) && self.operands == other.operands && self.instead == other.instead
    }
}

impl LibraryCall {
    /// The payload, if it is a `T`.
    pub fn payload<T: Payload>(&self) -> Option<&T> {
        (&*self.payload as &dyn Any).downcast_ref()
    }
}

/// One piece of device work.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A kernel.
    Launch {
        /// Where it comes from.
        source: Arc<Source>,
        /// Name of the kernel in the source.
        kernel: String,
        /// Grid, block, cluster, shared memory.
        shape: LaunchShape,
        /// In the order of its parameters.
        parameters: Vec<Parameter>,
    },
    /// A call of a library, or of anything else that the backend runs by itself.
    Library(Box<LibraryCall>),
    /// Equal bytes.
    Fill {
        /// The first byte.
        to: Address,
        /// Each byte's value.
        byte: u8,
        /// Size in bytes.
        bytes: u64,
    },
    /// A copy of bytes.
    Copy {
        /// First byte of the source.
        from: Address,
        /// First byte of the destination.
        to: Address,
        /// Size in bytes.
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
