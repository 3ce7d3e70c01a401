//! How the kernels of attention that multiply by warp groups (`wgmma`) are launched. Code for sm_90a has these
//! products, code for other architectures has not.

use fulgurite_runtime::DType;
use fulgurite_runtime::device::Address;
use fulgurite_runtime::rules::{LaunchShape, Parameter, Plan};

use super::changes::Changes;
use super::problem::{Problem, Products, WIDEST, WIDEST_ACCESS};

/// Rows of a warp group.
const ROWS: usize = 64;

/// Queries and keys of so many rows are left to the kernels whose warps multiply by themselves: one tile of a warp
/// group's is all of them, and what its blocks do before the first product takes longer than the products. A step of
/// GPT-2 124M, 4 sequences, on an H200: 2.37 ms in place of 2.44 of 64 tokens, 2.83 in place of 2.89 of 128, as long of
/// 256, and 5.28 in place of 5.08 of 512.
const SHORT: usize = 128;

/// Threads of a warp group.
const THREADS: usize = 128;

/// Elements of a row of a tile in shared memory; of wider rows, tiles are beside each other.
const PART: usize = 64;

/// Tiles begin at multiples of this many bytes of shared memory.
const ALIGNMENT: usize = 1024;

/// Bytes of the two barriers of each place for a tile.
const BARRIERS: usize = 2 * size_of::<u64>();

/// Registers of a thread that computes, and of one that fills shared memory: all that a multiprocessor has, for two and
/// for three warp groups that compute.
type Registers = [usize; 2];
const OF_TWO: Registers = [232, 40];
const OF_THREE: Registers = [160, 32];

/// As [`OF_TWO`], where all that computes is of use.
const MOST_OF_TWO: Registers = [240, 24];

/// Of one warp group that computes, which may not have more.
const OF_ONE: Registers = [240, 40];

/// Queries of a tile of the backward kernel of one pass.
pub(super) const JOINT_TILE: usize = 64;

/// Bytes of shared memory for the indices of two pieces of work, and their barriers.
const PIECES_BYTES: usize = 2 * (16 + BARRIERS);

/// Bytes of the cache that pieces of work should read again and again: a third of an H200's.
const CACHE_BYTES: usize = 16 << 20;

/// The blocks that an H100 or an H200 runs at a time, of kernels that fill a multiprocessor each.
const AT_WORK: usize = 132;

/// Of the last heads of causal attention, which the backward kernel of one pass takes together: the most blocks of
/// keys, if they are more than those of twelve heads. More tiles of queries do not fit the cache.
const RISING_BLOCKS: usize = 384;

/// The rows that a block has, and those that it reads at a time.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    /// Warp groups that compute; one more fills shared memory.
    consumers: usize,
    /// Rows of the other side in a tile.
    tile: usize,
    /// Tiles of each tensor of the other side that there is room for.
    stages: usize,
    /// The same of the block's own rows. Where it is one, the next piece of work waits for its rows.
    own_stages: usize,
    registers: Registers,
    /// Whether all warp groups have the same 64 rows, and each another result.
    shares_rows: bool,
    /// Heads whose pieces of work are taken in turn, where they are taken from a counter.
    heads_at_once: usize,
    /// Pieces of work: a block's rows of a head.
    pieces: usize,
    shared_bytes: usize,
}

impl Groups {
    /// Whether products by warp groups are worth their padding for a problem on the device that is planned for.
    fn fit(plan: &Plan, problem: &Problem) -> bool {
        let has_products = plan.properties().architecture.as_deref() == Some("sm_90a");
        let half = matches!(problem.dtype, DType::BF16 | DType::F16);
        // Narrow heads would be mostly zeros. Rows of no whole packs are read one by one, by all warps the faster.
        has_products
            && half
            && problem.queries.max(problem.keys) > SHORT
            && (PART / 2 + 1..=WIDEST).contains(&problem.width)
            && problem.has_whole(Groups::pack(problem))
    }

