//! The `fulgurite` command.

fn main() -> std::process::ExitCode {
    fulgurite_command::main()
}
