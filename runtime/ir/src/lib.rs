//! Programs and what they are written with: traces, their text, the verifier; the tracer, which builds them; records of
//! executors, implementations and rewrites; the types of all rules, and what the expansions of the macros call.
//!
//! The tracer is on this floor since the verifier computes metas again: the meta of a composite operator follows from
//! its decomposition, which is traced code. It knows no transform, no memory plan's maker, and runs nothing.

pub mod comparison;
pub mod cost;
pub mod executor;
pub mod expansion;
pub mod gradient;
pub mod kernel;
pub mod rules;
pub mod testing;
pub mod trace;
pub mod tracer;
pub mod traffic;

// The ground floor, under the names that macros of this crate and its users say.
pub use fulgurite_base::{Array, DType, Device, Error, Failure, Result, Target, TensorMeta};
pub use fulgurite_base::{
    argument, arithmetic, array, array_tree, attribute_enum, binds, device, dlpack, dyn_tree, elementwise, error,
    exchange, failure, fuel, host_kernel, mesh, meta, operator, precision, random, ranks, reference, refusal,
    registered, registry, source_files, stream_kind, strided, tree,
};
pub use tracer::Tensor;

/// What expansions need and authors do not.
#[doc(hidden)]
pub mod __private {
    pub use linkme;
}