    /// Of the forward kernel; `None` leaves the problem to the kernels whose warps multiply by themselves. Sizes are
    /// part of the order of sums: they depend on the shape and the architecture, and on nothing that addresses or
    /// strides decide. They were measured on an H200: of what fits registers the fastest, or as good as any.
    pub fn forward(plan: &Plan, problem: &Problem, changes: &Changes) -> Option<Groups> {
        if !Groups::fit(plan, problem) {
            return None;
        }
        let (narrow, wide) = (Groups::padded(problem) == PART, Groups::padded(problem) > 2 * PART);
        // Wide heads leave room for a mask, and for tiles of half as many rows.
        if wide && (changes.cap.is_some() || changes.dropped.is_some()) {
            return None;
        }
        // Three, unless many rows of the last block are none.
        let missing = problem.queries.next_multiple_of(3 * ROWS) - problem.queries;
        let three = narrow && missing <= problem.queries / 16 && changes.of_registers() == 0;
        let (consumers, registers) = if three { (3, OF_THREE) } else { (2, OF_TWO) };
        // Where scores are changed in several ways, registers are left for half as many.
        let tile = if !wide && changes.of_registers() <= if narrow { 2 } else { 1 } { 128 } else { 64 };
        let stages = if narrow { 3 } else { 2 };
        let own_stages = if wide { 1 } else { 2 };
        let rows = own_stages * consumers * ROWS + 2 * stages * tile;
        // Twice the heads that the blocks at work have, so that the last pieces of work are small, if their keys and
        // values fit the cache. No sum depends on it.
        let blocks = problem.queries.div_ceil(consumers * ROWS);
        let fitting = CACHE_BYTES / (2 * problem.keys * Groups::row_bytes(problem));
        let heads_at_once = (2 * plan.properties().multiprocessors / blocks).min(fitting).max(1);
        let heads_at_once = heads_at_once.min(problem.heads * problem.batch);
        Some(Groups {
            consumers,
            tile,
            stages,
            own_stages,
            registers,
            shares_rows: false,
            heads_at_once,
            pieces: blocks * problem.heads * problem.batch,
            shared_bytes: rows * Groups::row_bytes(problem) + PIECES_BYTES + BARRIERS * (own_stages + 2 * stages),
        })
    }

    /// Of the two backward kernels, as [`Groups::forward`]: that whose blocks have keys, then that whose blocks have
    /// queries. In f16 the gradients of scores may exceed what the products take, which only wide heads risk.
    pub fn backward(plan: &Plan, problem: &Problem, changes: &Changes) -> Option<[Groups; 2]> {
        // The slopes of capped scores would be as many registers as scores are; heads of 65 and more leave room for one
        // change.
        let room = changes.of_registers() < if Groups::padded(problem) == PART { 3 } else { 2 };
        let as_they_are = problem.products == Products::Halves;
        let fits = Groups::fit(plan, problem) && as_they_are && changes.cap.is_none() && room;
        let shares_rows = Groups::padded(problem) > 2 * PART;
        let of =
            |[consumers, tile, stages]: [usize; 3], registers: Registers, own: usize, heads: usize, known: usize| {
                let shares_rows = shares_rows && consumers > 1;
                let own_rows = if shares_rows { ROWS } else { consumers * ROWS };
                let rows = own_rows + stages * tile;
                Groups {
                    consumers,
                    tile,
                    stages,
                    // Rows of narrow heads are held in registers, and their place is filled again at once.
                    own_stages: 1,
                    registers,
                    shares_rows,
                    heads_at_once: 0,
                    pieces: own.div_ceil(own_rows) * heads * problem.batch,
                    shared_bytes: 2 * rows * Groups::row_bytes(problem)
                        + stages * (tile * known).next_multiple_of(ALIGNMENT)
                        + BARRIERS * (1 + stages),
                }
            };
        // Two numbers of each query follow a tile of queries.
        let known = 2 * size_of::<f32>();
        let (of_keys, of_queries) = if Groups::padded(problem) == PART {
            (([2, 64, 4], OF_TWO), ([2, 96, 4], OF_TWO))
        } else if shares_rows {
            // Two have the same keys; one has queries.
            (([2, 64, 2], MOST_OF_TWO), ([1, 64, 2], OF_ONE))
        } else if changes.of_registers() == 0 {
            (([2, 64, 3], MOST_OF_TWO), ([3, 64, 3], OF_THREE))
        } else {
            (([2, 64, 3], MOST_OF_TWO), ([2, 64, 3], MOST_OF_TWO))
        };
        let of_keys = of(of_keys.0, of_keys.1, problem.keys, problem.shared_heads, known);
        fits.then(|| [of_keys, of(of_queries.0, of_queries.1, problem.queries, problem.heads, 0)])
    }

