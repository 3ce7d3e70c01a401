//! A device that was opened: it allocates, makes streams and events, and loads code.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::launch::DeviceAddress;

use super::code::{CodeError, DeviceCode, LoadedCode, Room};
use super::error::{Category, DeviceError};
use super::properties::Properties;
use super::stream::{DeviceEvent, DeviceMemory, DeviceStream, HostMemory};

/// What this process holds of a device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryHeld {
    /// Bytes held at present.
    pub now: usize,
    /// Most bytes held at once.
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

    /// Free bytes of the device's memory, after what other processes use; `None` if the backend does not know.
    fn memory_free(&self) -> Option<usize> {
        None
    }

    /// Opens the libraries that programs usually need, which may take long.
    ///
    /// # Errors
    /// Why none is available.
    fn warm(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Tells the driver that many calls for the device follow on this thread, until the value is dropped. Each call
    /// works without it, and may be slower.
    ///
    /// # Errors
    /// The driver's.
    fn enter(&self) -> Result<Box<dyn Any>, DeviceError> {
        Ok(Box::new(()))
    }

    /// Waits on the host until all work on the device is done, of other libraries too.
    ///
    /// # Errors
    /// The driver's; that the backend cannot wait for the work of other libraries.
    fn synchronize(&self) -> Result<(), DeviceError> {
        let message = "this kind of device waits for no work of other libraries";
        Err(DeviceError::new(Category::Unsupported, message))
    }

    /// Whether external memory at `address` is memory of this device, so that programs can use it where it is.
    ///
    /// # Errors
    /// Where it is instead; that the backend cannot use memory that it did not allocate.
    fn check_address(&self, address: DeviceAddress) -> Result<(), DeviceError> {
        Err(DeviceError::new(
            Category::Unsupported,
            format!("address {:#x}: this kind of device uses no memory that was allocated elsewhere", address.0),
        ))
    }

    /// A stream that another library of this process made, by its handle in the driver.
    ///
    /// # Safety
    /// The handle must be that of a stream of this device, which is not destroyed before the value is dropped.
    ///
    /// # Errors
    /// That the backend has no streams of others.
    unsafe fn stream_of(&self, handle: u64) -> Result<Box<dyn DeviceStream>, DeviceError> {
        let message = format!("stream {handle:#x}: this kind of device waits for no streams of other libraries");
        Err(DeviceError::new(Category::Unsupported, message))
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
