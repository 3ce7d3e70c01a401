//! What a device lacks and the host runs: operands are copied there, and results back.

use std::fmt;
use std::sync::Arc;

use super::tensor::DeviceTensor;
use crate::host_kernel::HostKernel;

/// A symbol that is run on the host.
#[derive(Clone)]
pub struct HostWork {
    /// What is copied to the host.
    pub operands: Vec<DeviceTensor>,
    /// What is copied back; contiguous.
    pub results: Vec<DeviceTensor>,
    /// Whether the kernel takes contiguous operands alone.
    pub contiguous: bool,
    /// The kernel that runs.
    pub kernel: Arc<HostKernel>,
}

impl fmt::Debug for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostWork({:?} -> {:?})", self.operands, self.results)
    }
}
