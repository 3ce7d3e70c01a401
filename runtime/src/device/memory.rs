//! Memory of arrays on a device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_kernels::buffer::Owner;
use fulgurite_kernels::launch::DeviceAddress;

use super::block::Block;
use super::faults::Origins;
use super::state::{DeviceState, Written};
use super::stream::DeviceMemory;
use crate::error::Result;
use crate::meta::Device;

/// Device memory owned by arrays. When the last of them is gone it is kept for the next array of its size.
#[derive(Debug)]
pub struct DeviceBuffer {
    state: Arc<DeviceState>,
    memory: Option<Block>,
    /// What keeps memory alive that was allocated elsewhere.
    owner: Option<Owner>,
    /// `None` if it was not written by a run, and depends on none.
    content: Mutex<Option<Arc<Content>>>,
}

/// Where the content of a block comes from. All that one run writes share it: a training step has hundreds of results.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The runs that it depends on.
    origins: Origins,
    /// A mark behind the last of them; `None` if it was not written by a run.
    written: Option<Arc<Written>>,
}

impl Content {
    /// That of a run: which runs it comes from, and what is behind the last of them.
    pub(crate) fn of_run(origins: Origins, written: Arc<Written>) -> Arc<Content> {
        Arc::new(Content { origins, written: Some(written) })
    }
}

impl DeviceBuffer {
    /// `bytes` bytes of unspecified content on `device`.
    pub fn new(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        let state = DeviceState::of(device)?;
        let memory = Some(state.take(bytes)?);
        Ok(DeviceBuffer { state, memory, owner: None, content: Mutex::default() })
    }

    /// Memory of `device` that was allocated elsewhere. When the last array that uses it is gone, the host waits for
    /// the work that uses it, and drops `owner`.
    ///
    /// # Safety
    /// The memory must be valid and unchanged until `owner` is dropped, for work that is enqueued on the device's
    /// streams after this call.
    ///
    /// # Errors
    /// If the device is not available, or the memory is not its own.
    pub unsafe fn external(device: Device, address: DeviceAddress, bytes: usize, owner: Owner) -> Result<DeviceBuffer> {
        let state = DeviceState::of(device)?;
        if bytes > 0 {
            state.context().check_address(address)?;
        }
        let memory: Box<dyn DeviceMemory> = Box::new(External { address, bytes });
        Ok(DeviceBuffer { state, memory: Some(memory.into()), owner: Some(owner), content: Mutex::default() })
    }

    /// Whether the memory was allocated elsewhere.
    pub fn is_external(&self) -> bool {
        self.owner.is_some()
    }

    /// `bytes` zero bytes.
    pub fn zeroed(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        let buffer = DeviceBuffer::new(device, bytes)?;
        // SAFETY: the memory is the buffer's own, and whoever uses it later does so on this stream.
        unsafe { buffer.state.stream().fill(buffer.address(), 0, bytes) }?;
        Ok(buffer)
    }

    /// Filled with `bytes`.
    pub fn from_bytes(device: Device, bytes: &[u8]) -> Result<DeviceBuffer> {
        let mut buffer = DeviceBuffer::new(device, bytes.len())?;
        if let Some(memory) = &mut buffer.memory {
            buffer.state.write(memory, bytes)?;
        }
        Ok(buffer)
    }

    /// Where it starts.
    pub fn address(&self) -> DeviceAddress {
        self.memory.as_ref().map_or(DeviceAddress::NULL, Block::address)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Block::bytes)
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device it is on.
    pub fn state(&self) -> &Arc<DeviceState> {
        &self.state
    }

    /// Adds the runs that the content comes from.
    pub(crate) fn add_origins(&self, to: &mut Origins) {
        if let Some(content) = &*self.locked() {
            to.add(&content.origins);
        }
    }

    /// Says that a run writes the content.
    pub(crate) fn set_written(&self, content: &Arc<Content>) {
        *self.locked() = Some(content.clone());
    }

    /// Fails if a kernel found something wrong with the data that the content comes from. Waits where that is not known
    /// yet.
    ///
    /// # Errors
    /// As [`DeviceBuffer::to_bytes`].
    pub(crate) fn check_origins(&self) -> Result<()> {
        let Some(content) = self.content().filter(|content| !content.origins.is_empty()) else { return Ok(()) };
        self.state.synchronize()?;
        self.state.faults().check(&content.origins)
    }

    /// Says that the content is copied from `other`, on the compute stream.
    pub(crate) fn set_copied(&self, other: &DeviceBuffer) {
        let of = |content: Arc<Content>| Arc::new(Content { origins: content.origins.clone(), written: None });
        *self.locked() = other.content().map(of);
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<Content>>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn content(&self) -> Option<Arc<Content>> {
        self.locked().clone()
    }

    /// Its content, once the run that wrote it has ended. What is enqueued behind that run goes on meanwhile.
    ///
    /// # Errors
    /// What a kernel of a run that the content comes from found wrong with its data, such as an index out of range:
    /// each time, whoever reads. The driver's otherwise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let content = self.content();
        let mut bytes = vec![0; self.len()];
        if let Some(memory) = &self.memory {
            let written = content.as_ref().and_then(|content| content.written.as_deref());
            self.state.read(memory, written, &mut bytes)?;
        }
        content.map_or(Ok(()), |content| self.state.faults().check(&content.origins))?;
        Ok(bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        match self.owner.take() {
            None => self.state.give_back(memory),
            Some(owner) => {
                if let Err(error) = self.state.synchronize() {
                    tracing::error!(%error, "waiting for work that uses memory of others");
                }
                drop(owner);
            }
        }
    }
}

/// Memory that was allocated elsewhere, and is freed there.
#[derive(Debug)]
struct External {
    address: DeviceAddress,
    bytes: usize,
}

impl DeviceMemory for External {
    fn address(&self) -> DeviceAddress {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
