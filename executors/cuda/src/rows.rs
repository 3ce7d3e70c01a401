//! How many threads a row that is kept in registers has, and the source of kernels that go along longer rows.

use fulgurite_runtime::device::SourceText;
use fulgurite_runtime::rules::{LaunchShape, Plan};

/// The source of a file whose kernels go along rows by the types of `stream.cuh`: `Stream`, a row of COLUMNS elements
/// that starts anywhere, and `Exponentials`, of which a softmax consists. A plan defines ELEMENT, COLUMNS, PACK,
/// ALIGNED and THREADS.
pub fn streamed(name: &'static str, text: &'static str) -> SourceText {
    const STREAM: &str = include_str!("stream.cuh");
    SourceText::new(name, format!("#line 1 \"stream.cuh\"\n{STREAM}\n#line 1 \"{name}\"\n{text}\n"))
}

/// How many elements each thread keeps where a block has a row.
const OF_A_THREAD: usize = 16;

/// Rows of `columns` elements, kept in registers by `group` threads each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Elements of a row.
    pub columns: usize,
    /// Elements read at once.
    pub pack: usize,
    /// Threads of a row: a power of two up to 32, or a whole block.
    pub group: usize,
    /// Threads of a block.
    pub threads: usize,
}

impl Rows {
    /// The longest row that a part of a warp, or a warp, keeps.
    pub const LONGEST_OF_WARP: usize = 1024;

    /// With blocks of `threads` threads where a warp or less has a row, of at most `most` threads where a block has
    /// one; `None` if these cannot keep it.
    pub fn kept(columns: usize, pack: usize, threads: usize, most: usize) -> Option<Rows> {
        let packs = columns / pack;
        if columns <= Rows::LONGEST_OF_WARP {
            let group = packs.next_power_of_two().min(32);
            return Some(Rows { columns, pack, group, threads });
        }
        Rows::of_a_block(columns, pack, OF_A_THREAD, most)
    }

    /// A row for each block, whose at most `most` threads keep at most `each` elements, a multiple of the pack.
    pub fn of_a_block(columns: usize, pack: usize, each: usize, most: usize) -> Option<Rows> {
        let group = (columns / pack).div_ceil(each / pack).next_multiple_of(32);
        (group <= most).then_some(Rows { columns, pack, group, threads: group })
    }

    /// The longest row that blocks of at most `most` threads keep.
    pub const fn longest(most: usize) -> usize {
        most * OF_A_THREAD
    }

    /// Rows that a block has at a time.
    pub fn at_a_time(&self) -> usize {
        self.threads / self.group
    }

    /// The most elements that a thread keeps.
    pub fn of_a_thread(&self) -> usize {
        self.columns.div_ceil(self.pack * self.group) * self.pack
    }

    /// Defines the constants that the kernels use.
    pub fn define(&self, plan: &mut Plan) {
        plan.define("COLUMNS", self.columns);
        plan.define("PACK", self.pack);
        plan.define("GROUP", self.group);
        plan.define("THREADS", self.threads);
    }

    /// A launch with a place for each of `rows` rows.
    pub fn launch(&self, rows: usize) -> LaunchShape {
        LaunchShape::linear(rows.div_ceil(self.at_a_time()) as u32, self.threads as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread() {
        for columns in (1..3000).chain([4096, 8191, 8192, 16384]) {
            for pack in [1, 2, 4, 8].into_iter().filter(|pack| columns % pack == 0) {
                let rows = Rows::kept(columns, pack, 128, 1024).unwrap();
                assert!(rows.group.is_power_of_two() || rows.group.is_multiple_of(32), "{rows:?}");
                assert!(rows.threads.is_multiple_of(rows.group) && rows.threads <= 1024, "{rows:?}");
                assert!(rows.of_a_thread() <= 32 && rows.of_a_thread() * rows.group >= columns, "{rows:?}");
            }
        }
        assert_eq!(Rows::kept(16385, 1, 128, 1024), None);
        assert_eq!(Rows::longest(1024), 16384);
    }
}
