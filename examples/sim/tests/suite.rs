//! The generated tests of every operator, on the simulated device: what it lacks is decomposed, or run by the host.
//! `cargo test -p fulgurite-example-sim --test suite -- softmax::`

use std::process::ExitCode;

// Naming the crate links the kind and its executor.
use fulgurite_example_sim as _;

fn main() -> ExitCode {
    fulgurite::testing::main_of_device("sim")
}
