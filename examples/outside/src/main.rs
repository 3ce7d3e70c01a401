//! The `fulgurite` command with this crate's operators besides the library's, and its training step.

// Naming the crate links its declarations.
use fulgurite_example_outside::training;

fn main() -> std::process::ExitCode {
    fulgurite_command::main_with(&[("step", training::trace)])
}
