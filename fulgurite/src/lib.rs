//! Fulgurite: a tensor compiler for the people who write operators and kernels.
//!
//! This crate is all that an author of operators depends on. It has the runtime at its root ([`jit`](jit()),
//! [`Tensor`], [`Array`], traces, transforms), the macros that declare operators, the operator library in [`ops`] and
//! its executors in [`executors`]. Models are the crate `fulgurite-models`, the command is `fulgurite-command`.
//! Expansions of the macros say `::fulgurite::...`, so that a crate which names this one can declare operators:
//!
//! ```
//! use fulgurite::prelude::*;
//!
//! /// Three times the input.
//! #[operator]
//! pub mod thrice {
//!     fn thrice(input: Tensor<Floating>) -> Tensor;
//!
//!     fn decomposition(input: Tensor) -> Tensor {
//!         input + input + input
//!     }
//!
//!     fn samples(s: &mut Samples) {
//!         s.elementwise_unary(Domain::ALL);
//!     }
//! }
//!
//! assert_eq!(fulgurite::registry::find_operator("thrice")?.signature(), "thrice(input: tensor) -> tensor");
//! # Ok::<(), fulgurite::Error>(())
//! ```

// What the macros need must be found at `::fulgurite`, in this crate's own tests as well.
extern crate self as fulgurite;

#[cfg(feature = "notebook")]
pub mod notebook;

// Naming these crates is also what links their operators and executors into a program.
pub use fulgurite_executors as executors;
pub use fulgurite_ops as ops;
pub use fulgurite_ops_macros::{Tree, executor, implementation, operator, operator_files, operators, rewrite};
pub use fulgurite_runtime::*;

#[doc(hidden)]
pub use fulgurite_runtime::__private;

/// What programs and declarations of operators are written with.
pub mod prelude {
    pub use crate::ops::prelude::*;
    // `Result` is left out: rules of a declaration have their own.
    pub use crate::random::Random;
    pub use crate::tree::Leaf;
    pub use crate::{Array, Error, Failure, Target, jit};
    pub use crate::{Tree, executor, implementation, operator, operator_files, operators, rewrite};
}

/// The Rust blocks of the README and of the book are documentation tests of this crate.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/src/one-call.md")]
    struct OneCall;
    #[doc = include_str!("../../docs/src/concepts.md")]
    struct Concepts;
    #[doc = include_str!("../../docs/src/own-model.md")]
    struct OwnModel;
    #[doc = include_str!("../../docs/src/prim.md")]
    struct Prim;
    #[doc = include_str!("../../docs/src/composite.md")]
    struct Composite;
    #[doc = include_str!("../../docs/src/symbol.md")]
    struct Symbol;
    #[doc = include_str!("../../docs/src/implementation.md")]
    struct Implementation;
    #[doc = include_str!("../../docs/src/choices.md")]
    struct Choices;
    #[doc = include_str!("../../docs/src/executor.md")]
    struct Executor;
    #[doc = include_str!("../../docs/src/device.md")]
    struct Device;
    #[doc = include_str!("../../docs/src/derivatives.md")]
    struct Derivatives;
    #[doc = include_str!("../../docs/src/in-place.md")]
    struct InPlace;
    #[doc = include_str!("../../docs/src/rewrite.md")]
    struct Rewrite;
    #[doc = include_str!("../../docs/src/transform.md")]
    struct Transform;
    #[doc = include_str!("../../docs/src/registration.md")]
    struct Registration;
    #[doc = include_str!("../../docs/src/dlpack.md")]
    struct Dlpack;
    #[doc = include_str!("../../docs/src/autocast.md")]
    struct MixedPrecision;
    #[doc = include_str!("../../docs/src/ranks.md")]
    struct Ranks;
    #[doc = include_str!("../../docs/src/reading-traces.md")]
    struct ReadingTraces;
    #[doc = include_str!("../../docs/src/cuda.md")]
    struct Cuda;
    #[doc = include_str!("../../docs/src/experiment.md")]
    struct Experiment;
    #[doc = include_str!("../../docs/src/liger.md")]
    struct LigerInALlama;
    #[doc = include_str!("../../docs/src/llama.md")]
    struct Llama;
    #[doc = include_str!("../../docs/src/tinyllama.md")]
    struct TinyLlama;
    #[doc = include_str!("../../docs/src/files.md")]
    struct Files;
    #[doc = include_str!("../../docs/src/testing.md")]
    struct Testing;
}
