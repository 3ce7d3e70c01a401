//! Device memory that arrays no longer use, kept for the next ones.

use std::collections::BTreeMap;

use super::block::Block;

/// So many bytes are kept in any case, and a fourth of the memory that is free when the device is opened; what is more
/// goes back to the driver. Allocating and freeing wait for the device, and what a forward pass saves for its backward
/// pass is freed in each step.
const LEAST_BYTES: usize = 512 << 20;

/// Freed blocks by their bytes and addresses.
#[derive(Debug)]
pub(super) struct Kept {
    blocks: BTreeMap<(usize, u64), Block>,
    /// Of all of them.
    bytes: usize,
    most: usize,
}

impl Kept {
    /// None yet, on a device with so many free bytes.
    pub(super) fn of_free(free: Option<usize>) -> Kept {
        Kept { blocks: BTreeMap::new(), bytes: 0, most: LEAST_BYTES.max(free.unwrap_or(0) / 4) }
    }

    /// The block of exactly `bytes` bytes with the lowest address: programs that take and free the same blocks in turn
    /// then have the same ones each time, and recorded graphs are replayed as they are.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        let key = *self.blocks.range((bytes, 0)..=(bytes, u64::MAX)).next()?.0;
        self.bytes -= bytes;
        self.blocks.remove(&key)
    }

    /// Whether a block of `bytes` bytes is kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.most
    }

    /// Keeps a block.
    pub(super) fn add(&mut self, memory: Block) {
        self.bytes += memory.bytes();
        self.blocks.insert((memory.bytes(), memory.address().0), memory);
    }

    /// All blocks, which are no longer kept.
    pub(super) fn give_up(&mut self) -> Vec<Block> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks).into_values().collect()
    }
}
