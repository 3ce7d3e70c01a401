//! Sorting keys on a device, with the numbers of what they belong to.

use fulgurite_runtime::rules::{Address, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

/// Keys of one tile of the sort, and counts that a block sums: as in the source.
const TILE: usize = 1024;
const SUMMED: usize = 4096;

/// Memory for a sort of `count` keys, which are unsigned numbers of 32 or 64 bits.
pub(super) struct Sort {
    count: u32,
    key: &'static str,
    /// The first has the keys before the sort.
    pub(super) keys: [Address; 2],
    numbers: [Address; 2],
    counts: Address,
    totals: Address,
}

impl Sort {
    /// Below so many keys there can be a sort: their numbers have 32 bits, and so have sums of their counts.
    pub(super) const LIMIT: usize = 1 << 31;

    pub(super) fn new(plan: &mut Plan, count: usize, is_long: bool) -> Sort {
        let (key, bytes) = if is_long { ("u64", 8) } else { ("u32", 4) };
        let counts = 256 * count.div_ceil(TILE);
        Sort {
            count: count as u32,
            key,
            keys: [0, 1].map(|_| plan.workspace((count * bytes) as u64)),
            numbers: [0, 1].map(|_| plan.workspace(count as u64 * 4)),
            counts: plan.workspace(counts as u64 * 4),
            totals: plan.workspace(counts.div_ceil(SUMMED) as u64 * 4),
        }
    }

    /// A sort of as many keys of 32 bits in the same memory, once this one has run and given `numbers`, which it may
    /// take: nothing else of this one is needed any more.
    pub(super) fn then(&self, numbers: Address) -> Sort {
        let Sort { count, keys, numbers: [first, second], counts, totals, .. } = *self;
        // The first pass writes the second of them, and must not write what it reads.
        let numbers = if numbers == first { [first, second] } else { [second, first] };
        Sort { count, key: "u32", keys, numbers, counts, totals }
    }

    /// Sorts by the lowest `bits` bits of the keys. Key n has number n, or that of `numbers`. Gives where the sorted
    /// keys and their numbers are.
    pub(super) fn run(&self, plan: &mut Plan, bits: u32, numbers: Option<Address>) -> Result<(Address, Address)> {
        let tiles = self.count.div_ceil(TILE as u32);
        let length = 256 * tiles;
        let parts = length.div_ceil(SUMMED as u32);
        plan.source(source_files!["sorting.cu"]);
        plan.define("KEY", self.key);
        let passes = bits.div_ceil(8).max(1);
        let mut before = numbers.map_or(Parameter::from(0u64), Parameter::from);
        for pass in 0..passes {
            let (from, to) = ((pass % 2) as usize, (1 - pass % 2) as usize);
            let (keys, sorted, after, shift) = (self.keys[from], self.keys[to], self.numbers[to], pass * 8);
            let by_tile = LaunchShape::linear(tiles, 256);
            plan.launch("count_digits", by_tile, binds![keys, self.counts, self.count, tiles, shift])?;
            plan.launch("sum_counts", LaunchShape::linear(parts, 1024), binds![self.counts, self.totals, length])?;
            plan.launch("sum_totals", LaunchShape::linear(1, 1024), binds![self.totals, parts])?;
            let parameters = binds![keys, before, sorted, after, self.counts, self.totals, self.count, tiles, shift];
            plan.launch("place_keys", by_tile, parameters)?;
            before = after.into();
        }
        let last = passes as usize % 2;
        Ok((self.keys[last], self.numbers[last]))
    }
}
