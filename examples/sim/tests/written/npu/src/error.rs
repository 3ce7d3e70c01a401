//! What goes wrong on a device of the kind.

use fulgurite::device::{BackendError, Category};

/// An error of a device. TODO: the driver's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// The ordinal is not one of a device.
    #[error("there is no device 'npu:{0}'")]
    NoSuchDevice(u32),
    /// The device's memory is full.
    #[error("out of memory: asked for {asked} bytes")]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
    },
    /// A command that the device does not have.
    #[error("the device cannot run {0}")]
    Unknown(String),
    /// An event of another kind of device.
    #[error("an event of another kind of device")]
    Foreign,
    /// An event that was not recorded.
    #[error("an event that was not recorded has no time")]
    NotRecorded,
}

impl BackendError for KindError {
    /// Out of memory: the runtime frees what it keeps, and tries again. Lost: nothing runs on the device any more.
    fn category(&self) -> Category {
        match self {
            KindError::NoSuchDevice(_) => Category::Unavailable,
            KindError::OutOfMemory { .. } => Category::OutOfMemory,
            KindError::Unknown(_) | KindError::Foreign | KindError::NotRecorded => Category::Other,
        }
    }
}
