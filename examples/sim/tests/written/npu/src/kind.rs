//! The kind `npu`, and a device of it that was opened.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::device::{
    CodeError, DEVICE_KINDS, DeviceCode, DeviceContext, DeviceError, DeviceEvent, DeviceKind, DeviceMemory,
    DeviceStream, LoadedCode, MemoryHeld, Properties, Room,
};
use fulgurite::kernels::launch::DeviceAddress;

use crate::code::Code;
use crate::error::KindError;
use crate::stream::{Event, Stream};

/// What each block of memory starts on, in bytes.
const ALIGNMENT: usize = 256;

/// The kind of device.
#[derive(Debug)]
pub struct Kind;

#[linkme::distributed_slice(DEVICE_KINDS)]
static REGISTERED: &dyn DeviceKind = &Kind;

impl DeviceKind for Kind {
    fn name(&self) -> &'static str {
        "npu"
    }

    fn docs(&self) -> &'static str {
        "TODO: the accelerator in a sentence."
    }

    /// It must be named: `--device npu`. With a number it is taken where it is available, in the order of numbers.
    fn priority(&self) -> Option<u32> {
        None
    }

    /// TODO: how many devices the driver finds, or why none.
    fn count(&self) -> Result<u32, DeviceError> {
        Ok(1)
    }

    fn properties(&self, ordinal: u32) -> Result<Properties, DeviceError> {
        if ordinal < self.count()? { Ok(self.typical(None)) } else { Err(KindError::NoSuchDevice(ordinal).into()) }
    }

    /// TODO: what the device has. Plans that are made without a device assume it.
    fn typical(&self, _architecture: Option<&str>) -> Properties {
        Properties {
            model: "memory of the host".into(),
            architecture: None,
            multiprocessors: 1,
            threads_per_multiprocessor: 1,
            shared_bytes_per_multiprocessor: 0,
            shared_bytes_per_block: 0,
            threads_per_block: 1,
            grid: [1; 3],
            clusters: false,
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn DeviceContext>, DeviceError> {
        Ok(Arc::new(Context { properties: self.properties(ordinal)?, held: Arc::default() }))
    }
}

/// A device.
#[derive(Debug)]
pub struct Context {
    properties: Properties,
    held: Arc<Mutex<MemoryHeld>>,
}

impl DeviceContext for Context {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn stream(&self) -> Result<Box<dyn DeviceStream>, DeviceError> {
        Ok(Box::new(Stream))
    }

    fn event(&self, _timed: bool) -> Result<Box<dyn DeviceEvent>, DeviceError> {
        Ok(Box::new(Event::default()))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        Ok(Box::new(Memory::new(bytes, &self.held)?))
    }

    fn memory_held(&self) -> MemoryHeld {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(
        &self,
        code: &Arc<DeviceCode>,
        _stream: &dyn DeviceStream,
        _room: Room,
    ) -> Result<Box<dyn LoadedCode>, CodeError> {
        Ok(Box::new(Code::load(code)?))
    }
}

/// A block of a device's memory. TODO: the driver's allocation.
#[derive(Debug)]
struct Memory {
    pointer: NonNull<u8>,
    layout: Layout,
    held: Arc<Mutex<MemoryHeld>>,
}

// SAFETY: the block has one owner, and is used by the runtime's own order alone.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing is read through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize, held: &Arc<Mutex<MemoryHeld>>) -> Result<Memory, KindError> {
        let full = KindError::OutOfMemory { asked: bytes };
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| full.clone())?;
        // SAFETY: the size is not zero.
        let pointer = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or(full)?;
        let mut now = held.lock().unwrap_or_else(PoisonError::into_inner);
        now.now += layout.size();
        now.peak = now.peak.max(now.now);
        drop(now);
        Ok(Memory { pointer, layout, held: held.clone() })
    }
}

impl DeviceMemory for Memory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress(self.pointer.as_ptr() as u64)
    }

    fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).now -= self.layout.size();
        // SAFETY: allocated with this layout, and freed once.
        unsafe { std::alloc::dealloc(self.pointer.as_ptr(), self.layout) }
    }
}
