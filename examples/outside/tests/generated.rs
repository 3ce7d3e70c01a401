//! The tests that this crate's declarations generate: `cargo test -p fulgurite-example-outside`.

use std::process::ExitCode;

// Naming the crate links its declarations.
use fulgurite_example_outside as _;

fn main() -> ExitCode {
    fulgurite::main_of_crate!()
}
