//! The runtime of Fulgurite: traces and their text, tracing, transforms, executors and claims, the memory plan, `jit`,
//! the registry, and the templates of the generated tests. It knows no particular operator: what it needs of the
//! operator library (sums of cotangents, zeros) is wired by declared [roles](operator::Role).
//!
//! This crate is the roof over the compiler's crates, which are beside it in this folder; each uses those below it
//! alone. It gives their modules one root, for those that use several of them, and has no code of its own.
//!
//! | crate | what is in it |
//! |---|---|
//! | `fulgurite-base` | errors, metas, arguments, records of operators, kinds of devices, memory, arrays |
//! | `fulgurite-cuda` | NVIDIA GPUs: their kind of device, libraries, compilation, the printer of kernels |
//! | `fulgurite-ir` | traces, their text, the verifier, the tracer, the types of all rules |
//! | `fulgurite-compile` | transforms, autodiff, rewriting, the executor of each call, the stages |
//! | `fulgurite-run` | programs, `jit`, candidates that are measured |
//! | `fulgurite-testing` | the templates of the generated tests, random programs, changed plans |

pub use fulgurite_compile::{registration, transforms};
pub use fulgurite_ir::{
    Array, DType, Device, Error, Failure, Result, Target, Tensor, TensorMeta, argument, arithmetic, array, array_tree,
    comparison, cost, device, dlpack, dyn_tree, error, exchange, executor, expansion, failure, fuel, gradient, kernel,
    mesh, meta, operator, precision, random, ranks, reference, refusal, registry, rules, stream_kind, strided, trace,
    tracer, traffic, tree,
};
pub use fulgurite_ir::{attribute_enum, binds, refuse_unless, require, source_files};
pub use fulgurite_run::{choices, compile, jit, program};

/// Buffers, strided views and the building blocks that host kernels are written with; and those of CUDA.
pub mod kernels {
    pub use fulgurite_cuda as cuda;
    pub use fulgurite_ir::rules::fulgurite_kernels::*;
}

/// The kinds of devices that come with the runtime.
pub mod backends {
    pub use fulgurite_cuda::backend as cuda;
}

pub use kernels::BUILD;

#[cfg(not(feature = "testing"))]
pub use fulgurite_ir::testing;
#[cfg(feature = "testing")]
pub use fulgurite_testing as testing;
#[cfg(feature = "testing")]
pub use fulgurite_testing::main_of_crate;

#[doc(hidden)]
pub use fulgurite_ir::{
    __arguments, __codes, __functions, __given, __gradients, __method, __operator, __private, __rule, __set, __write,
};
