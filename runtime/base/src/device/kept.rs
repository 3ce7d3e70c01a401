//! Device memory that arrays no longer use, kept for the next ones.

use super::block::Block;

/// Freed blocks kept for the next of their size: allocating waits for the device.
const KEPT_BLOCKS: usize = 256;
/// So many bytes of them in all; what is more goes back to the driver.
const KEPT_BYTES: usize = 512 << 20;

/// Freed blocks, the latest last.
#[derive(Debug, Default)]
pub(super) struct Kept {
    blocks: Vec<Block>,
    /// Of all of them: a result is freed in each step of a training run, beside hundreds that are kept.
    bytes: usize,
}

impl Kept {
    /// The latest block of exactly `bytes` bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Block> {
        let at = self.blocks.iter().rposition(|memory| memory.bytes() == bytes)?;
        self.bytes -= bytes;
        Some(self.blocks.swap_remove(at))
    }

    /// Whether a block of `bytes` bytes is kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= KEPT_BYTES && self.blocks.len() < KEPT_BLOCKS
    }

    /// Keeps a block.
    pub(super) fn add(&mut self, memory: Block) {
        self.bytes += memory.bytes();
        self.blocks.push(memory);
    }

    /// All blocks.
    pub(super) fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }
}
