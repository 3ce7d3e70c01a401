//! Masks of booleans as bits, which kernels of warp groups read 32 at a time.

use fulgurite_runtime::device::Address;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::problem::Problem;

/// Bits of a word.
const WORD: usize = 32;
/// What rows of bits are padded to, so that tiles of 64, 96 and 128 columns end within them.
const COLUMNS: usize = 384;
/// Threads of a block that makes them.
const THREADS: usize = 256;
/// The most blocks along the second dimension of a launch.
const MOST_ACROSS: usize = 65_535;

/// Words with the bits of a mask, of the heads and batches that it has.
#[derive(Clone, Copy)]
pub(super) struct Bits {
    by_query: Rows,
    by_key: Option<Rows>,
}

/// For each row, the bits of its columns.
#[derive(Clone, Copy)]
struct Rows {
    at: Address,
    /// Words from a batch to the next, and from a head to the next; 0 where all have the same.
    batch: usize,
    head: usize,
    words: usize,
    rows: usize,
}

impl Bits {
    /// Plans the making of the bits of a mask [B, H, L, S] of booleans, where every extent may be 1: of each query, and
    /// `by_key` also of each key. What is the same along a dimension is there once.
    pub fn plan(plan: &mut Plan, mask: &DeviceTensor, problem: &Problem, by_key: bool) -> Result<Bits> {
        let same = |dim: usize| mask.shape()[dim] == 1 || mask.strides[dim] == 0;
        let extent = |dim: usize| if same(dim) { 1 } else { mask.shape()[dim] };
        let (batches, heads) = (extent(0), extent(1));
        let (query_rows, key_rows) = (extent(2), extent(3));
        let count = batches * heads;
        let mut rows = |rows: usize, columns: usize| {
            let words = columns.next_multiple_of(COLUMNS) / WORD;
            let apart = |extent: usize, words: usize| if extent == 1 { 0 } else { words };
            Rows {
                at: plan.workspace((count * rows * words * size_of::<u32>()) as u64),
                batch: apart(batches, heads * rows * words),
                head: apart(heads, rows * words),
                words,
                rows,
            }
        };
        let of_queries = rows(query_rows, problem.keys);
        let of_keys = by_key.then(|| rows(key_rows, problem.queries));
        plan.source(source_files!["mask_bits.cu"]);
        plan.define("BY_KEY", u8::from(by_key));
        let stride = |dim: usize| if same(dim) { 0 } else { mask.strides[dim] as i64 };
        let mut parameters = binds![mask, [0, 1, 2, 3].map(stride), of_queries.at];
        parameters.extend(of_keys.map(|rows| Parameter::from(rows.at)));
        // Words of queries of which nobody asks are not made.
        let words_of_key = if by_key { problem.queries.next_multiple_of(COLUMNS) } else { query_rows }.div_ceil(WORD);
        let Problem { queries, keys, .. } = *problem;
        let counts = [heads, count, queries, keys, query_rows, key_rows, of_queries.words, words_of_key];
        parameters.extend(counts.map(|count| Parameter::from(count as i32)));
        let blocks = (of_queries.words * words_of_key).div_ceil(THREADS / WORD);
        let shape = LaunchShape::new([blocks as u32, count.min(MOST_ACROSS) as u32, 1], [THREADS as u32, 1, 1]);
        plan.launch("pack_mask", shape, parameters)?;
        Ok(Bits { by_query: of_queries, by_key: of_keys })
    }

    /// What kernels take whose rows are queries, or keys.
    pub fn parameters(&self, of_keys: bool) -> [Parameter; 2] {
        let Rows { at, batch, head, words, rows } =
            if of_keys { self.by_key.unwrap_or(self.by_query) } else { self.by_query };
        [Parameter::from(at), Parameter::from([batch, head, words, rows].map(|count| count as i64))]
    }
}
