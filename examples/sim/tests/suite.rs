//! The generated tests of every operator, on the simulated device: `cargo test -p fulgurite-example-sim --test suite --
//! softmax::`. A crate outside of this repository says `fulgurite::testing::main_of_device("sim")`; here the stored
//! results of PyTorch are at hand as well.

use std::path::Path;
use std::process::ExitCode;

use fulgurite::testing::{Settings, run_device};

// Naming the crate links the kind and its executor.
use fulgurite_example_sim as _;

fn main() -> ExitCode {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    run_device("sim", &Settings { golden, ..Settings::default() })
}
