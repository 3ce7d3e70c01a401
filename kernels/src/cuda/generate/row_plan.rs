//! Who handles a row of a program that reduces rows: lanes of a warp, a block, or a cluster of blocks; and where the
//! row stays between passes.

use super::passes::Passes;
use super::problem::Problem;
use super::region::Region;
use crate::fused::values::Space;
use crate::tile::Class;

/// The longest row that a warp handles by itself.
const LONGEST_OF_WARP: usize = 1024;
/// Threads of a block whose warps have rows of their own: few, so that few rows still spread over the multiprocessors.
const THREADS_OF_WARPS: usize = 128;
/// Words that a lane has of a row of its warp: it may have 255 registers.
const WORDS_OF_LANE: usize = 96;
/// Words that a thread keeps of its block's row, as long as there are threads to add; and in the largest block, where
/// it may have 64 registers, half of which the arithmetic needs.
const WORDS_OF_THREAD: usize = 16;
const MOST_WORDS_OF_THREAD: usize = 24;
/// Blocks of a cluster, for rows that no block's registers hold,
const CLUSTERS: [usize; 3] = [2, 4, 8];
/// and their threads: a multiprocessor runs two such blocks, which hide one another's barriers. (Blocks of 1024 threads
/// took twice as long as reading the row again.)
const THREADS_OF_CLUSTERS: usize = 512;
/// Words that a thread has during a pass, beside those that it keeps.
const WORDS_OF_PASS: usize = 32;
/// Bytes that a thread has under way of each input where it walks along a row.
const BYTES_UNDER_WAY: usize = 32;
/// Room for the warps' parts of each reduction.
const BYTES_OF_PARTS: usize = 32 * 8;

/// Who handles a row, and where it stays between passes.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Threads of a row.
    pub(super) lanes: usize,
    /// Threads of a block.
    pub(super) threads: usize,
    /// Blocks of a row: a cluster, if there are several.
    pub(super) blocks: usize,
    /// Vectors of a thread: all of its part of the row, or those of one step.
    pub(super) unroll: usize,
    /// Whether a thread walks along the row, since it cannot hold all of its part.
    pub(super) walks: bool,
    /// Inputs that are kept in shared memory, and where.
    pub(super) cached: Vec<(usize, usize)>,
    pub(super) shared_bytes: usize,
    pub(super) passes: Passes,
}

impl Plan {
    pub(super) fn new(region: &Region, vector: usize, problem: &Problem<'_>) -> Plan {
        let passes = Passes::new(region, true);
        let vectors = region.width.div_ceil(vector);
        let registers = |lanes: usize, threads: usize, passes: Passes| Plan {
            lanes,
            threads,
            blocks: lanes.div_ceil(threads),
            unroll: vectors.div_ceil(lanes),
            walks: false,
            cached: Vec::new(),
            shared_bytes: 0,
            passes,
        };
        if passes.list.is_empty() {
            return registers(1, THREADS_OF_WARPS, passes);
        }
        let words = |lanes: usize, each: usize| vectors.div_ceil(lanes) * vector * each;
        if region.width <= LONGEST_OF_WARP {
            let lanes = vectors.next_power_of_two().min(32);
            if words(lanes, passes.peak) <= WORDS_OF_LANE {
                return registers(lanes, THREADS_OF_WARPS, passes);
            }
        }
        if passes.words > 0 {
            for threads in [128, 256, 512, 1024] {
                let most = if threads == 1024 { MOST_WORDS_OF_THREAD } else { WORDS_OF_THREAD };
                if words(threads, passes.words) <= most && words(threads, passes.peak) <= WORDS_OF_PASS {
                    return registers(threads, threads, passes);
                }
            }
            // One input: with two, what a block has under way does not fill the memory's pipes, and reading the row
            // again is faster. And what blocks of a cluster tell one another are numbers.
            let mut reductions = passes.list.iter().flat_map(|pass| &pass.reductions);
            let suits = region.used_inputs_in(Space::Full).len() == 1
                && reductions.all(|&value| region.class(value) != Class::Bool);
            let threads = THREADS_OF_CLUSTERS;
            for blocks in CLUSTERS.into_iter().filter(|_| problem.clusters && suits) {
                let lanes = blocks * threads;
                if words(lanes, passes.words) <= WORDS_OF_THREAD && words(lanes, passes.peak) <= WORDS_OF_PASS {
                    return registers(lanes, threads, passes);
                }
            }
        }
        Plan::walking(region, vector, problem.shared_bytes)
    }

    fn walking(region: &Region, vector: usize, shared_bytes: usize) -> Plan {
        let passes = Passes::new(region, false);
        let reductions: usize = passes.list.iter().map(|pass| pass.reductions.len()).sum();
        let available = shared_bytes.saturating_sub(reductions * BYTES_OF_PARTS);
        let mut cached = Vec::new();
        let mut used_bytes = 0;
        for value in 0..region.used.len() {
            let Some(input) = region.input_of(value).filter(|_| passes.kept[value]) else { continue };
            let bytes = (region.width * region.inputs[input].dtype.size()).next_multiple_of(16);
            if passes.list.iter().any(|pass| pass.reused.contains(&value)) && used_bytes + bytes <= available {
                cached.push((input, used_bytes));
                used_bytes += bytes;
            }
        }
        let inputs = region.used_inputs_in(Space::Full).into_iter().map(|input| region.inputs[input].dtype.size());
        let narrowest = inputs.min().unwrap_or(4);
        let unroll = (BYTES_UNDER_WAY / (vector * narrowest)).clamp(1, 8);
        // Two blocks of 512 threads on a multiprocessor hide one another's barriers, where their rows fit beside each
        // other.
        let threads = match region.width {
            _ if used_bytes > 0 && 2 * used_bytes > available => 1024,
            0..=16_384 => 256,
            16_385..=200_000 => 512,
            _ => 1024,
        };
        Plan { lanes: threads, threads, blocks: 1, unroll, walks: true, cached, shared_bytes: used_bytes, passes }
    }

    /// One where a row has a block or more.
    pub(super) fn rows_per_block(&self) -> usize {
        (self.threads / self.lanes).max(1)
    }

    pub(super) fn describe(&self, width: usize, vector: usize) -> String {
        let who = match (self.lanes, self.rows_per_block()) {
            (1, _) => "a thread".to_owned(),
            _ if self.blocks > 1 => format!("a cluster of {} blocks of {} threads", self.blocks, self.threads),
            (lanes, 1) => format!("a block of {lanes} threads"),
            (lanes, _) => format!("{lanes} lanes"),
        };
        let kept = match (self.passes.list.len(), self.walks, self.cached.is_empty()) {
            (0 | 1, _, _) => "read once",
            (_, false, _) => "kept in registers",
            (_, true, false) => "kept in shared memory",
            (_, true, true) => "read by each pass",
        };
        format!("rows of {width} elements, each by {who}, {vector} at once, {kept}.")
    }
}
