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

#[cfg(test)]
mod tests {
    use fulgurite_kernels::launch::DeviceAddress;

    use super::*;
    use crate::device::DeviceMemory;

    #[derive(Debug)]
    struct At(u64, usize);

    impl DeviceMemory for At {
        fn address(&self) -> DeviceAddress {
            DeviceAddress(self.0)
        }

        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn block(address: u64, bytes: usize) -> Block {
        Block::from(Box::new(At(address, bytes)) as Box<dyn DeviceMemory>)
    }

    fn taken(kept: &mut Kept, bytes: usize) -> Option<u64> {
        kept.take(bytes).map(|block| block.address().0)
    }

    #[test]
    fn blocks_are_taken_by_their_size_from_the_lowest_address() {
        let mut kept = Kept::of_free(None);
        for (address, bytes) in [(300, 8), (100, 8), (200, 8), (50, 16)] {
            kept.add(block(address, bytes));
        }
        assert_eq!(taken(&mut kept, 4), None);
        assert_eq!(taken(&mut kept, 8), Some(100));
        // Whatever order they come back in, the next ones are the same.
        kept.add(block(100, 8));
        assert_eq!([(); 3].map(|()| taken(&mut kept, 8)), [Some(100), Some(200), Some(300)]);
        assert_eq!((taken(&mut kept, 8), taken(&mut kept, 16)), (None, Some(50)));
    }

    #[test]
    fn a_fourth_of_what_is_free_is_kept() {
        let mut kept = Kept::of_free(Some(8 * LEAST_BYTES));
        kept.add(block(0, LEAST_BYTES));
        assert!(kept.has_room(LEAST_BYTES) && !kept.has_room(LEAST_BYTES + 1));
        assert!(kept.take(LEAST_BYTES).is_some() && kept.has_room(2 * LEAST_BYTES));
        kept.add(block(0, LEAST_BYTES));
        assert_eq!(kept.give_up().len(), 1);
        assert!(kept.has_room(2 * LEAST_BYTES) && kept.take(LEAST_BYTES).is_none());
        assert!(Kept::of_free(None).has_room(LEAST_BYTES) && Kept::of_free(Some(0)).has_room(LEAST_BYTES));
    }
}
