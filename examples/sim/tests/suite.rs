//! The generated tests of every operator, on the simulated device: `cargo test -p fulgurite-example-sim --test suite --
//! softmax::`. A crate outside of this repository says `fulgurite::testing::main_of_device("sim")`; here the stored
//! results of PyTorch are at hand as well.
//!
//! What depends on the device runs: its memory, streams and kernels. The suite of the library proves the other
//! templates on the host; `-- --include-ignored` runs them here too.

use std::path::Path;
use std::process::ExitCode;

use fulgurite::DType;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{GeneratedTest, Settings, run_device};

// Naming the crate links the kind and its executor.
use fulgurite_example_sim as _;

/// Whether the device has no part of its own in what the test proves.
fn proven_on_the_host(test: &GeneratedTest) -> bool {
    match test.template {
        Template::Bounds | Template::Determinism | Template::Effects | Template::InPlace | Template::Layout => false,
        Template::Errors | Template::Programs => false,
        // The kernels of the crate are tested in every element type by its own declarations.
        Template::Consistency => !matches!(test.dtype, Some(DType::F32 | DType::I64 | DType::Bool)),
        _ => true,
    }
}

fn main() -> ExitCode {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    run_device("sim", &Settings { golden, on_request: Some(proven_on_the_host), ..Settings::default() })
}
