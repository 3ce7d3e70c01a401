//! The `fulgurite` command.

fn main() -> std::process::ExitCode {
    fulgurite::command::main()
}
