//! The templates that declarations generate tests from, random programs, and changed plans. What a declaration is
//! tested with (samples, directives) is a part of every declaration, and is in [`fulgurite_ir::testing`].
//!
//! The templates need the facade's feature `testing`; a test target without a harness runs them in a few lines, for the
//! operators of whatever crates it links:
//!
//! ```no_run
//! use my_operators as _;
//! # mod my_operators {}
//! # mod fulgurite { pub use fulgurite_testing as testing; }
//!
//! fn main() -> std::process::ExitCode {
//!     fulgurite::testing::main()
//! }
//! // A crate that tests what it declares: fulgurite::main_of_crate!()
//! ```

pub use fulgurite_ir::testing::{directives, rules, samples};

mod callers;
mod causes;
pub mod concerned;
mod exact;
mod executor_list;
mod facts;
pub mod fuzz;
mod generate;
pub mod golden;
mod interpret;
pub mod mutation;
mod pointers;
mod problem;
pub mod registry;
mod run;
mod snapshot;
mod subject;
mod templates;
mod test;
mod tolerance;

pub use generate::{Filter, generated_tests, sampled_dtypes, unmatched_directives};
pub use run::{check, main, main_of, main_of_device, main_of_package, run, run_device};
pub use templates::sources::{check_launches, in_part};
pub use test::{GeneratedTest, Outcome, Settings};

// The floors below, under the names that their own files have.
use fulgurite_compile::transforms;
use fulgurite_ir::{Array, DType, Device, Error, Result, TensorMeta};
use fulgurite_ir::{
    argument, arithmetic, array, device, elementwise, error, executor, failure, fuel, kernel, mesh, meta, operator,
    precision, ranks, reference, stream_kind, strided, trace, tracer,
};
use fulgurite_run::{choices, compile, program};
