//! Which calls are worth a batch, and how much all batches may keep.

use std::time::Duration;

use crate::device::Rates;

/// Fewer calls are left as they are: two or three launches saved are not worth the memory.
pub(super) const FEWEST: usize = 4;

/// Bytes that all batches of a program may keep until they run and until their last result is read. GPT-2 124M has 280
/// MB of them in bf16 and 530 MB in f32, of 256 tokens; most of that are gradients, which a step keeps in any case.
pub(super) const MOST_BYTES: u64 = 512 << 20;

/// The part of the least time of a kernel in which the operands of one call are read at most. They are kept until the
/// last call's are there: 4.8 MB of each on a device of 4.8 TB/s.
pub(super) const READ: f64 = 0.25;

/// Rows from which on `fusion` computes sums of columns in the region that makes what is summed, without writing it.
pub(super) const ROWS_SUMMED_BESIDE: usize = 1024;

/// What calls must be to be batched.
pub(super) struct Small {
    pub rates: Rates,
    /// What a call takes less than, at these rates.
    pub least_kernel: Duration,
}
