// Naming the crate links its declarations.
use placeholder_crate as _;

fn main() -> std::process::ExitCode {
    fulgurite::main_of_crate!()
}
