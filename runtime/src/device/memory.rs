//! Memory of arrays on a device.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::launch::DeviceAddress;

use super::block::Block;
use super::faults::Origins;
use super::state::{DeviceState, Written};
use crate::error::Result;
use crate::meta::Device;

/// Device memory owned by arrays. When the last of them is gone it is kept for the next array of its size.
#[derive(Debug)]
pub struct DeviceBuffer {
    state: Arc<DeviceState>,
    memory: Option<Block>,
    content: Mutex<Content>,
}

/// Where the content of a block comes from.
#[derive(Debug, Clone, Default)]
struct Content {
    /// The runs that it depends on.
    origins: Origins,
    /// A mark behind the last of them; `None` if it was not written by a run.
    written: Option<Arc<Written>>,
}

impl DeviceBuffer {
    /// `bytes` bytes of unspecified content on `device`.
    pub fn new(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        let state = DeviceState::of(device)?;
        let memory = Some(state.take(bytes)?);
        Ok(DeviceBuffer { state, memory, content: Mutex::default() })
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
            memory.write(buffer.state.stream(), 0, bytes)?;
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
        to.add(&self.content().origins);
    }

    /// Says which runs the content comes from, and what is behind the last of them.
    pub(crate) fn set_written(&self, origins: &Origins, written: &Arc<Written>) {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) =
            Content { origins: origins.clone(), written: Some(written.clone()) };
    }

    fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its content, once the run that wrote it has ended. What is enqueued behind that run goes on meanwhile.
    ///
    /// # Errors
    /// What a kernel of a run that the content comes from found wrong with its data, such as an index out of range:
    /// each time, whoever reads. The driver's otherwise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let Content { origins, written } = self.content();
        let mut bytes = vec![0; self.len()];
        if let Some(memory) = &self.memory {
            self.state.read(memory, written.as_deref(), &mut bytes)?;
        }
        self.state.faults().check(&origins)?;
        Ok(bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.state.give_back(memory);
        }
    }
}
