//! What declarations are tested with: samples, directives, tolerances, and the templates of the generated tests.
//!
//! Samples and directives are part of every declaration. The templates need the feature `testing`; a test target
//! without a harness runs them in a few lines, for the operators of whatever crates it links:
//!
//! ```no_run
//! use my_operators as _;
//! # mod my_operators {}
//! # #[cfg(feature = "testing")]
//! fn main() -> std::process::ExitCode {
//!     fulgurite_runtime::testing::main()
//! }
//! // A crate that tests what it declares: fulgurite::main_of_crate!()
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

pub mod directives;
pub mod rules;
pub mod samples;

#[cfg(feature = "testing")]
mod causes;
#[cfg(feature = "testing")]
mod exact;
#[cfg(feature = "testing")]
mod facts;
#[cfg(feature = "testing")]
pub mod fuzz;
#[cfg(feature = "testing")]
mod generate;
#[cfg(feature = "testing")]
pub mod golden;
#[cfg(feature = "testing")]
mod interpret;
#[cfg(feature = "testing")]
pub mod mutation;
#[cfg(feature = "testing")]
mod problem;
#[cfg(feature = "testing")]
pub mod registry;
#[cfg(feature = "testing")]
mod run;
#[cfg(feature = "testing")]
mod snapshot;
#[cfg(feature = "testing")]
mod subject;
#[cfg(feature = "testing")]
mod templates;
#[cfg(feature = "testing")]
mod test;
#[cfg(feature = "testing")]
mod tolerance;

#[cfg(feature = "testing")]
pub use generate::{Filter, generated_tests, sampled_dtypes, unmatched_directives};
#[cfg(feature = "testing")]
pub use run::{check, main, main_of, main_of_device, main_of_package, run, run_device};
#[cfg(feature = "testing")]
pub use templates::sources::in_part;
#[cfg(feature = "testing")]
pub use test::{GeneratedTest, Outcome, Settings};
