//! The kind `sim`, and a device of it that was opened.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fulgurite::device::{
    CodeError, DEVICE_KINDS, DeviceCode, DeviceContext, DeviceError, DeviceEvent, DeviceKind, DeviceMemory,
    DeviceStream, LoadedCode, MemoryHeld, Properties, Room, StreamKind,
};
use fulgurite::kernels::launch::DeviceAddress;

use crate::code::SimCode;
use crate::error::SimError;
use crate::heap::{CAPACITY, Heap};
use crate::stream::{Shared, SimEvent, SimStream};

/// Devices of the kind.
pub const DEVICES: u32 = 2;

/// Events that were made, of all devices.
pub static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// The device type that DLPack has for kinds that it does not list: `kDLExtDev`.
pub const EXTENSION: i32 = 12;
/// DLPack has no type for host memory that is page-locked for a device of a kind that it does not list.
pub const HOST_MEMORY: i32 = 1 << 16;
/// The handle of the default stream of the calling thread, as CUDA has it.
pub const PER_THREAD: u64 = 2;

/// The device kind `sim`.
#[derive(Debug)]
pub struct Sim;

#[linkme::distributed_slice(DEVICE_KINDS)]
static SIM: &dyn DeviceKind = &Sim;

impl DeviceKind for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    /// It has no caches.
    fn beyond_caches(&self) -> usize {
        1 << 10
    }

    fn docs(&self) -> &'static str {
        "A simulated accelerator."
    }

    /// It must be named: nobody computes faster on it.
    fn priority(&self) -> Option<u32> {
        None
    }

    fn count(&self) -> Result<u32, DeviceError> {
        Ok(DEVICES)
    }

    fn properties(&self, ordinal: u32) -> Result<Properties, DeviceError> {
        match ordinal < DEVICES {
            true => Ok(self.typical(None)),
            false => Err(SimError::NoSuchDevice(ordinal).into()),
        }
    }

    fn typical(&self, _architecture: Option<&str>) -> Properties {
        Properties {
            model: format!("a simulated accelerator, {} MiB", CAPACITY >> 20),
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

    fn streams(&self) -> &'static [StreamKind] {
        &StreamKind::ALL
    }

    fn dlpack_type(&self) -> Option<i32> {
        Some(EXTENSION)
    }

    fn dlpack_host_type(&self) -> Option<i32> {
        Some(HOST_MEMORY)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn DeviceContext>, DeviceError> {
        Ok(Arc::new(SimContext {
            ordinal,
            properties: self.properties(ordinal)?,
            heap: Heap::new(ordinal),
            lost: Arc::default(),
            streams: Arc::default(),
        }))
    }
}

/// The streams of a device.
type Streams = Arc<Mutex<Vec<Weak<Shared>>>>;

/// A simulated device.
#[derive(Clone)]
pub struct SimContext {
    ordinal: u32,
    properties: Properties,
    heap: Heap,
    lost: Arc<Mutex<Option<SimError>>>,
    streams: Streams,
}

impl std::fmt::Debug for SimContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimContext")
    }
}

thread_local! {
    /// The thread's default stream of each device that it asked for.
    static DEFAULT: RefCell<Vec<(u32, SimStream)>> = const { RefCell::new(Vec::new()) };
}

impl SimContext {
    fn new_stream(&self) -> Result<SimStream, SimError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = SimStream::new(&self.heap, &self.lost, 0x9e37_79b9 + 2 * streams.len() as u64)?;
        streams.push(Arc::downgrade(stream.shared()));
        Ok(stream)
    }

    /// Waits for all that is enqueued.
    fn drain(&self) {
        let streams: Vec<Arc<Shared>> = {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams.retain(|stream| stream.strong_count() > 0);
            streams.iter().filter_map(Weak::upgrade).collect()
        };
        streams.iter().for_each(|stream| stream.drain());
    }
}

impl DeviceContext for SimContext {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn stream(&self) -> Result<Box<dyn DeviceStream>, DeviceError> {
        Ok(Box::new(self.new_stream()?))
    }

    fn event(&self, _timed: bool) -> Result<Box<dyn DeviceEvent>, DeviceError> {
        EVENTS.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(SimEvent::default()))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        Ok(Box::new(SimMemory { address: self.heap.allocate(bytes)?, bytes, heap: self.heap.clone() }))
    }

    fn memory_held(&self) -> MemoryHeld {
        self.heap.held()
    }

    fn memory_free(&self) -> Option<usize> {
        Some(CAPACITY - self.heap.held().now)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.drain();
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    fn check_address(&self, address: DeviceAddress) -> Result<(), DeviceError> {
        if self.heap.has(address.0) { Ok(()) } else { Err(SimError::Elsewhere(address.0).into()) }
    }

    unsafe fn stream_of(&self, handle: u64) -> Result<Box<dyn DeviceStream>, DeviceError> {
        if handle != PER_THREAD {
            return Err(SimError::Elsewhere(handle).into());
        }
        DEFAULT.with_borrow_mut(|streams| {
            if let Some((_, stream)) = streams.iter().find(|(ordinal, _)| *ordinal == self.ordinal) {
                return Ok(Box::new(stream.borrowed()) as Box<dyn DeviceStream>);
            }
            let stream = self.new_stream()?;
            let borrowed = stream.borrowed();
            streams.push((self.ordinal, stream));
            Ok(Box::new(borrowed))
        })
    }

    fn load(
        &self,
        code: &Arc<DeviceCode>,
        stream: &dyn DeviceStream,
        room: Room,
    ) -> Result<Box<dyn LoadedCode>, CodeError> {
        // What a program reads before it is written is no number.
        if room.bytes > 0 {
            // SAFETY: the memory is the program's, which the runtime keeps until work of a failed load is done.
            unsafe { stream.fill(room.own, 0xff, room.bytes) }?;
        }
        let loaded = SimCode::load(code, room)?;
        // Other streams write to it too.
        stream.synchronize()?;
        Ok(Box::new(loaded))
    }
}

/// A block of a simulated device's memory.
struct SimMemory {
    address: u64,
    bytes: usize,
    heap: Heap,
}

impl std::fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

impl DeviceMemory for SimMemory {
    fn address(&self) -> DeviceAddress {
        DeviceAddress(self.address)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for SimMemory {
    /// Waits for nobody: work that still uses the block is an error.
    fn drop(&mut self) {
        self.heap.free(self.address);
    }
}
