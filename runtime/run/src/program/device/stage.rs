//! Small inputs put where the program has them.

use std::sync::Arc;

use fulgurite_kernels::launch::CopyRange;
use smallvec::SmallVec;

use super::DeviceProgram;
use super::loaded::Loaded;
use super::regions::ALIGNMENT;
use crate::array::{Array, Memory};
use crate::device::DeviceBuffer;
use crate::error::Result;

/// Copies of small inputs from the device: so many need no memory of the host's heap.
type Copies = SmallVec<[CopyRange; 8]>;

impl DeviceProgram {
    /// Copies small inputs to their places, which `places` has for each input that is small: those of the host in one
    /// copy, those of the device in one launch.
    pub(super) fn stage(&self, loaded: &mut Loaded, inputs: &[Array], places: &[Option<u64>]) -> Result<()> {
        let own = loaded.own();
        let first = self.regions.staged.start;
        let staged = || inputs.iter().zip(places).filter_map(|(array, staged)| Some((array, (*staged)?)));
        // What was sent ahead is on the device.
        let from_host = staged().any(|(array, _)| matches!(array.memory(), Memory::Host(_)));
        if from_host {
            loaded.staging.send(&loaded.state, &self.trace.name, own.offset(first as usize), |bytes| {
                let mut end = 0;
                for (array, offset) in staged() {
                    if let Memory::Host(buffer) = array.memory() {
                        let (at, length) = ((offset - first) as usize, array.meta().bytes());
                        bytes[at..at + length].copy_from_slice(&buffer.as_bytes()[array.byte_offset()..][..length]);
                        end = at + length;
                    }
                }
                end
            })?;
        }
        let mut copies = Copies::new();
        let mut last: Option<&Arc<DeviceBuffer>> = None;
        for (array, offset) in staged() {
            let Memory::Device(buffer) = array.memory() else { continue };
            let from = buffer.address().offset(array.byte_offset());
            let range = CopyRange { from, to: own.offset(offset as usize), bytes: array.meta().bytes() };
            let shared = last.is_some_and(|last| Arc::ptr_eq(last, buffer));
            match copies.last_mut().filter(|_| shared).and_then(|before| joined(before, &range)) {
                Some((before, bytes)) => before.bytes = bytes,
                None => copies.push(range),
            }
            last = Some(buffer);
        }
        // SAFETY: the ranges are allocated, each input has a place of its own, and later uses of them are on this
        // stream.
        unsafe { loaded.state.stream().copy_all(&copies) }?;
        Ok(())
    }
}

/// The copy before and its size if it is to copy `next` as well, an input of the same memory at the same distance there
/// as here: inputs that were sent together are copied together. Between the two places is nothing but what rounds up
/// the first one, since all places are aligned; the bytes between the two in the memory that they share are copied to
/// there.
fn joined<'a>(before: &'a mut CopyRange, next: &CopyRange) -> Option<(&'a mut CopyRange, usize)> {
    let apart = next.to.0.checked_sub(before.to.0)?;
    let alike = next.from.0.checked_sub(before.from.0)? == apart;
    let gap = apart.checked_sub(before.bytes as u64)?;
    (alike && gap < ALIGNMENT).then_some((before, apart as usize + next.bytes))
}

#[cfg(test)]
mod tests {
    use fulgurite_kernels::launch::DeviceAddress;

    use super::*;

    #[test]
    fn what_lies_alike_in_both_memories_is_one_copy() {
        let range = |from, to, bytes| CopyRange { from: DeviceAddress(from), to: DeviceAddress(to), bytes };
        let of = |next: CopyRange| joined(&mut range(4096, 512, 300), &next).map(|(_, bytes)| bytes);
        // Behind what rounds 300 bytes up to 512.
        assert_eq!(of(range(4096 + 512, 1024, 8)), Some(520));
        assert_eq!(of(range(4096 + 300, 812, 8)), Some(308));
        // Elsewhere in one of the two, over one another, before, and with another place between.
        assert_eq!(of(range(4096 + 512, 1280, 8)), None);
        assert_eq!(of(range(4096 + 256, 768, 8)), None);
        assert_eq!(of(range(4096 - 256, 256, 8)), None);
        assert_eq!(of(range(4096 + 768, 1280, 8)), None);
    }
}
