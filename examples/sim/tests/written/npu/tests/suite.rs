//! Every operator on the device, those that run on the host too.

// Naming the crate registers the kind.
use npu as _;

fn main() -> std::process::ExitCode {
    fulgurite::testing::main_of_device("npu")
}
