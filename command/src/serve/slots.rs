//! How many there may be of something at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of free slots.
#[derive(Debug)]
pub struct Slots {
    free: AtomicUsize,
}

/// One that is taken, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    of: Arc<Slots>,
}

impl Slots {
    /// So many that are free.
    pub fn new(count: usize) -> Arc<Slots> {
        Arc::new(Slots { free: AtomicUsize::new(count) })
    }

    /// Takes one, if one is free.
    pub fn take(slots: &Arc<Slots>) -> Option<Slot> {
        let one_less = |free: usize| free.checked_sub(1);
        slots.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).ok()?;
        Some(Slot { of: Arc::clone(slots) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.free.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_it_is_dropped() {
        let slots = Slots::new(2);
        let taken = [Slots::take(&slots), Slots::take(&slots)];
        assert!(taken.iter().all(Option::is_some) && Slots::take(&slots).is_none());
        drop(taken);
        assert!(Slots::take(&slots).is_some());
    }
}
