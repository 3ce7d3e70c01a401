//! Symbols that no command of a device computes: the host runs them on copies of its own, or a function of the host
//! enqueues their work.

use std::fmt;
use std::sync::Arc;

use fulgurite_kernels::launch::DeviceAddress;

use super::stream::DeviceStream;
use super::tensor::DeviceTensor;
use crate::failure::Failure;
use crate::host_kernel::HostKernel;
use crate::meta::Device;

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

/// A symbol that a function of the host enqueues: the kernels of another library or language. A program with one is
/// never replayed as a graph, since the function may do something else in each run.
#[derive(Clone)]
pub struct StreamWork {
    /// The tensors that the function reads.
    pub operands: Vec<DeviceTensor>,
    /// The tensors of which the function writes every element.
    pub results: Vec<DeviceTensor>,
    /// The function.
    pub enqueue: Arc<EnqueueRule>,
}

/// Enqueues work on a stream; an error ends the run.
pub type EnqueueRule = dyn Fn(&StreamCall<'_>) -> Result<(), Failure> + Send + Sync;

/// One run of a [`StreamWork`].
pub struct StreamCall<'a> {
    /// The device.
    pub device: Device,
    /// Where work is enqueued. What the program enqueued before is ordered with it.
    pub stream: &'a dyn DeviceStream,
    /// The first element of each operand. The memory is the program's or an input's: it is not written, and is not used
    /// by work that is enqueued after the call, or elsewhere.
    pub operands: &'a [DeviceAddress],
    /// The first element of each result; used as operands are.
    pub results: &'a [DeviceAddress],
}

impl fmt::Debug for StreamWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamWork({:?} -> {:?})", self.operands, self.results)
    }
}

/// The work of a symbol that no command of the device computes.
#[derive(Debug, Clone)]
pub enum Outside {
    /// On the host, with copies.
    Host(HostWork),
    /// Enqueued by a function.
    Stream(StreamWork),
}
