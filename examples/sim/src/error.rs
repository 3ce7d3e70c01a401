//! What goes wrong on a simulated device.

use fulgurite::device::{BackendError, Category};

/// An error of a simulated device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The ordinal is not one of a device.
    #[error("there is no device 'sim:{0}'")]
    NoSuchDevice(u32),
    /// The device's memory is full.
    #[error("out of memory: asked for {asked} bytes, {free} of {total} are free")]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes free.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
    /// Work used memory that is not allocated, or ran over the end of a block.
    #[error("an access of {bytes} bytes at {address:#x}, where no block of this device has as many")]
    Access {
        /// The first byte.
        address: u64,
        /// Size of the access, in bytes.
        bytes: usize,
    },
    /// Work of a program ran after the program was dropped.
    #[error("a kernel ran whose program was dropped")]
    Unloaded,
    /// A command that the device does not have.
    #[error("the simulated device cannot run {0}")]
    Unknown(String),
    /// A stream or event of another kind of device.
    #[error("a stream or an event of another kind of device")]
    Foreign,
    /// Another library's memory or stream that is not the device's.
    #[error("{0:#x} is no memory and no stream of this device")]
    Elsewhere(u64),
    /// An event that was not recorded or is not reached.
    #[error("an event that is not reached has no time")]
    NotReached,
    /// A kernel panicked.
    #[error("a kernel of the simulated device panicked: {0}")]
    Panicked(String),
    /// The thread of a stream has ended.
    #[error("the thread of the stream has ended")]
    Ended,
}

impl BackendError for SimError {
    fn category(&self) -> Category {
        match self {
            SimError::NoSuchDevice(_) => Category::Unavailable,
            SimError::OutOfMemory { .. } => Category::OutOfMemory,
            SimError::Access { .. } | SimError::Unloaded | SimError::Panicked(_) | SimError::Ended => Category::Lost,
            SimError::Unknown(_) | SimError::Foreign | SimError::Elsewhere(_) | SimError::NotReached => Category::Other,
        }
    }
}
