//! Unused large blocks, kept for the next buffer of their size: the system takes longer to hand out and zero fresh
//! pages than a kernel takes to fill them.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::memory::Memory;
use crate::machine;

/// Smaller blocks come quickly from the system's own allocator.
const SMALLEST: usize = 1 << 20;

/// Blocks that are kept, the one kept last at the end.
struct Pool {
    kept: VecDeque<Memory>,
    /// Their bytes,
    bytes: usize,
    /// and how many these may be.
    capacity: usize,
}

impl Pool {
    fn new(capacity: usize) -> Pool {
        Pool { kept: VecDeque::new(), bytes: 0, capacity }
    }

    /// A block of exactly `size` bytes, if one is kept.
    fn take(&mut self, size: usize) -> Option<Memory> {
        let at = self.kept.iter().rposition(|kept| kept.size() == size)?;
        self.bytes -= size;
        self.kept.remove(at)
    }

    /// Keeps a block, and lets go of those that were kept longest where there are too many. Gives back what is not
    /// kept.
    fn keep(&mut self, memory: Memory) -> Vec<Memory> {
        if memory.size() > self.capacity {
            return vec![memory];
        }
        self.bytes += memory.size();
        self.kept.push_back(memory);
        let mut dropped = Vec::new();
        while self.bytes > self.capacity {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.size();
            dropped.push(oldest);
        }
        dropped
    }
}

static POOL: OnceLock<Mutex<Pool>> = OnceLock::new();

/// What the process keeps: an eighth of the memory that it may use; 512 MiB where the system does not tell.
fn with_pool<T>(f: impl FnOnce(&mut Pool) -> T) -> T {
    let pool = POOL.get_or_init(|| {
        let eighth = machine::available_memory().and_then(|bytes| usize::try_from(bytes / 8).ok());
        Mutex::new(Pool::new(eighth.unwrap_or(512 << 20)))
    });
    f(&mut pool.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A block of exactly `size` bytes of unspecified content, if one is kept.
pub(super) fn take(size: usize) -> Option<Memory> {
    if size < SMALLEST { None } else { with_pool(|pool| pool.take(size)) }
}

/// Keeps a block whose every byte was written, or gives it back to the system.
pub(super) fn keep(memory: Memory) {
    if memory.size() >= SMALLEST {
        // The system takes its time: nobody else waits for it.
        drop(with_pool(|pool| pool.keep(memory)));
    }
}

/// Gives everything back to the system.
pub(super) fn clear() {
    drop(with_pool(|pool| {
        pool.bytes = 0;
        std::mem::take(&mut pool.kept)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_lets_go_of_the_oldest() {
        let mut pool = Pool::new(100);
        let block = |size| Memory::zeroed(size).unwrap();
        let sizes = |blocks: &[Memory]| blocks.iter().map(Memory::size).collect::<Vec<_>>();
        assert!(pool.keep(block(40)).is_empty() && pool.keep(block(50)).is_empty());
        assert_eq!(sizes(&pool.keep(block(101))), [101]);
        assert_eq!(sizes(&pool.keep(block(60))), [40, 50]);
        assert!(pool.take(40).is_none() && pool.take(59).is_none());
        assert_eq!(pool.bytes, 60);
        assert_eq!(pool.take(60).map(|block| block.size()), Some(60));
        assert_eq!(pool.bytes, 0);
    }
}
