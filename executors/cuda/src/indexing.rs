//! Reading and adding at indices. Indices are checked on the device, and nothing is read or written at a wrong
//! one.
//!
//! Additions to one element happen in the order of the updates, and there are no floating-point atomics. Where there
//! are few updates to a line, one thread finds and adds all those of an element, and of whole rows one block does.
//! Where there are many, the updates are sorted by target, with equal targets in order, and each run of them is added
//! up: the elements are read once. Other rules than addition take the same ways.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{Command, DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::moving::copy;
use super::sorting::Sort;
use super::support::{
    Dimension, THREADS, bits_of, collapsed, dimensions, index_type, offset, one_thread_each, packed, positions,
    type_of, wide_of,
};

/// Strides that are zero but, perhaps, in dimension `dim`.
fn only(rank: usize, dim: usize, stride: isize) -> Vec<isize> {
    let mut strides = vec![0; rank];
    strides[dim] = stride;
    strides
}

/// The strides without that of dimension `dim`, which becomes zero.
fn without(strides: &[isize], dim: usize) -> Vec<isize> {
    let mut strides = strides.to_vec();
    strides[dim] = 0;
    strides
}

/// `out[i]` is the element of `input` in the place of `i`, but in dimension `dim` where the index at `choices` says.
fn take(
    plan: &mut Plan,
    input: &DeviceTensor,
    dim: usize,
    (index, choices): (&DeviceTensor, &[isize]),
    out: &DeviceTensor,
) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let (size, along) = (input.meta.dtype().size(), input.strides[dim]);
    let source = without(&input.strides, dim);
    let mut dims = collapsed(dimensions(out.shape(), [&source, choices]));
    let pack = packed(&mut dims, size, [Some(input.alignment.min(out.alignment)), None], &[along]);
    let count = positions(&dims);
    plan.source(source_files!["taking.cu"]);
    plan.define("ELEMENT", bits_of(size));
    plan.define("WORD", bits_of(size * pack));
    plan.define("INDICES", type_of(index.meta.dtype()));
    plan.define("INDEX", index_type(count));
    plan.define("SOURCE(i)", offset(&dims, 0, "i"));
    plan.define("CHOICE(i)", offset(&dims, 1, "i"));
    let fault = plan.fault("index");
    let extent = input.shape()[dim];
    let parameters = binds![input, index, out, extent, along as i64, count, fault, Parameter::FaultCode];
    plan.launch("take", one_thread_each(count), parameters)
}

#[implementation(of = fulgurite_ops::prims::gather, by = cuda, strided)]
mod gather_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, dim: usize, index: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::take(plan, input, dim, (index, &index.strides), out)
    }
}

#[implementation(of = fulgurite_ops::prims::index_select, by = cuda, strided)]
mod index_select_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, dim: usize, index: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let choices = super::only(out.rank(), dim, index.strides[0]);
        super::take(plan, input, dim, (index, &choices), out)
    }
}

/// Elements of `src`, each of which belongs in `out` where the index at `choices` says in dimension `dim`.
pub(crate) struct Update<'a> {
    pub dim: usize,
    pub index: &'a DeviceTensor,
    /// Strides of the index in the shape of `src`.
    pub choices: Vec<isize>,
    pub src: &'a DeviceTensor,
    pub out: &'a DeviceTensor,
}

/// How an element and an update become one: what `COMBINE(x, y)` is, and a number that changes nothing before any y.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    pub combine: &'static str,
    pub neutral: &'static str,
}

const ADDITION: Rule = Rule { combine: "((x) + (y))", neutral: "0" };

impl Rule {
    fn define(self, plan: &mut Plan) {
        plan.define("COMBINE(x, y)", self.combine);
        plan.define("NEUTRAL", self.neutral);
    }
}

impl Update<'_> {
    pub fn size(&self) -> usize {
        self.out.shape()[self.dim]
    }
}

/// The kernel that looks for equal indices one by one; any size.
fn add_few(plan: &mut Plan, rule: Rule, update: &Update<'_>) -> Result<()> {
    plan.source(source_files!["adding_few.cu"]);
    rule.define(plan);
    plan.define("ELEMENT", type_of(update.src.meta.dtype()));
    one_by_one(plan, "add_few", update)
}

