//! Memory of a simulated device: blocks at addresses that are none of the host, and that are never given twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite::device::MemoryHeld;

use crate::error::SimError;

/// Memory of each device, in bytes.
pub const CAPACITY: usize = 256 << 20;
/// The first address of the first device: no processor of today has it, so that the host cannot read through one.
const FIRST: u64 = 1 << 60;
/// Addresses of each device.
const SPAN: u64 = 1 << 52;
/// What a block starts on, and the gap behind it at least.
const ALIGNMENT: u64 = 256;

/// Memory of a device.
#[derive(Debug, Clone)]
pub struct Heap(Arc<Mutex<Blocks>>);

#[derive(Debug)]
struct Blocks {
    blocks: BTreeMap<u64, Vec<u8>>,
    next: u64,
    held: MemoryHeld,
}

impl Heap {
    /// The empty memory of device `ordinal`.
    pub fn new(ordinal: u32) -> Heap {
        let next = FIRST + u64::from(ordinal) * SPAN;
        Heap(Arc::new(Mutex::new(Blocks { blocks: BTreeMap::new(), next, held: MemoryHeld::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of unspecified content, which is never zero so that nobody counts on it.
    pub fn allocate(&self, bytes: usize) -> Result<u64, SimError> {
        let mut heap = self.lock();
        let free = CAPACITY - heap.held.now;
        if bytes > free {
            return Err(SimError::OutOfMemory { asked: bytes, free, total: CAPACITY });
        }
        let start = heap.next;
        heap.next += (bytes as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        heap.blocks.insert(start, vec![0xa5; bytes]);
        heap.held.now += bytes;
        heap.held.peak = heap.held.peak.max(heap.held.now);
        Ok(start)
    }

    /// Frees the block that starts there.
    pub fn free(&self, start: u64) {
        let mut heap = self.lock();
        if let Some(block) = heap.blocks.remove(&start) {
            heap.held.now -= block.len();
        }
    }

    /// The bytes that are allocated, now and at most.
    pub fn held(&self) -> MemoryHeld {
        self.lock().held
    }

    /// A copy of bytes.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>, SimError> {
        self.lock().with(address, bytes, |range| range.to_vec())
    }

    /// Whether there is a block at `address`.
    pub fn has(&self, address: u64) -> bool {
        self.lock().with(address, 1, |_| true).unwrap_or(false)
    }

    /// Writes bytes.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), SimError> {
        self.lock().with(address, from.len(), |range| range.copy_from_slice(from))
    }

    /// Sets bytes.
    pub fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<(), SimError> {
        self.lock().with(address, bytes, |range| range.fill(byte))
    }
}

impl Blocks {
    fn with<R: Default>(&mut self, address: u64, bytes: usize, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, SimError> {
        if bytes == 0 {
            return Ok(R::default());
        }
        let found = self.blocks.range_mut(..=address).next_back();
        let range = found.and_then(|(start, block)| {
            let from = (address - start) as usize;
            block.get_mut(from..from.checked_add(bytes)?)
        });
        range.map(f).ok_or(SimError::Access { address, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allocated_cannot_be_used() {
        let heap = Heap::new(1);
        let block = heap.allocate(10).unwrap();
        heap.write(block + 2, &[1, 2, 3]).unwrap();
        assert_eq!(heap.read(block + 3, 2).unwrap(), [2, 3]);
        assert_eq!(heap.read(block + 8, 3), Err(SimError::Access { address: block + 8, bytes: 3 }));
        heap.free(block);
        assert!(heap.read(block, 1).is_err());
        assert!(heap.allocate(10).unwrap() != block, "an address is never given twice");
        assert!(matches!(heap.allocate(CAPACITY), Err(SimError::OutOfMemory { .. })));
        assert_eq!(heap.held(), MemoryHeld { now: 10, peak: 10 });
    }
}
