//! Streams, events and memory of a CUDA device.

use std::any::Any;
use std::sync::OnceLock;

use crate::{Context, CudaError, Event, Gather, PinnedMemory, Stream};
use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use fulgurite_base::device::{Category, DeviceError, DeviceEvent, DeviceMemory, DeviceStream, HostMemory};

/// A stream of a CUDA device.
#[derive(Debug)]
pub struct CudaStream {
    stream: Stream,
    /// Copies many ranges, once there were several.
    gather: OnceLock<Gather>,
}

impl CudaStream {
    pub(super) fn new(context: &Context) -> Result<CudaStream, CudaError> {
        Ok(Stream::new(context)?.into())
    }

    /// The stream that `stream` is.
    ///
    /// # Errors
    /// If it is of another kind of device.
    pub fn of(stream: &dyn DeviceStream) -> Result<&CudaStream, DeviceError> {
        (stream as &dyn Any).downcast_ref().ok_or_else(foreign)
    }

    /// The driver's stream.
    pub fn raw(&self) -> &Stream {
        &self.stream
    }
}

impl From<Stream> for CudaStream {
    fn from(stream: Stream) -> CudaStream {
        CudaStream { stream, gather: OnceLock::new() }
    }
}

fn foreign() -> DeviceError {
    DeviceError::new(Category::Other, "a stream or an event of another kind of device was given to a CUDA device")
}

fn event_of(event: &dyn DeviceEvent) -> Result<&Event, DeviceError> {
    (event as &dyn Any).downcast_ref().ok_or_else(foreign)
}

impl DeviceMemory for crate::DeviceMemory {
    fn address(&self) -> DeviceAddress {
        crate::DeviceMemory::address(self)
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

// SAFETY: page-locked memory is owned, zeroed where it is allocated, and starts on a page.
unsafe impl HostMemory for PinnedMemory {
    fn pointer(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

impl DeviceEvent for Event {
    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(Event::synchronize(self)?)
    }

    fn is_reached(&self) -> Result<bool, DeviceError> {
        Ok(Event::is_reached(self)?)
    }

    fn milliseconds_since(&self, earlier: &dyn DeviceEvent) -> Result<f64, DeviceError> {
        Ok(f64::from(Event::milliseconds_since(self, event_of(earlier)?)?))
    }
}

impl DeviceStream for CudaStream {
    fn handle(&self) -> Option<u64> {
        Some(self.stream.handle())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(self.stream.synchronize()?)
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        Ok(self.stream.is_idle()?)
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        Ok(self.stream.wait(event_of(event)?)?)
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        Ok(event_of(event)?.record(&self.stream)?)
    }

    unsafe fn copy_in(&self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        Ok(unsafe { self.stream.copy_to_device(to, from) }?)
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        Ok(unsafe { self.stream.copy_to_host(to, from) }?)
    }

    unsafe fn copy(&self, range: CopyRange) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        Ok(unsafe { self.stream.copy_on_device(range.to, range.from, range.bytes) }?)
    }

    /// Several copies are one launch of a kernel.
    unsafe fn copy_all(&self, ranges: &[CopyRange]) -> Result<(), DeviceError> {
        match ranges {
            [] => Ok(()),
            // SAFETY: promised by the caller.
            [range] => unsafe { self.copy(*range) },
            _ => {
                if self.gather.get().is_none() {
                    // Of two threads that make one, one is dropped.
                    let _ = self.gather.set(Gather::new(self.stream.context())?);
                }
                let gather = self.gather.get().unwrap_or_else(|| unreachable!("set above"));
                // SAFETY: promised by the caller.
                Ok(unsafe { gather.copy(&self.stream, ranges) }?)
            }
        }
    }

    unsafe fn fill(&self, to: DeviceAddress, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        Ok(unsafe { self.stream.fill_u8(to, byte, bytes) }?)
    }
}
