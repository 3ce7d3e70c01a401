//! A device that was opened: it allocates, makes streams and events, and loads code.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use fulgurite_kernels::Buffer;

use super::code::{CodeError, DeviceCode, LoadedCode, Room};
use super::error::{Category, DeviceError};
use super::properties::Properties;
use super::stream::{DeviceEvent, DeviceMemory, DeviceStream, HostMemory};

/// What this process holds of a device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryHeld {
    /// Now.
    pub now: usize,
    /// At most.
    pub peak: usize,
}

/// A device that was opened. Everything made by it keeps it alive, and may be used from any thread.
pub trait DeviceContext: Any + Debug + Send + Sync {
    /// What the device is.
    fn properties(&self) -> &Properties;

    /// A new stream.
    ///
    /// # Errors
    /// The driver's.
    fn stream(&self) -> Result<Box<dyn DeviceStream>, DeviceError>;

    /// A new event. One that keeps no time may be cheaper.
    ///
    /// # Errors
    /// The driver's.
    fn event(&self, timed: bool) -> Result<Box<dyn DeviceEvent>, DeviceError>;

    /// `bytes` bytes of unspecified content that start on a multiple of 256 bytes; none are allocated for zero.
    ///
    /// # Errors
    /// [`Category::OutOfMemory`] if there is not as much, with what there is.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError>;

    /// Host memory that copies to and from the device are fast with, zeroed. Without one of its own, a backend copies
    /// from ordinary memory.
    ///
    /// # Errors
    /// If there is not as much.
    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        let memory = Buffer::zeroed(bytes);
        Ok(Box::new(memory.map_err(|error| DeviceError::new(Category::OutOfMemory, error.to_string()))?))
    }

    /// What this process holds of the device's memory.
    fn memory_held(&self) -> MemoryHeld;

    /// Opens the libraries that programs usually need, which may take long.
    ///
    /// # Errors
    /// Why none is available.
    fn warm(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Makes code ready to run: sources compiled, calls of libraries planned. `stream` is the one that it will run on.
    ///
    /// # Errors
    /// Those of compilers, libraries and drivers, with the step that they come from.
    fn load(
        &self,
        code: &Arc<DeviceCode>,
        stream: &dyn DeviceStream,
        room: Room,
    ) -> Result<Box<dyn LoadedCode>, CodeError>;
}