/// Launches a kernel that has a thread for each element of the source, and compares its index with those of its line.
pub(crate) fn one_by_one(plan: &mut Plan, kernel: &str, update: &Update<'_>) -> Result<()> {
    let Update { dim, index, choices, src, out } = update;
    let mut all = dimensions(src.shape(), [choices, &src.strides, &out.strides]);
    let (length, along) = all.remove(*dim);
    let dims = collapsed(all);
    let lines = positions(&dims);
    let count = length * lines;
    plan.define("INDICES", type_of(index.meta.dtype()));
    plan.define("INDEX", index_type(count));
    plan.define("CHOICES(i)", offset(&dims, 0, "i"));
    plan.define("SOURCE(i)", offset(&dims, 1, "i"));
    plan.define("TARGET(i)", offset(&dims, 2, "i"));
    let fault = plan.fault("index");
    let [index_along, source_along, target_along] = along.map(|stride| stride as i64);
    let parameters = binds![
        *index,
        *src,
        *out,
        update.size(),
        length,
        lines,
        index_along,
        source_along,
        target_along,
        fault,
        Parameter::FaultCode
    ];
    plan.launch(kernel, one_thread_each(count), parameters)
}

/// The kernel whose blocks look for equal indices of whole rows; up to [`MOST_ROWS`].
fn add_rows(plan: &mut Plan, update: &Update<'_>) -> Result<()> {
    let Update { dim, index, src, out, .. } = update;
    plan.source(source_files!["adding_rows.cu"]);
    plan.define("ELEMENT", type_of(src.meta.dtype()));
    plan.define("INDICES", type_of(index.meta.dtype()));
    plan.define("MOST", MOST_ROWS);
    plan.define("THREADS", THREADS);
    let mut all = dimensions(src.shape(), [&src.strides, &out.strides]);
    let (length, along) = all.remove(*dim);
    let dims = collapsed(all);
    let lines = positions(&dims);
    plan.define("INDEX", index_type(lines));
    plan.define("SOURCE(i)", offset(&dims, 0, "i"));
    plan.define("TARGET(i)", offset(&dims, 1, "i"));
    let fault = plan.fault("index");
    let [source_along, target_along] = along.map(|stride| stride as i64);
    let parameters = binds![
        *index,
        *src,
        *out,
        update.size(),
        length,
        lines,
        index.strides[0] as i64,
        source_along,
        target_along,
        fault,
        Parameter::FaultCode
    ];
    let parts = lines.div_ceil(THREADS as usize).min(1024) as u32;
    plan.launch("add_rows", LaunchShape::new([length as u32, parts, 1], [THREADS, 1, 1]), parameters)
}

/// Updates as they are sorted: each has some columns of its own.
struct Updates<'a> {
    rule: Rule,
    index: &'a DeviceTensor,
    /// The updates: strides of the index, of the target, and of the source.
    updates: Vec<Dimension<3>>,
    /// How far in the target one index is from the next, in keys; a key is `along` elements.
    step: isize,
    along: isize,
    /// What an update adds: strides of the target and of the source.
    columns: Vec<Dimension<2>>,
    /// The extent that indices are below, and the number of keys.
    size: usize,
    targets: usize,
    src: &'a DeviceTensor,
    out: &'a DeviceTensor,
}

/// Updates of one piece of a run: as in the source.
const CHUNK: usize = 256;

fn add_sorted(plan: &mut Plan, of: &Updates<'_>) -> Result<()> {
    let dtype = of.src.meta.dtype();
    let count = positions(&of.updates);
    // One key more than there are targets stands for an index out of range.
    let bits = (usize::BITS - of.targets.leading_zeros()).max(1);
    let (key, key_bytes) = if bits <= 32 { ("u32", 4) } else { ("u64", 8) };
    let sort = Sort::new(plan, count, key_bytes == 8);
    plan.source(source_files!["make_keys.cu"]);
    plan.define("KEY", key);
    plan.define("INDICES", type_of(of.index.meta.dtype()));
    plan.define("CHOICE(n)", offset(&of.updates, 0, "n"));
    plan.define("BASE(n)", offset(&of.updates, 1, "n"));
    plan.define("ALONG", format!("({}LL)", of.step));
    let fault = plan.fault("index");
    let parameters = binds![of.index, sort.keys[0], count as u32, of.size, of.targets, fault, Parameter::FaultCode];
    plan.launch("make_keys", one_thread_each(count), parameters)?;
    let count32 = count as u32;
    let (keys, updates) = sort.run(plan, bits, None)?;

    let mut columns = of.columns.clone();
    let size = dtype.size();
    let mut further: Vec<isize> = of.updates.iter().map(|(_, [_, _, source])| *source).collect();
    further.push(of.along);
    let alignments = [Some(of.out.alignment), Some(of.src.alignment)];
    let pack = packed(&mut columns, size, alignments, &further);
    let packs = positions(&columns);
    // A warp has 32 packs, and more if there are very many.
    let slabs = packs.div_ceil(32).min(1024);
    let slots = count.div_ceil(CHUNK);
    let wide = if wide_of(dtype) == "float" { 4 } else { 8 };
    let is_long = count > CHUNK;
    let sums = plan.workspace(if is_long { (2 * slots * packs * pack * wide) as u64 } else { 0 });
    let starts = plan.workspace(slots as u64 * 4);
    if is_long {
        plan.push(Command::Fill { to: starts, byte: 0xff, bytes: slots as u64 * 4 });
    }
    plan.source(source_files!["adding.cu"]);
    of.rule.define(plan);
    plan.define("ELEMENT", type_of(dtype));
    plan.define("KEY", key);
    plan.define("PACK", pack);
    plan.define("SOURCE(n)", offset(&of.updates, 2, "n"));
    plan.define("COLUMN(c)", offset(&columns, 0, "c"));
    plan.define("SOURCE_COLUMN(c)", offset(&columns, 1, "c"));
    let along = of.along as i64;
    let parameters =
        binds![keys, updates, of.src, of.out, sums, starts, count32, of.targets, packs, slabs as u32, along];
    plan.launch("add_runs", one_thread_each(count * slabs * 32), parameters)?;
    if is_long {
        let groups = (packs * pack).div_ceil(THREADS as usize).min(1024) as u32;
        let shape = LaunchShape::new([slots as u32, groups, 1], [THREADS, 1, 1]);
        plan.launch("add_chunks", shape, binds![keys, of.out, sums, starts, count32, packs, along])?;
    }
    Ok(())
}