    /// Of the backward kernel that takes one pass for all three gradients; `None` leaves the problem to the two kernels
    /// of [`Groups::backward`]. Narrow heads leave those the registers that make two passes as fast.
    pub fn backward_joint(plan: &Plan, problem: &Problem, is_causal: bool) -> Option<Groups> {
        let fits = Groups::fit(plan, problem) && problem.dtype == DType::BF16 && Groups::padded(problem) == 2 * PART;
        let (consumers, tile, stages) = (2, JOINT_TILE, 3);
        let row_bytes = Groups::row_bytes(problem);
        // Key and value, tiles of query and d_out with a number of each query, gradients of scores of two steps, and
        // sums of a tile of queries. There are barriers for the block's own two tensors, tiles of two, and sums that
        // are given and taken.
        let tiles = 2 * (consumers * ROWS + stages * tile) * row_bytes + 2 * stages * tile * size_of::<f32>();
        let scores = 2 * consumers * tile * ROWS * problem.dtype.size();
        let sums = tile * Groups::padded(problem) * size_of::<f32>();
        let barriers = BARRIERS * (2 + 2 * stages + 2);
        // Without causality each block of a head is a step behind the one before: as many heads as there are blocks
        // for.
        let blocks = problem.keys.div_ceil(consumers * ROWS);
        let heads_at_once = if is_causal { usize::MAX } else { (AT_WORK / blocks).max(1) };
        fits.then(|| Groups {
            consumers,
            tile,
            stages,
            own_stages: 1,
            registers: MOST_OF_TWO,
            shares_rows: false,
            heads_at_once,
            pieces: blocks * problem.shared_heads * problem.batch,
            shared_bytes: tiles + scores + sums + PIECES_BYTES + barriers,
        })
    }

    /// What the forward kernel takes behind these. `counter` counts the pieces of work that were taken, from zero on.
    pub fn forward_parameters(&self, counter: Address) -> [Parameter; 2] {
        [(self.heads_at_once as i32).into(), counter.into()]
    }

    /// What the backward kernel of one pass takes behind them: of how many heads of keys, all batches, blocks add to
    /// gradients of queries in falling order, and in rising order, which is part of the order of sums; then tiles of
    /// queries and blocks of keys of a head.
    pub fn joint_parameters(&self, problem: &Problem, is_causal: bool) -> [Parameter; 5] {
        let all = problem.shared_heads * problem.batch;
        let (tiles, blocks) = (problem.queries.div_ceil(JOINT_TILE), problem.keys.div_ceil(self.consumers * ROWS));
        // The blocks at work first begin at once, and would wait for each other in rising order.
        let last = all.saturating_sub((AT_WORK / blocks).max(1)).min((RISING_BLOCKS / blocks).max(12));
        let rising = if is_causal { last } else { all };
        [self.heads_at_once.min(rising).max(1), all - rising, rising, tiles, blocks]
            .map(|count| Parameter::from(count as i32))
    }

    /// Neighbours that are read at once.
    pub fn pack(problem: &Problem) -> usize {
        WIDEST_ACCESS / problem.dtype.size()
    }

    /// The width with zeros behind it.
    pub fn padded(problem: &Problem) -> usize {
        problem.width.next_multiple_of(PART)
    }

    fn row_bytes(problem: &Problem) -> usize {
        Groups::padded(problem) * problem.dtype.size()
    }

    /// Tells the kernels what they are compiled for.
    pub fn define(&self, plan: &mut Plan) {
        plan.define("CONSUMERS", self.consumers);
        plan.define("TILE", self.tile);
        plan.define("STAGES", self.stages);
        plan.define("OWN_STAGES", self.own_stages);
        plan.define("REGISTERS", self.registers[0]);
        plan.define("FILLER_REGISTERS", self.registers[1]);
        plan.define("SHARED_ROWS", u8::from(self.shares_rows));
    }

    /// The launch: no more blocks than work at a time.
    pub fn shape(&self, plan: &Plan) -> LaunchShape {
        let blocks = self.pieces.min(plan.properties().multiprocessors);
        let threads = THREADS * (self.consumers + 1);
        LaunchShape::linear(blocks as u32, threads as u32).shared(self.shared_bytes as u32)
    }

    /// What the kernels take behind the extents of the problem.
    pub fn parameters(&self, problem: &Problem) -> [Parameter; 2] {
        [problem.batch, self.pieces].map(|count| Parameter::from(count as i32))
    }
}
