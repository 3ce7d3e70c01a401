//! Small inputs on their way to the device: gathered in page-locked memory, and sent in one copy. While the run before
//! goes on, that copy crosses beside it, to one of two places in turn, since the run may still read its own inputs.

use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use crate::device::host_time::waiting;
use crate::device::timeline::INPUTS;
use crate::device::{DeviceEvent, DeviceState, DeviceStream, HostMemory};
use crate::error::Result;
use crate::stream_kind::StreamKind;

/// So many runs can be on their way at once before the host waits for the oldest one's copy,
const MOST_SLOTS: usize = 64;
/// if their copies fit into so much page-locked memory; two can always. It is taken once, since taking it may wait for
/// the device.
const MOST_BYTES: usize = 4 << 20;
/// The host waits for copies of at most so many bytes: some tens of microseconds.
const MOST_BESIDE: usize = 1 << 20;
/// Places on the device where copies land.
pub(super) const LANDINGS: usize = 2;

/// Page-locked copies of the part of a program's memory that holds staged inputs.
pub(super) struct Staging {
    memory: Box<dyn HostMemory>,
    /// Size of a copy.
    bytes: usize,
    /// For each copy the mark behind its last use.
    sent: Vec<Box<dyn DeviceEvent>>,
    next: usize,
    landings: Vec<Landing>,
    /// Where the next copy lands.
    turn: usize,
}

/// A place on the device where copies land.
struct Landing {
    address: DeviceAddress,
    /// Behind what reads it last.
    taken: Box<dyn DeviceEvent>,
}

impl Staging {
    /// For `bytes` bytes of staged inputs that land at these addresses, which have room for as many each.
    pub(super) fn new(state: &DeviceState, bytes: usize, landings: [DeviceAddress; LANDINGS]) -> Result<Staging> {
        let count = MOST_BYTES.checked_div(bytes).map_or(0, |count| count.clamp(2, MOST_SLOTS));
        let memory = state.context().host_memory(count * bytes)?;
        let event = || state.context().event(false);
        let sent = (0..count).map(|_| Ok(event()?)).collect::<Result<_>>()?;
        let landing = |address| {
            let taken = event()?;
            // Loading the program may have used its memory.
            state.stream().record(&*taken)?;
            Ok(Landing { address, taken })
        };
        let landings = landings.into_iter().map(landing).collect::<Result<_>>()?;
        Ok(Staging { memory, bytes, sent, next: 0, landings, turn: 0 })
    }

    /// Has `fill` write the staged inputs, and enqueues their copy to `place`, where work of the compute stream reads
    /// them. `fill` says up to where it wrote.
    ///
    /// They cross on a stream of their own if the compute stream is busy, they are few, and a landing is free: the host
    /// waits for that copy, and for nothing else. If the compute stream waited for it instead, the host would save some
    /// microseconds, but on CUDA some results were wrong that way (docs/src/cuda.md). Otherwise they cross on the
    /// compute stream.
    pub(super) fn send(
        &mut self,
        state: &DeviceState,
        what: &str,
        place: DeviceAddress,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<()> {
        let Some(sent) = self.sent.get(self.next) else { return Ok(()) };
        waiting(|| sent.synchronize()).map_err(|error| state.faulted(error))?;
        // SAFETY: the slot is in this memory, which nobody else uses; the copy from it that was enqueued last is
        // done.
        let slot =
            unsafe { std::slice::from_raw_parts_mut(self.memory.pointer().add(self.next * self.bytes), self.bytes) };
        let end = fill(slot).min(self.bytes);
        if end == 0 {
            return Ok(());
        }
        let copy = |stream: &dyn DeviceStream, kind: StreamKind, to: DeviceAddress| -> Result<()> {
            let name = || format!("{INPUTS}{what}");
            // SAFETY: landing and place are the program's own, and as large as the slot. What read the landing last has
            // ended. What uses the place is on the compute stream, or on others within a run, which ends on the compute
            // stream. The slot is written again only after the event behind this copy was reached.
            state.timed_on(stream, kind, name, |stream| unsafe { stream.copy_in(to, &slot[..end]) })?;
            Ok(stream.record(&**sent)?)
        };
        let landing = &self.landings[self.turn];
        let beside = if end <= MOST_BESIDE { state.beside_work()? } else { None };
        match beside {
            Some(stream) if landing.taken.is_reached().map_err(|error| state.faulted(error))? => {
                copy(stream, StreamKind::Copy, landing.address)?;
                waiting(|| sent.synchronize()).map_err(|error| state.faulted(error))?;
                let range = CopyRange { from: landing.address, to: place, bytes: end };
                // SAFETY: both ranges are the program's own; the copy to the first is done, and the second is used as
                // above.
                unsafe { state.stream().copy(range) }?;
                state.stream().record(&*landing.taken)?;
                self.turn = (self.turn + 1) % self.landings.len();
            }
            _ => copy(state.stream(), StreamKind::Compute, place)?,
        }
        self.next = (self.next + 1) % self.sent.len();
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
