//! What handles a row of a program that reduces rows: lanes of a warp, a block, or a cluster of blocks; and where the
//! row stays between passes.

use super::passes::{Pass, Passes};
use super::problem::Problem;
use super::region::Region;
use fulgurite_kernels::fused::values::{Kind, Space};
use fulgurite_kernels::tile::Class;

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
/// Blocks of a row that is kept in shared memory: one, or a cluster that shares it out,
const CLUSTERS: [usize; 4] = [1, 2, 4, 8];
/// and their threads, where a multiprocessor has two blocks: while one waits for its row, the other one computes.
const THREADS_OF_PAIRS: usize = 512;
/// Shared memory that the driver takes of each block.
const BYTES_OF_DRIVER: usize = 1 << 10;
/// Where columns are summed over rows, blocks are persistent and loop over rows. Elements and words that a thread has
/// of a row then, threads of a multiprocessor, which may have 64 registers each, and multiprocessors of the largest
/// devices: the order of sums depends on their number.
const ELEMENTS_OF_SUMS: usize = 8;
const WORDS_OF_SUMS: usize = 48;
const THREADS_OF_SUMS: usize = 1024;
/// Threads of a block that has several rows at a time; and how many such blocks a multiprocessor has if a thread has no
/// more words than these.
const THREADS_OF_SEVERAL_ROWS: usize = 512;
const MORE_BLOCKS_OF_SEVERAL_ROWS: (usize, usize) = (3, 24);
const MULTIPROCESSORS: usize = 132;
/// Shared memory that the least multiprocessor with room for the next rows has.
const BYTES_OF_SUMS: usize = 96 << 10;
/// Words that a thread has during a pass, beside those that it keeps.
const WORDS_OF_PASS: usize = 32;
/// Bytes that a thread has under way of each input where it walks along a row.
const BYTES_UNDER_WAY: usize = 32;
/// Room for the warps' parts of each reduction.
const BYTES_OF_PARTS: usize = 32 * 8;

/// The lanes that handle a row, and where it stays between passes.
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
    /// Inputs that are loaded before they are used: before the first pass, or before the first row if all rows share
    /// them.
    pub(super) early: Vec<usize>,
    /// Blocks that a multiprocessor has at a time, which registers must suffice for; one if it does not matter.
    pub(super) resident: usize,
    pub(super) passes: Passes,
}

/// Whether the hardware copies `vector` elements of an input to shared memory while threads work: 4, 8 or 16 bytes.
pub(super) fn copies(region: &Region, input: usize, vector: usize) -> bool {
    let operand = &region.inputs[input];
    operand.is_packed(vector) && vector * operand.dtype.size() >= 4
}

/// Whether a block has several rows at a time whose columns are summed: its threads divide evenly into groups of one
/// row each. Groups go through different numbers of rows, and cannot wait for one another, as totals of rows and
/// values of rows that are stored need.
pub(super) fn has_several_rows(region: &Region, vector: usize) -> bool {
    let vectors = region.width.div_ceil(vector);
    2 * vectors <= THREADS_OF_SEVERAL_ROWS
        && THREADS_OF_SEVERAL_ROWS.is_multiple_of(vectors)
        && !region.per_row.contains(&true)
        && !region
            .values
            .list
            .iter()
            .zip(&region.used)
            .any(|(value, used)| *used && matches!(value.kind, Kind::Reduce(..)))
}

impl Plan {
    /// `None` if columns are to be summed of rows that do not suit it.
    pub(super) fn new(region: &Region, vector: usize, problem: &Problem<'_>) -> Option<Plan> {
        if region.sums().next().is_some() {
            return Plan::summing(region, vector);
        }
        Some(Plan::of_rows(region, vector, problem))
    }

    /// A row for each block at a time, or several short ones, of which a thread has the same columns in all rows.
    fn summing(region: &Region, vector: usize) -> Option<Plan> {
        let passes = Passes::new(region, true);
        let (vectors, sums) = (region.width.div_ceil(vector), region.sums().count());
        let is_first_in_later_pass = |input: &usize| {
            let loads = |pass: &Pass| pass.computed.iter().any(|v| region.input_of(*v) == Some(*input));
            passes.list.iter().position(loads) > Some(0)
        };
        let mut read = region.used_inputs_in(Space::Full);
        read.retain(|&input| !region.inputs[input].counted);
        let (shared, of_rows): (Vec<usize>, Vec<usize>) =
            read.iter().partition(|&&input| region.inputs[input].is_same_for_all_rows());
        let waiting = of_rows.iter().filter(|input| is_first_in_later_pass(input)).count();
        // Whether threads copy what they read of the next row to shared memory.
        let copies = of_rows.iter().all(|&input| copies(region, input, vector));
        let several = has_several_rows(region, vector);
        let blocks = [128, 256, 512, 1024].map(|threads| (threads, threads));
        let shapes = if several { vec![(vectors, THREADS_OF_SEVERAL_ROWS)] } else { blocks.to_vec() };
        for (lanes, threads) in shapes {
            let unroll = vectors.div_ceil(lanes);
            let each = unroll * vector;
            // A thread whose block has several rows holds its sums and what it reads of one row, with what all rows
            // share, and computes an element at a time.
            let held: usize = read.iter().map(|&input| (each * region.inputs[input].dtype.size()).div_ceil(4)).sum();
            let own = if several { held + each * sums + passes.peak } else { each * (passes.peak + sums) };
            if each > ELEMENTS_OF_SUMS || own > WORDS_OF_SUMS || 2 * vectors < lanes {
                continue;
            }
            let (more_blocks, few_words) = MORE_BLOCKS_OF_SEVERAL_ROWS;
            let has_few = several && own <= few_words;
            let room = if several { read.len() } else { (WORDS_OF_SUMS - own) / each };
            let mut early: Vec<usize> = if room >= waiting { of_rows.clone() } else { Vec::new() };
            early.extend(shared.iter().copied().take(room.saturating_sub(waiting)));
            let resident = if has_few { more_blocks } else { THREADS_OF_SUMS / threads };
            // The groups' sums take the place of the last rows.
            let parts = if several { vector * threads * size_of::<f32>() } else { 0 };
            let mut shared_bytes = 0;
            let mut cached = Vec::new();
            for &input in of_rows.iter().filter(|_| copies && room >= waiting) {
                cached.push((input, shared_bytes));
                shared_bytes += (each * threads * region.inputs[input].dtype.size()).next_multiple_of(16);
            }
            if resident * (shared_bytes + BYTES_OF_DRIVER) > BYTES_OF_SUMS {
                (cached, shared_bytes) = (Vec::new(), 0);
            }
            let shared_bytes = shared_bytes.max(parts);
            return Some(Plan {
                lanes,
                threads,
                blocks: 1,
                unroll,
                walks: false,
                cached,
                shared_bytes,
                early,
                resident,
                passes,
            });
        }
        None
    }

