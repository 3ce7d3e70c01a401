//! Small inputs on their way to the device: gathered in page-locked memory, and sent in one copy.

use fulgurite_kernels::cuda::{DeviceAddress, Event, PinnedMemory};

use crate::device::DeviceState;
use crate::error::Result;

/// So many runs can be on their way at once before the host waits for the oldest one's copy, if their memory is small.
const MOST_SLOTS: usize = 64;
/// Page-locked memory that is taken for more than two of them, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Page-locked copies of the part of a program's memory that holds staged inputs: as many as runs are on their way.
pub(super) struct Staging {
    bytes: usize,
    slots: Vec<(PinnedMemory, Event)>,
    next: usize,
}

impl Staging {
    /// For `bytes` bytes of staged inputs.
    pub(super) fn new(state: &DeviceState, bytes: usize) -> Result<Staging> {
        let mut staging = Staging { bytes, slots: Vec::new(), next: 0 };
        if bytes > 0 {
            staging.slots.push(staging.slot(state)?);
        }
        Ok(staging)
    }

    fn slot(&self, state: &DeviceState) -> Result<(PinnedMemory, Event)> {
        Ok((PinnedMemory::new(state.context(), self.bytes)?, Event::new(state.context())?))
    }

    /// Has `fill` write the staged inputs, and enqueues their copy to `to`. `fill` says up to where it wrote.
    pub(super) fn send(
        &mut self,
        state: &DeviceState,
        to: DeviceAddress,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<()> {
        if self.slots.is_empty() {
            return Ok(());
        }
        if !self.slots[self.next].1.is_reached()? {
            let count = self.slots.len();
            if count < 2 || (count < MOST_SLOTS && (count + 1) * self.bytes <= MOST_BYTES) {
                let slot = self.slot(state)?;
                self.slots.insert(self.next, slot);
            }
        }
        let (memory, sent) = &mut self.slots[self.next];
        sent.synchronize()?;
        let bytes = memory.as_bytes_mut();
        let end = fill(bytes).min(bytes.len());
        if end > 0 {
            // SAFETY: the region at `to` is the program's own, as large as the slot; the slot is written again only after
            // the event behind this copy was reached.
            unsafe { state.stream().copy_to_device(to, &memory.as_bytes()[..end]) }?;
            sent.record(state.stream())?;
            self.next = (self.next + 1) % self.slots.len();
        }
        Ok(())
    }
}

impl Drop for Staging {
    /// Page-locked memory must outlive the copies from it.
    fn drop(&mut self) {
        for (_, sent) in &self.slots {
            if let Err(error) = sent.synchronize() {
                tracing::error!(%error, "waiting for inputs on their way to the device");
            }
        }
    }
}
