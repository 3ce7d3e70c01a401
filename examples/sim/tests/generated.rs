//! The tests that this crate's declarations generate: `cargo test -p fulgurite-example-sim`. They run on the simulated
//! device.

use std::process::ExitCode;

// Naming the crate links its declarations.
use fulgurite_example_sim as _;

fn main() -> ExitCode {
    fulgurite::main_of_crate!()
}
