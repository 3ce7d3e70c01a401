//! Small inputs on their way to the device: gathered in page-locked memory, and sent in one copy.

use fulgurite_kernels::cuda::{DeviceAddress, Event, PinnedMemory, Stream};

use crate::device::DeviceState;
use crate::error::Result;

/// So many runs can be on their way at once before the host waits for the oldest one's copy.
const SLOTS: usize = 4;

/// Page-locked copies of the part of a program's memory that holds staged inputs.
pub(super) struct Staging {
    slots: Vec<(PinnedMemory, Event)>,
    next: usize,
}

impl Staging {
    /// For `bytes` bytes of staged inputs.
    pub(super) fn new(state: &DeviceState, bytes: usize) -> Result<Staging> {
        let slot = || Ok((PinnedMemory::new(state.context(), bytes)?, Event::new(state.context())?));
        let slots = if bytes == 0 { Vec::new() } else { (0..SLOTS).map(|_| slot()).collect::<Result<_>>()? };
        Ok(Staging { slots, next: 0 })
    }

    /// Has `fill` write the staged inputs, and enqueues their copy to `to`. `fill` says up to where it wrote.
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        to: DeviceAddress,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<()> {
        let Some((memory, sent)) = self.slots.get_mut(self.next) else { return Ok(()) };
        sent.synchronize()?;
        let bytes = memory.as_bytes_mut();
        let end = fill(bytes).min(bytes.len());
        if end > 0 {
            // SAFETY: the region at `to` is the program's own, as large as the slot; the slot is written again only after
            // the event behind this copy was reached.
            unsafe { stream.copy_to_device(to, &memory.as_bytes()[..end]) }?;
            sent.record(stream)?;
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