/// Whether updates can be sorted: their numbers have 32 bits, and a launch has a warp for each.
fn can_be_sorted(updates: usize, slabs: usize) -> bool {
    updates < Sort::LIMIT && updates.saturating_mul(slabs) < 1 << 33
}

/// Lines of as many updates are searched for equal indices; longer ones are sorted.
const FEW_ROWS: usize = 64;
const FEW_ELEMENTS: usize = 256;

/// The most rows whose indices each block of a kernel goes through, and the least elements of a row that are worth a
/// block. Sorting takes six launches: of 256 rows of 768 about 50 us on an H200.
const MOST_ROWS: usize = 1024;
const LEAST_COLUMNS: usize = 32;

/// Copies what is added to, unless it is there already.
pub(crate) fn start_from(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
    if plan.lies_over(out, input) { Ok(()) } else { copy(plan, input, out) }
}

#[implementation(of = fulgurite_ops::prims::index_add, by = cuda, strided, in_place(input))]
mod index_add_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, Args { input, dim, index, src }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::start_from(plan, input, out)?;
        super::index_add(plan, dim, index, src, out)
    }
}

fn index_add(plan: &mut Plan, dim: usize, index: &DeviceTensor, src: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
    let rows = index.shape()[0];
    if src.meta.is_empty() {
        return Ok(());
    }
    let columns: Vec<Dimension<2>> = {
        let mut columns = dimensions(src.shape(), [&out.strides, &src.strides]);
        columns.remove(dim);
        collapsed(columns)
    };
    if rows <= MOST_ROWS && positions(&columns) >= LEAST_COLUMNS {
        let choices = only(src.rank(), dim, index.strides[0]);
        return add_rows(plan, &Update { dim, index, choices, src, out });
    }
    if rows <= FEW_ROWS || !can_be_sorted(rows, positions(&columns).div_ceil(32).min(1024)) {
        let choices = only(src.rank(), dim, index.strides[0]);
        return add_few(plan, ADDITION, &Update { dim, index, choices, src, out });
    }
    let size = out.shape()[dim];
    let updates = vec![(rows, [index.strides[0], 0, src.strides[dim]])];
    let along = out.strides[dim];
    let rule = ADDITION;
    add_sorted(plan, &Updates { rule, index, updates, step: 1, along, columns, size, targets: size, src, out })
}

#[implementation(of = fulgurite_ops::prims::scatter_add, by = cuda, strided, in_place(input))]
mod scatter_add_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, Args { input, dim, index, src }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::start_from(plan, input, out)?;
        super::combine(plan, super::ADDITION, dim, (index, src), out)
    }
}

/// Combines the elements of `src` with those of `out` that the index names.
pub(crate) fn combine(
    plan: &mut Plan,
    rule: Rule,
    dim: usize,
    (index, src): (&DeviceTensor, &DeviceTensor),
    out: &DeviceTensor,
) -> Result<()> {
    if src.meta.is_empty() {
        return Ok(());
    }
    let count: usize = src.shape().iter().product();
    if src.shape()[dim] <= FEW_ELEMENTS || !can_be_sorted(count, 1) {
        return add_few(plan, rule, &Update { dim, index, choices: index.strides.clone(), src, out });
    }
    // Every element of the result is a target of one column.
    let others = without(&out.strides, dim);
    let updates = collapsed(dimensions(src.shape(), [&index.strides, &others, &src.strides]));
    let targets: usize = out.shape().iter().product();
    let (step, size) = (out.strides[dim], out.shape()[dim]);
    let columns = Vec::new();
    add_sorted(plan, &Updates { rule, index, updates, step, along: 1, columns, size, targets, src, out })
}
