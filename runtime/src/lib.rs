//! The runtime of Fulgurite: traces and their text, tracing, transforms, executors and claims, the memory plan, `jit`,
//! the registry, and the templates of the generated tests. It knows no particular operator: what it needs of the
//! operator library (sums of cotangents, zeros) is wired by declared [roles](operator::Role).

// Expansions of the macros say `::fulgurite::...`; inside this crate that is the crate itself.
extern crate self as fulgurite;

pub mod argument;
pub mod arithmetic;
pub mod array;
pub mod backends;
pub mod choices;
pub mod comparison;
pub mod compile;
pub mod cost;
pub mod device;
pub mod dlpack;
mod elementwise;
pub mod error;
pub mod executor;
pub mod expansion;
mod external;
pub mod failure;
mod fallback;
pub mod fuel;
pub(crate) mod host_kernel;
pub mod jit;
pub mod kernel;
pub mod meta;
pub mod operator;
pub mod precision;
pub mod program;
pub mod reference;
pub mod refusal;
pub(crate) mod registered;
pub mod registration;
pub mod registry;
pub mod rules;
mod stream_kind;
pub mod strided;
pub mod testing;
pub mod trace;
pub mod tracer;
mod traffic;
pub mod transforms;
pub mod tree;

pub use array::Array;
pub use error::{Error, Failure, Result};
pub use fulgurite_kernels::DType;
pub use jit::jit;
pub use meta::{Device, Target, TensorMeta};
pub use tracer::Tensor;

/// What expansions need and authors do not.
#[doc(hidden)]
pub mod __private {
    pub use linkme;
}
