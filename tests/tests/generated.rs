//! What the declarations of `fulgurite-ops` generate, and those of `builders`, one trial each:
//! `cargo test -p fulgurite-tests --test generated -- rms_norm::`.

use std::path::Path;
use std::process::ExitCode;

use fulgurite_runtime::testing::{Settings, run};
use libtest_mimic::{Failed, Trial};

// Without this the linker leaves every declaration out.
use fulgurite_executors as _;
// Its allocator.
use fulgurite_tests as _;

#[path = "../src/builders.rs"]
mod builders;
mod registry;

fn main() -> ExitCode {
    let trial = |name: &str, test: fn() -> Result<(), String>| {
        Trial::test(format!("registry::{name}"), move || test().map_err(Failed::from))
    };
    let trials = vec![
        trial("names_are_unique", registry::names_are_unique),
        trial("implementations_name_what_exists", registry::implementations_name_what_exists),
        trial("operators_name_no_executor", registry::operators_name_no_executor),
        trial("default_lists_have_executors", registry::default_lists_have_executors),
    ];
    // Declarations that nothing links would have no tests.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository");
    let executors =
        ["cpu", "cublaslt", "cuda", "cudnn", "decode", "flash", "liger", "llmc", "optim", "regions", "unsloth"];
    let crates = executors.iter().map(|name| root.join("executors").join(name)).chain([root.join("ops")]);
    let sources = crates.map(|folder| folder.join("src")).collect();
    run(&Settings { sources, ..Settings::default() }, trials)
}
