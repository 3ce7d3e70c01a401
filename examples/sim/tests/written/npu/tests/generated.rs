// Naming the crate links its declarations.
use npu as _;

fn main() -> std::process::ExitCode {
    fulgurite::main_of_crate!()
}
