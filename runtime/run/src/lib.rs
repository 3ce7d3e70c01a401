//! Planned traces made ready to run and run; `jit`, which compiles on the first call; and candidates that are measured,
//! so that the fastest takes a call.

pub mod choices;
mod fallback;
pub mod jit;
pub mod program;
pub mod whole;

pub use jit::jit;

/// From an acquired trace to a program.
pub mod compile {
    pub use crate::whole::{compile, compile_split, compile_traced, prepare, with_records};
    pub use fulgurite_compile::compile::*;
}

// The floors below, under the names that their own files have.
use fulgurite_compile::transforms;
use fulgurite_ir::{DType, Error, Tensor};
use fulgurite_ir::{
    argument, array, cost, device, error, executor, fuel, host_kernel, kernel, meta, operator, precision, ranks,
    registered, stream_kind, strided, testing, trace, tracer, traffic, tree,
};