    /// Number of persistent blocks for `rows` rows.
    pub(super) fn staying_blocks(&self, rows: usize) -> usize {
        rows.div_ceil(self.rows_per_block()).min(MULTIPROCESSORS * self.resident)
    }

    fn of_rows(region: &Region, vector: usize, problem: &Problem<'_>) -> Plan {
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
            early: Vec::new(),
            resident: 1,
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
        }
        Plan::walking(region, vector, problem)
    }

    /// A thread goes along the row. What later passes read again is kept in shared memory, if there is room.
    fn walking(region: &Region, vector: usize, problem: &Problem<'_>) -> Plan {
        let passes = Passes::new(region, false);
        let mut reductions = passes.list.iter().flat_map(|pass| &pass.reductions);
        let bytes_of_parts = reductions.clone().count() * BYTES_OF_PARTS;
        // What blocks of a cluster tell one another are numbers.
        let in_clusters = problem.clusters && reductions.all(|&value| region.class(value) != Class::Bool);
        let again = |value: &usize| passes.kept[*value] && passes.list.iter().any(|pass| pass.reused.contains(value));
        let again: Vec<usize> =
            (0..region.used.len()).filter(again).filter_map(|value| region.input_of(value)).collect();
        let mut read = region.used_inputs_in(Space::Full);
        read.retain(|&input| !region.inputs[input].counted);
        let narrowest = read.iter().map(|&input| region.inputs[input].dtype.size()).min().unwrap_or(4);
        let under_way = (BYTES_UNDER_WAY / (vector * narrowest)).clamp(1, 8);
        let vectors = region.width.div_ceil(vector);
        // Room for what `blocks` blocks of `threads` threads keep, each its threads' part.
        let room = |input: usize, blocks: usize, threads: usize| {
            let elements =
                if blocks == 1 { region.width } else { vectors.div_ceil(blocks * threads) * threads * vector };
            (elements * region.inputs[input].dtype.size()).next_multiple_of(16)
        };
        let plan = |blocks: usize, threads: usize, resident: usize, kept: &[usize], passes: Passes| {
            let mut shared_bytes = 0;
            let mut cached = Vec::new();
            for &input in kept {
                cached.push((input, shared_bytes));
                shared_bytes += room(input, blocks, threads);
            }
            let lanes = blocks * threads;
            // Words of a thread in a step with one vector.
            let step = vector * passes.peak.max(1);
            // Shared memory is near: registers are better spent on more threads.
            let near = if vector < 4 { 4 } else { 2 };
            // Whether addresses are aligned for copies does not count: the order of sums depends on the number.
            let wide = |input: &usize| {
                let operand = &region.inputs[*input];
                operand.inner == 1 && vector * operand.dtype.size() >= 4
            };
            let copied = read.iter().all(|input| kept.contains(input) && wide(input));
            let unroll = if copied { under_way.min(near) } else { under_way };
            let unroll = if resident > 1 { unroll.min(WORDS_OF_PASS / step).max(1) } else { unroll };
            let resident = if step > WORDS_OF_PASS { 1 } else { resident };
            let early = Vec::new();
            Plan { lanes, threads, blocks, unroll, walks: true, cached, shared_bytes, early, resident, passes }
        };
        let short = region.width <= 16_384;
        // Two blocks of a multiprocessor hide one another's barriers and exponentials. Their rows fit beside each
        // other, whole or in parts.
        let threads = if short { THREADS_OF_PAIRS / 2 } else { THREADS_OF_PAIRS };
        for blocks in CLUSTERS.into_iter().filter(|&blocks| !again.is_empty() && (blocks == 1 || in_clusters)) {
            let kept: usize = again.iter().map(|&input| room(input, blocks, threads)).sum();
            let of_block = kept + bytes_of_parts + BYTES_OF_DRIVER;
            let resident = ((problem.shared_bytes + BYTES_OF_DRIVER) / of_block).min(2 * THREADS_OF_PAIRS / threads);
            if resident >= 2 {
                return plan(blocks, threads, resident, &again, passes);
            }
        }
        // As many inputs as fit a block that has the multiprocessor for itself.
        let available = problem.shared_bytes.saturating_sub(bytes_of_parts);
        let mut used_bytes = 0;
        let mut kept = Vec::new();
        for input in again {
            if used_bytes + room(input, 1, 1024) <= available {
                used_bytes += room(input, 1, 1024);
                kept.push(input);
            }
        }
        let threads = match region.width {
            _ if !kept.is_empty() => 1024,
            0..=16_384 => 256,
            16_385..=200_000 => 512,
            _ => 1024,
        };
        plan(1, threads, 1, &kept, passes)
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
