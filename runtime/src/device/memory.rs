//! Memory of arrays on a device.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::launch::DeviceAddress;

use super::block::Block;
use super::faults::Origins;
use super::state::DeviceState;
use crate::error::Result;
use crate::meta::Device;

/// Device memory owned by arrays. When the last of them is gone it is kept for the next array of its size.
#[derive(Debug)]
pub struct DeviceBuffer {
    state: Arc<DeviceState>,
    memory: Option<Block>,
    /// The runs that wrote the content.
    origins: Mutex<Origins>,
}

impl DeviceBuffer {
    /// `bytes` bytes of unspecified content on `device`.
    pub fn new(device: Device, bytes: usize) -> Result<DeviceBuffer> {
        let state = DeviceState::of(device)?;
        let memory = Some(state.take(bytes)?);
        Ok(DeviceBuffer { state, memory, origins: Mutex::default() })
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
        to.add(&self.origins.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Says which runs the content comes from.
    pub(crate) fn set_origins(&self, origins: &Origins) {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).clone_from(origins);
    }

    /// Its content, once everything enqueued is done.
    ///
    /// # Errors
    /// What a kernel of a run that the content comes from found wrong with its data, such as an index out of range:
    /// each time, whoever reads. The driver's otherwise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.state.synchronize()?;
        self.state.faults().check(&self.origins.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
        let mut bytes = vec![0; self.len()];
        if let Some(memory) = &self.memory {
            memory.read(self.state.stream(), 0, &mut bytes)?;
        }
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
