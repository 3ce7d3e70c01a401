//! Small inputs on their way to the device: gathered in page-locked memory, and sent in one copy.

use fulgurite_kernels::launch::DeviceAddress;

use crate::device::{DeviceEvent, DeviceState, HostMemory};
use crate::error::Result;

/// So many runs can be on their way at once before the host waits for the oldest one's copy,
const MOST_SLOTS: usize = 64;
/// if their copies fit into so much page-locked memory; two can always. It is taken once, since taking it may wait for the device.
const MOST_BYTES: usize = 4 << 20;

/// Page-locked copies of the part of a program's memory that holds staged inputs.
pub(super) struct Staging {
    memory: Box<dyn HostMemory>,
    /// Size of a copy.
    bytes: usize,
    /// For each copy the mark behind its last use.
    sent: Vec<Box<dyn DeviceEvent>>,
    next: usize,
}

impl Staging {
    /// For `bytes` bytes of staged inputs.
    pub(super) fn new(state: &DeviceState, bytes: usize) -> Result<Staging> {
        let count = MOST_BYTES.checked_div(bytes).map_or(0, |count| count.clamp(2, MOST_SLOTS));
        let memory = state.context().host_memory(count * bytes)?;
        let sent = (0..count).map(|_| Ok(state.context().event(false)?)).collect::<Result<_>>()?;
        Ok(Staging { memory, bytes, sent, next: 0 })
    }

    /// Has `fill` write the staged inputs, and enqueues their copy to `to`. `fill` says up to where it wrote.
    pub(super) fn send(
        &mut self,
        state: &DeviceState,
        to: DeviceAddress,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<()> {
        let Some(sent) = self.sent.get(self.next) else { return Ok(()) };
        sent.synchronize()?;
        // SAFETY: the slot lies in this memory, which nobody else uses; the copy from it that was enqueued last is
        // done.
        let slot =
            unsafe { std::slice::from_raw_parts_mut(self.memory.pointer().add(self.next * self.bytes), self.bytes) };
        let end = fill(slot).min(self.bytes);
        if end > 0 {
            // SAFETY: the region at `to` is the program's own, as large as the slot; the slot is written again only after
            // the event behind this copy was reached.
            unsafe { state.stream().copy_in(to, &slot[..end]) }?;
            state.stream().record(&**sent)?;
            self.next = (self.next + 1) % self.sent.len();
        }
        Ok(())
    }
}

impl Drop for Staging {
    /// Page-locked memory must outlive the copies from it.
    fn drop(&mut self) {
        for sent in &self.sent {
            if let Err(error) = sent.synchronize() {
                tracing::error!(%error, "waiting for inputs on their way to the device");
            }
        }
    }
}
