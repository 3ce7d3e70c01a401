//! The tests that the declarations of the book generate: `cargo test -p fulgurite-book`.

use std::process::ExitCode;

// Naming the crate links its declarations.
use fulgurite_book as _;

fn main() -> ExitCode {
    fulgurite::main_of_crate!()
}
