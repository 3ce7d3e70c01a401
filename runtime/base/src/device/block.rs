//! Device memory that the runtime owns, written and read within its bounds.

use std::ops::Range;

use fulgurite_kernels::launch::DeviceAddress;

use super::error::{Category, DeviceError};
use super::host_time::waiting;
use super::stream::{DeviceMemory, DeviceStream};

/// A block of device memory.
#[derive(Debug)]
pub struct Block(Box<dyn DeviceMemory>);

impl From<Box<dyn DeviceMemory>> for Block {
    fn from(memory: Box<dyn DeviceMemory>) -> Block {
        Block(memory)
    }
}

impl Block {
    /// The first byte's address.
    pub fn address(&self) -> DeviceAddress {
        self.0.address()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Writes `from` at `offset`, behind what is enqueued on `stream`, and waits for it.
    pub fn write(&mut self, stream: &dyn DeviceStream, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        let range = self.range(offset, from.len())?;
        // SAFETY: the range is in this memory, which is not freed before the copy is done: it is waited for.
        unsafe { stream.copy_in(self.address().offset(range.start), from) }?;
        waiting(|| stream.synchronize())
    }

    /// Reads the bytes at `offset` into `to`, behind what is enqueued on `stream`, and waits for them.
    pub fn read(&self, stream: &dyn DeviceStream, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.range(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { stream.copy_out(to, self.address().offset(range.start)) }?;
        waiting(|| stream.synchronize())
    }

    /// Bytes of this memory; an error where they are outside of it.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> Result<Range<usize>, DeviceError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(offset..end),
            _ => {
                let message = format!(
                    "{bytes} bytes from byte {offset} on are outside of an allocation of {} bytes",
                    self.bytes()
                );
                Err(DeviceError::new(Category::Other, message))
            }
        }
    }
}
