//! How a normalization goes over its rows.

use fulgurite_executor_cuda::rows::Rows;
use fulgurite_executor_cuda::support::{WIDEST, index_type};
use fulgurite_runtime::rules::{LaunchShape, Plan};

/// Threads of a block that has several rows.
const THREADS: usize = 256;
/// The most threads of a block.
const MOST_THREADS: usize = 1024;

/// Turns for which rows are on their way, at most.
const DEPTH: usize = 2;
/// Bytes of shared memory that a block of every device may have for them.
const SHARED: usize = 96 << 10;

/// A walk over rows: each of the blocks that a multiprocessor has at a time takes one row, or some, after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walk {
    /// The threads of a row, which keep it in registers.
    rows: Rows,
    /// Turns that rows are on their way for.
    depth: usize,
    /// Blocks that a multiprocessor has at a time.
    resident: usize,
}

impl Walk {
    /// Over rows of `columns` elements, of which a thread keeps at most `each`, by `threads` threads of a
    /// multiprocessor; `None` if a block cannot keep a row.
    pub(super) fn new(columns: usize, pack: usize, each: usize, threads: usize) -> Option<Walk> {
        let packs = columns / pack;
        let rows = if packs.div_ceil(32) * pack <= each {
            Rows { columns, pack, group: packs.next_power_of_two().min(32), threads: THREADS }
        } else {
            Rows::of_a_block(columns, pack, each, MOST_THREADS)?
        };
        Some(Walk { rows, depth: 0, resident: (threads / rows.threads).max(1) })
    }

    /// With the rows of `operands` tensors of elements of `size` bytes on their way for the next turns: two, or as many
    /// as shared memory holds.
    pub(super) fn ahead(self, operands: usize, size: usize) -> Walk {
        // Packs of other sizes are not copied while the kernel works.
        let depth = if self.rows.pack * size == WIDEST { DEPTH.min(SHARED / self.turn(operands, size)) } else { 0 };
        Walk { depth, ..self }
    }

    /// Bytes of the rows of a turn.
    fn turn(&self, operands: usize, size: usize) -> usize {
        operands * self.rows.of_a_thread() * self.rows.threads * size
    }

    /// Blocks of a launch with a place for each of `rows` rows.
    pub(super) fn blocks_for_all(&self, rows: usize) -> usize {
        rows.div_ceil(self.rows.at_a_time())
    }

    /// Blocks of a launch over `rows` rows: no more than the device has at a time. There are as many on every device of
    /// an architecture, so that sums over the rows of a block have one order.
    pub(super) fn resident_blocks(&self, plan: &Plan, rows: usize) -> usize {
        self.blocks_for_all(rows).min(plan.typical().multiprocessors * self.resident)
    }

    /// Tells the kernels, which go over `rows` rows.
    pub(super) fn define(&self, plan: &mut Plan, rows: usize) {
        self.rows.define(plan);
        plan.define("DEPTH", self.depth);
        // Kernels count a few turns past the end.
        plan.define("INDEX", index_type(rows + (1 << 28)));
        plan.define("RESIDENT", self.resident);
    }

    /// A launch of `blocks` blocks, with shared memory for the rows of `operands` tensors of elements of `size` bytes.
    pub(super) fn launch(&self, blocks: usize, operands: usize, size: usize) -> LaunchShape {
        let shared = self.depth * self.turn(operands, size);
        LaunchShape::linear(blocks as u32, self.rows.threads as u32).shared(shared as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread_and_every_multiprocessor_a_block() {
        for columns in (1..=3000).chain([4095, 4096, 8191, 8192]) {
            for pack in [1, 2, 4, 8].into_iter().filter(|pack| columns % pack == 0) {
                let walk = Walk::new(columns, pack, 8, 1024).unwrap();
                let Rows { group, threads, .. } = walk.rows;
                assert!(group.is_power_of_two() || group.is_multiple_of(32), "{walk:?}");
                assert!(threads.is_multiple_of(group) && threads <= MOST_THREADS && walk.resident > 0, "{walk:?}");
                let kept = walk.rows.of_a_thread();
                assert!(kept <= 8 && kept * group >= columns, "{walk:?}");
            }
        }
        assert_eq!(Walk::new(8193, 1, 8, 1024), None);
    }
}
