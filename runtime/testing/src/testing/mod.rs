//! What declarations are tested with: samples, directives, tolerances, and the templates of the generated tests.
//!
//! Samples and directives are part of every declaration. The templates need the feature `testing`; a test target
//! without a harness runs them in a few lines, for the operators of whatever crates it links:
//!
//! ```no_run
//! use my_operators as _;
//! # mod my_operators {}
//! # use fulgurite_testing as fulgurite;
//!
//! fn main() -> std::process::ExitCode {
//!     fulgurite::testing::main()
//! }
//! // A crate that tests what it declares: fulgurite::main_of_crate!()
//! ```

pub use fulgurite_ir::testing::{directives, rules, samples};

mod causes;
pub mod concerned;
mod exact;
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
pub use templates::sources::in_part;
pub use test::{GeneratedTest, Outcome, Settings};
