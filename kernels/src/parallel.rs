//! When and how work is spread over threads.

use std::ops::Range;

use rayon::prelude::*;

/// Work of fewer elements than this stays on the calling thread: waking others costs more.
pub(crate) const THREADING_THRESHOLD: usize = 64 << 10;

/// Calls `body` with ranges that cover `0..units`, on several threads when the units hold enough elements.
///
/// How the range is cut depends on the number of threads; so units must be independent of each other.
pub(crate) fn for_ranges(units: usize, elements: usize, body: impl Fn(Range<usize>) + Sync) {
    if units == 0 {
        return;
    }
    if units == 1 || elements < THREADING_THRESHOLD {
        return body(0..units);
    }
    let threads = rayon::current_num_threads();
    if threads == 1 {
        return body(0..units);
    }
    let tasks = units.min(4 * threads).min((elements / (THREADING_THRESHOLD / 4)).max(1));
    (0..tasks).into_par_iter().with_max_len(1).for_each(|task| {
        let range = units * task / tasks..units * (task + 1) / tasks;
        body(range);
    });
}

/// An address that tasks share; each of them uses a part of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared(*mut u8);

// SAFETY: an address is plain data; each place that dereferences it says why that part is exclusive.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(address: *mut u8) -> Shared {
        Shared(address)
    }

    /// The address (a method, so that closures capture the whole value and not the bare pointer).
    pub(crate) fn get(self) -> *mut u8 {
        self.0
    }
}
