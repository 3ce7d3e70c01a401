//! The generated tests of every operator, on the simulated device: `cargo test -p fulgurite-example-sim --test suite --
//! softmax::`. A crate outside of this repository says `fulgurite::testing::main_of_device("sim")`; here the stored
//! results of PyTorch are at hand as well.
//!
//! What depends on the device runs: its memory, streams and kernels. The suite of the library proves the other
//! templates on the host. A composite runs by the prims that it decomposes into, which are all tested here: of its own
//! tests one in four runs, and which ones differs from operator to operator. `-- --include-ignored` runs all.

use std::path::Path;
use std::process::ExitCode;

use fulgurite::DType;
use fulgurite::operator::OperatorKind;
use fulgurite::registry::find_operator;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{GeneratedTest, Settings, run_device};

// Naming the crate links the kind and its executor.
use fulgurite_example_sim as _;

/// Tests compile traces by the thousand: a fourth of their time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whether the device has no part of its own in what the test proves.
fn proven_on_the_host(test: &GeneratedTest) -> bool {
    let is_composite = find_operator(&test.operator).is_ok_and(|def| matches!(def.kind, OperatorKind::Composite));
    if is_composite && !is_chosen(test) {
        return true;
    }
    match test.template {
        Template::Bounds | Template::Determinism | Template::Effects | Template::InPlace | Template::Layout => false,
        Template::Errors | Template::Programs => false,
        // The kernels of the crate are tested in every element type by its own declarations.
        Template::Consistency => !matches!(test.dtype, Some(DType::F32 | DType::I64 | DType::Bool)),
        _ => true,
    }
}

/// One of four tests, by its name: always the same ones.
fn is_chosen(test: &GeneratedTest) -> bool {
    let sum = test.name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    sum % 4 == 0
}

fn main() -> ExitCode {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    run_device("sim", &Settings { golden, on_request: Some(proven_on_the_host), ..Settings::default() })
}
