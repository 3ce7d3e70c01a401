//! Fused regions: elementwise arithmetic, broadcasts and row reductions in one pass over memory.
//!
//! A [`FusedProgram`] says what is computed; a [`FusedKernel`] is the program prepared for one layout. The steps are
//! type inference (`values`), the iteration order (`layout`), the division into passes and the assignment of tiles
//! (`schedule`), and the interpreter (`task`, and `run` above it).

mod ahead;
mod kernel;
pub mod layout;
mod long_rows;
#[cfg(test)]
mod long_rows_tests;
mod merging;
mod plan;
mod program;
mod recognition;
mod run;
mod schedule;
mod task;
#[cfg(test)]
mod tests;
pub mod values;

pub use kernel::FusedKernel;
pub use program::{DivisionByZero, FusedNode, FusedProgram, OutputLayout};
