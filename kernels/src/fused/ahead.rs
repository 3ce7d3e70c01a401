//! Memory at work while a tile is computed: the inputs of the next tile are fetched meanwhile.

use smallvec::SmallVec;

use crate::tile::stream::{LINE, fetch};

/// The inputs' parts of the next tile: where each begins, and its bytes. They need not be there.
#[derive(Default)]
pub(super) struct Ahead {
    parts: SmallVec<[(*const u8, usize); 4]>,
}

impl Ahead {
    pub(super) fn add(&mut self, start: *const u8, bytes: usize) {
        self.parts.push((start, bytes));
    }

    /// Fetches the share of one of the steps of a tile. (All of it at once would be more than a core has under way.)
    pub(super) fn fetch(&self, step: usize, steps: usize) {
        for &(start, bytes) in &self.parts {
            let lines = bytes.div_ceil(LINE);
            for line in lines * step / steps..lines * (step + 1) / steps {
                fetch(start.wrapping_add(line * LINE));
            }
        }
    }
}
