//! A CUDA device that was opened.

use std::any::Any;
use std::sync::Arc;

use crate::{Context, CudaError, Event, PinnedMemory, Stream};
use fulgurite_kernels::launch::DeviceAddress;

use super::code::CudaCode;
use super::library::Libraries;
use super::properties::properties_of;
use super::stream::CudaStream;
use fulgurite_base::device::{
    CodeError, DeviceCode, DeviceContext, DeviceError, DeviceEvent, DeviceMemory, DeviceStream, HostMemory, LoadedCode,
    MemoryHeld, Properties, Room,
};

/// A CUDA device, and the libraries of products and attention.
#[derive(Debug)]
pub struct CudaContext {
    context: Context,
    properties: Properties,
    libraries: Libraries,
}

impl CudaContext {
    pub(super) fn new(ordinal: usize) -> Result<CudaContext, CudaError> {
        let context = Context::new(ordinal)?;
        let properties = properties_of(context.device());
        let libraries = Libraries::new(&context);
        Ok(CudaContext { context, properties, libraries })
    }

    /// The context that `context` is, if it is that of a CUDA device.
    pub fn of(context: &dyn DeviceContext) -> Option<&CudaContext> {
        (context as &dyn Any).downcast_ref()
    }

    /// The driver's context.
    pub fn raw(&self) -> &Context {
        &self.context
    }
}

impl DeviceContext for CudaContext {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn stream(&self) -> Result<Box<dyn DeviceStream>, DeviceError> {
        Ok(Box::new(CudaStream::new(&self.context)?))
    }

    fn event(&self, timed: bool) -> Result<Box<dyn DeviceEvent>, DeviceError> {
        Ok(Box::new(if timed { Event::timed(&self.context) } else { Event::new(&self.context) }?))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        Ok(Box::new(crate::DeviceMemory::new(&self.context, bytes)?))
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(PinnedMemory::new(&self.context, bytes)?))
    }

    fn memory_held(&self) -> MemoryHeld {
        MemoryHeld { now: self.context.allocated_bytes(), peak: self.context.peak_bytes() }
    }

    fn memory_free(&self) -> Option<usize> {
        Some(self.context.memory_info().ok()?.free)
    }

    fn warm(&self) -> Result<(), DeviceError> {
        self.libraries.cublaslt.get()?;
        Ok(())
    }

    fn enter(&self) -> Result<Box<dyn Any>, DeviceError> {
        Ok(Box::new(self.context.enter()?))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(self.context.synchronize()?)
    }

    fn check_address(&self, address: DeviceAddress) -> Result<(), DeviceError> {
        Ok(self.context.check_address(address)?)
    }

    unsafe fn stream_of(&self, handle: u64) -> Result<Box<dyn DeviceStream>, DeviceError> {
        // SAFETY: promised by the caller.
        Ok(Box::new(CudaStream::from(unsafe { Stream::of_handle(&self.context, handle) })))
    }

    fn load(
        &self,
        code: &Arc<DeviceCode>,
        stream: &dyn DeviceStream,
        room: Room,
    ) -> Result<Box<dyn LoadedCode>, CodeError> {
        let stream = CudaStream::of(stream)?.raw();
        Ok(Box::new(CudaCode::load(&self.context, &self.libraries, code, stream, room)?))
    }
}
