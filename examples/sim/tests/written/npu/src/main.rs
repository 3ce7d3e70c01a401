//! The `fulgurite` command with this crate's declarations besides the library's.

// Naming the crate links its declarations.
use npu as _;

fn main() -> std::process::ExitCode {
    fulgurite_command::main()
}
