//! Executors that lack what they need.
use fulgurite_ops_macros::executor;

/// Kernels.
#[executor(priority)]
pub mod fast {
    fn claim() {}
}

/// Kernels.
#[executor(device = "cpu", prority = 3)]
pub mod faster {
    fn execution() {}
}

fn main() {}
