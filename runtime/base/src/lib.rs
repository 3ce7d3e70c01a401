//! The ground floor of the compiler: errors, metas, arguments, the records of operators and their registry, kinds of
//! devices with their memory and plans, and arrays. It knows no trace.
//!
//! [`Device`] and [`Target`] ask the kinds of devices what they are, an error names the
//! device that failed and the operator that was called, and an array is memory of a device: these are one floor.

pub mod argument;
pub mod arithmetic;
pub mod array;
pub mod array_tree;
pub mod device;
pub mod dlpack;
pub mod dyn_tree;
pub mod elementwise;
pub mod error;
pub mod exchange;
mod external;
pub mod failure;
pub mod fuel;
pub mod host_kernel;
pub mod meta;
pub mod operator;
mod panic_places;
pub mod precision;
pub mod random;
pub mod reference;
pub mod refusal;
pub mod registered;
pub mod registry;
pub mod stream_kind;
pub mod strided;
pub mod tree;

pub use array::Array;
pub use error::{Error, Failure, Result};
pub use fulgurite_kernels::{DType, mesh, ranks};
pub use meta::{Device, Target, TensorMeta};
