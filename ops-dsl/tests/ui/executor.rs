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

/// Two kinds of devices, of which there can be one.
#[executor(device = "cpu", device = "cuda", priority = 4)]
pub mod both {}

/// A kind of device that there is not.
#[executor(device = "cdua")]
pub mod nowhere {}

/// A rule for the other kind of device.
#[executor(device = "cpu")]
pub mod on_host {
    fn plan_region() {}
}

fn main() {}
