//! The `fulgurite` command with this crate's operators besides the library's.

// Naming the crate links its declarations.
use fulgurite_example_outside as _;

fn main() -> std::process::ExitCode {
    fulgurite_command::main()
}
