//! The best elements of lines: a radix select by a block for each line, or for each part of a few long ones. Where many elements are
//! wanted, they are sorted by the whole device.

use fulgurite::rules::{Address, DeviceTensor, Failure, LaunchShape, Plan, Result};
use fulgurite::{DType, binds};
use fulgurite_ops_macros::implementation;

use super::cuda;
use super::order::Lines;
use super::sorting::Sort;
use super::support::{offset, one_thread_each, type_of};

#[implementation(of = crate::prims::topk, by = cuda, strided)]
mod topk_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        dim: usize,
        largest: bool,
        out0: &DeviceTensor,
        out1: &DeviceTensor,
    ) -> Result<()> {
        super::topk(plan, input, dim, largest, out0, out1)
    }
}

/// The most elements that a block holds in shared memory: `HELD` of the source.
const HELD: usize = 512;
/// Blocks that select from parts of few long lines: two for each multiprocessor of the largest devices.
const ENOUGH_BLOCKS: usize = 264;
/// The shortest part of a line, more than what is held.
const SHORTEST_PART: usize = 16_384;
/// All elements are sorted if one in so few is wanted,
const FEW_LEFT: usize = 8;
/// or if there are few lines, of so many elements at most together. Otherwise those that come into question are collected first.
const FEW_LINES: usize = 64;
const FEW_ELEMENTS: usize = 1 << 24;

/// What is to be found, as the kernels see it.
struct Best<'a> {
    input: &'a DeviceTensor,
    lines: Lines<2>,
    k: usize,
    largest: bool,
    values: &'a DeviceTensor,
    indices: &'a DeviceTensor,
}

impl Best<'_> {
    fn is_long(&self) -> bool {
        matches!(self.input.meta.dtype(), DType::F64 | DType::I64)
    }

    fn key_bytes(&self) -> usize {
        if self.is_long() { 8 } else { 4 }
    }

    fn source(&self, plan: &mut Plan) {
        plan.source("topk.cu", include_str!("topk.cu"));
        plan.define("IN", type_of(self.input.meta.dtype()));
        plan.define("KEY", if self.is_long() { "u64" } else { "u32" });
        plan.define("LARGEST", self.largest);
        plan.define("FROM(i)", offset(&self.lines.starts, 0, "i"));
        plan.define("TO(i)", offset(&self.lines.starts, 1, "i"));
    }

    /// Memory for a key and a position for each of so many elements.
    fn candidates(&self, plan: &mut Plan, count: usize) -> (Address, Address) {
        (plan.workspace((count * self.key_bytes()) as u64), plan.workspace(count as u64 * 8))
    }

    /// A block for each line.
    fn by_lines(&self, plan: &mut Plan) -> Result<()> {
        let Lines { count, length, along: [from_along, to_along], .. } = self.lines;
        self.source(plan);
        let shape = LaunchShape::linear(count as u32, self.lines.threads(2, 1024));
        let k = self.k;
        plan.launch("topk", shape, binds![self.input, self.values, self.indices, length, k, from_along, to_along])
    }

    /// A block for each part of a line, and one for the best of its parts.
    fn by_parts(&self, plan: &mut Plan, parts: usize) -> Result<()> {
        let Lines { count, length, along: [from_along, to_along], .. } = self.lines;
        let k = self.k;
        let (keys, places) = self.candidates(plan, count * parts * k);
        self.source(plan);
        let shape = LaunchShape::linear((count * parts) as u32, 1024);
        plan.launch("topk_of_parts", shape, binds![self.input, keys, places, length, parts, k, from_along])?;
        let shape = LaunchShape::linear(count as u32, 1024);
        let (values, indices) = (self.values, self.indices);
        let parameters = binds![self.input, keys, places, values, indices, parts * k, k, from_along, to_along];
        plan.launch("topk_of_candidates", shape, parameters)
    }

    /// The best of each part of each line are collected, or without parts all elements are taken, and sorted: by key, then by line.
    fn by_sorting(&self, plan: &mut Plan, parts: Option<usize>) -> Result<()> {
        let Lines { count, length, along: [from_along, to_along], .. } = self.lines;
        let k = self.k;
        let taken = parts.map_or(length, |parts| parts * k);
        let sort = Sort::new(plan, count * taken, self.is_long());
        let places = parts.map(|_| plan.workspace((count * taken) as u64 * 8));
        let places_or_null = || places.map_or(fulgurite::rules::Parameter::from(0u64), Into::into);
        self.source(plan);
        if let Some(parts) = parts {
            let threads = (length / parts).div_ceil(2).next_multiple_of(32).clamp(32, 1024) as u32;
            let shape = LaunchShape::linear((count * parts) as u32, threads);
            let parameters = binds![self.input, sort.keys[0], places_or_null(), length, parts, k, from_along];
            plan.launch("topk_collect", shape, parameters)?;
        } else {
            let shape = one_thread_each(count * length);
            plan.launch("topk_keys", shape, binds![self.input, sort.keys[0], count, length, from_along])?;
        }
        let (_, mut numbers) = sort.run(plan, self.key_bytes() as u32 * 8, None)?;
        if count > 1 {
            let by_line = Sort::new(plan, count * taken, false);
            self.source(plan);
            let shape = one_thread_each(count * taken);
            plan.launch("topk_lines", shape, binds![numbers, by_line.keys[0], count * taken, taken])?;
            let bits = usize::BITS - (count - 1).leading_zeros();
            (_, numbers) = by_line.run(plan, bits, Some(numbers))?;
        }
        self.source(plan);
        let parameters = binds![
            self.input,
            numbers,
            places_or_null(),
            self.values,
            self.indices,
            count,
            taken,
            k,
            from_along,
            to_along
        ];
        plan.launch("topk_write", one_thread_each(count * k), parameters)
    }
}

fn topk(
    plan: &mut Plan,
    input: &DeviceTensor,
    dim: usize,
    largest: bool,
    values: &DeviceTensor,
    indices: &DeviceTensor,
) -> Result<()> {
    if values.meta.is_empty() {
        return Ok(());
    }
    // Both results have the same strides; extents differ from the operand's along the lines only.
    let lines = Lines::new(input.shape(), [&input.strides, &values.strides], dim)?;
    let (count, length, k) = (lines.count, lines.length, values.shape()[dim]);
    if u32::try_from(length).is_err() {
        return Err(Failure::new("LineLength", format!("dimension {dim} has {length} elements, more than 2^32 - 1")));
    }
    let best = Best { input, lines, k, largest, values, indices };
    if k > HELD {
        let total = count.saturating_mul(length);
        let few = count < FEW_LINES && total <= FEW_ELEMENTS;
        if total < Sort::LIMIT && (few || k >= length / FEW_LEFT) {
            return best.by_sorting(plan, None);
        }
        let parts = (ENOUGH_BLOCKS / count).min(length / k.max(SHORTEST_PART)).max(1);
        if count.saturating_mul(parts).saturating_mul(k) >= Sort::LIMIT {
            let message = format!("{count} lines of {k} elements are more than a sort takes");
            return Err(Failure::new("TooManyElements", message));
        }
        return best.by_sorting(plan, Some(parts));
    }
    let parts = (ENOUGH_BLOCKS / count).min(length / SHORTEST_PART);
    if parts > 1 { best.by_parts(plan, parts) } else { best.by_lines(plan) }
}
