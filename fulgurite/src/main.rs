//! The `fulgurite` command.

mod cases;
mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
