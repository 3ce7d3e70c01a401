//! The best elements of lines: a radix select by a block for each line, or for each part of a few long ones. Where many
//! elements are wanted, they are sorted by the whole device.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{Address, DeviceTensor, Failure, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

use super::cuda;
use super::order::{Lines, lines_fit, lines_of};
use super::sorting::Sort;
use super::support::{offset, one_thread_each, type_of};

#[implementation(of = fulgurite_ops::prims::topk, by = cuda, strided)]
mod topk_by_cuda {
    fn checker(input: &TensorMeta, k: usize, dim: usize) -> Claim {
        super::takes(input, k, dim)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, values: &DeviceTensor, indices: &DeviceTensor) -> Result<()> {
        let Args { input, dim, largest, .. } = args;
        super::topk(plan, input, dim, largest, values, indices)
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
/// or if there are few lines, of so many elements at most together. Otherwise those that come into question are
/// collected first.
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
    /// Whether a key has 64 bits: numbers of 32 without a sign are ordered with one.
    fn is_long(&self) -> bool {
        matches!(self.input.meta.dtype(), DType::F64 | DType::I64 | DType::U32)
    }

    fn key_bytes(&self) -> usize {
        if self.is_long() { 8 } else { 4 }
    }

    fn source(&self, plan: &mut Plan) {
        plan.source(source_files!["topk.cu"]);
        plan.define("IN", type_of(self.input.meta.dtype()));
        plan.define("KEY", if self.is_long() { "u64" } else { "u32" });
        plan.define("LARGEST", self.largest);
        plan.define("FROM(i)", offset(&self.lines.starts, 0, "i"));
        plan.define("TO(i)", offset(&self.lines.starts, 1, "i"));
    }

    /// Memory for a key and a position for each element.
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

    /// The best of each part of each line are collected, or without parts all elements are taken, and sorted: by key,
    /// then by line.
    fn by_sorting(&self, plan: &mut Plan, parts: Option<usize>) -> Result<()> {
        let Lines { count, length, along: [from_along, to_along], .. } = self.lines;
        let k = self.k;
        let taken = parts.map_or(length, |parts| parts * k);
        let sort = Sort::new(plan, count * taken, self.is_long());
        let places = parts.map(|_| plan.workspace((count * taken) as u64 * 8));
        let places_or_null = || places.map_or(fulgurite_runtime::rules::Parameter::from(0u64), Into::into);
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
            let by_line = sort.then(numbers);
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

/// How the best elements of lines are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A block for each line.
    Lines,
    /// One block for each part of a line.
    Parts(usize),
    /// All elements are sorted.
    Sorting,
    /// The best of each of so many parts of a line are sorted.
    SortingParts(usize),
}

impl Way {
    /// Of `k` of each of `count` lines of `length` elements; or why there is none.
    fn of(count: usize, length: usize, k: usize) -> Result<Way, String> {
        if u32::try_from(length).is_err() {
            return Err(format!("takes lines of at most 2^32 - 1 elements, these have {length}"));
        }
        let per_line = ENOUGH_BLOCKS / count.max(1);
        if k <= HELD {
            let parts = per_line.min(length / SHORTEST_PART);
            return Ok(if parts > 1 { Way::Parts(parts) } else { Way::Lines });
        }
        let total = count.saturating_mul(length);
        let few = count < FEW_LINES && total <= FEW_ELEMENTS;
        if total < Sort::LIMIT && (few || k >= length / FEW_LEFT) {
            return Ok(Way::Sorting);
        }
        let parts = per_line.min(length / k.max(SHORTEST_PART)).max(1);
        if count.saturating_mul(parts).saturating_mul(k) >= Sort::LIMIT {
            return Err(format!("sorts fewer than {} elements, these are {count} lines of {k}", Sort::LIMIT));
        }
        Ok(Way::SortingParts(parts))
    }
}

fn takes(input: &TensorMeta, k: usize, dim: usize) -> Claim {
    lines_fit(input, dim)?;
    let (count, length) = lines_of(input, dim);
    let way = Way::of(count, length, k);
    refuse_unless!(way.is_ok(), "{}", way.err().unwrap_or_default());
    Ok(())
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
    let lines = Lines::new(input.shape(), [&input.strides, &values.strides], dim);
    let k = values.shape()[dim];
    let way = Way::of(lines.count, lines.length, k).map_err(|reason| Failure::new("TooLarge", reason))?;
    let best = Best { input, lines, k, largest, values, indices };
    match way {
        Way::Lines => best.by_lines(plan),
        Way::Parts(parts) => best.by_parts(plan, parts),
        Way::Sorting => best.by_sorting(plan, None),
        Way::SortingParts(parts) => best.by_sorting(plan, Some(parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::Device;
    use fulgurite_runtime::device::Place;
    use fulgurite_runtime::kernels::view::contiguous_strides;

    fn tensor(shape: &[usize], dtype: DType, place: Place) -> DeviceTensor {
        let meta = TensorMeta::new(shape, dtype, Device::new("cuda", 0));
        let strides = contiguous_strides(shape);
        DeviceTensor { meta, strides, address: Address { place, offset: 0 }, alignment: 256 }
    }

    #[test]
    fn a_sort_of_lines_takes_the_memory_of_the_sort_of_keys() {
        let workspace = |dtype: DType, count: usize, k: usize| {
            let [input, values] = [(5000, Place::Operand(0)), (k, Place::Result(0))]
                .map(|(length, place)| tensor(&[count, length], dtype, place));
            let indices = tensor(&[count, k], DType::I64, Place::Result(1));
            let mut plan = Plan::of(&"cuda:sm_90a".parse().unwrap()).unwrap();
            topk(&mut plan, &input, 1, true, &values, &indices).unwrap();
            plan.workspace_bytes()
        };
        for (dtype, key) in [(DType::F32, 4), (DType::F64, 8)] {
            for count in [1, 8] {
                // Keys and numbers twice, the counts of 256 digits of each tile of 1024, and a total of each 4096
                // counts.
                let (all, whole) = (5000 * count as u64, |bytes: u64| bytes.next_multiple_of(256));
                let counts = 256 * all.div_ceil(1024);
                let exact =
                    2 * whole(all * key) + 2 * whole(all * 4) + whole(counts * 4) + whole(counts.div_ceil(4096) * 4);
                assert_eq!(workspace(dtype, count, 4000), exact, "{count} lines of {dtype}");
            }
        }
    }

    #[test]
    fn what_no_way_can_do_is_refused_when_it_is_claimed() {
        let refused = |shape: &[usize], k: usize, dim: usize, part: &str| {
            let meta = TensorMeta::new(shape, DType::F32, Device::new("cuda", 0));
            let reason = takes(&meta, k, dim).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        };
        refused(&[1 << 31, 3], 1, 1, "at most 2147483647 lines");
        refused(&[1, 1 << 32], 1, 1, "takes lines of at most 2^32 - 1");
        refused(&[1 << 20, 1 << 14], 1 << 11, 1, "sorts fewer than 2147483648 elements");
        let largest = TensorMeta::new([i32::MAX as usize, 3], DType::F32, Device::new("cuda", 0));
        assert_eq!(takes(&largest, 1, 1), Ok(()));
        let empty = TensorMeta::new([0, 3], DType::F32, Device::new("cuda", 0));
        assert_eq!(takes(&empty, 1, 1), Ok(()));
    }

    #[test]
    fn each_way_has_its_sizes() {
        assert_eq!(Way::of(1000, 5000, 10), Ok(Way::Lines));
        assert_eq!(Way::of(1, 1 << 24, 100), Ok(Way::Parts(264)));
        assert_eq!(Way::of(8, 5000, 4000), Ok(Way::Sorting));
        assert_eq!(Way::of(3, 1 << 24, 1000), Ok(Way::SortingParts(88)));
    }
}
