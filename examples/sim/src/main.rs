//! The `fulgurite` command with this crate's kind of device and executor besides the library's.

// Naming the crate links its declarations.
use fulgurite_example_sim as _;

fn main() -> std::process::ExitCode {
    fulgurite_command::main()
}
