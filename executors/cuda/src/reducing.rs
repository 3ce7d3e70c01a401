//! Reductions over any dimensions, of operands of any strides.
//!
//! Long rows are reduced by a block each, adjacent columns by a block for 32 of them, others by a thread
//! each; where too few blocks would come of that, the range is cut into pieces whose results are reduced once more. The
//! order is fixed, so the same bits come again.

use fulgurite_ops_macros::implementation;

use super::cuda;
use super::support::{Dimension, collapsed, offset, type_of, wide_of};

/// The threads that one launch should have at least to fill a device.
const ENOUGH_THREADS: usize = 1 << 16;

/// The blocks of column sums that one launch should have: four for each multiprocessor of the largest devices.
const ENOUGH_BLOCKS: usize = 528;
/// Columns of such a block, and its threads for each: a warp reads 32 neighbours.
const COLUMNS: usize = 32;
const OF_A_COLUMN: usize = 16;
/// The shortest piece that is worth a second launch.
const SHORTEST_PIECE: usize = 512;
/// Bytes of neighbouring columns that a thread reads at once.
const COLUMN_BYTES: usize = 8;

/// A reduction as the kernels see it: for each output an element to start from, and the elements to combine.
struct Problem {
    /// Extents and strides of what is kept.
    kept: Vec<Dimension<1>>,
    /// Extents and strides of what is reduced.
    reduced: Vec<Dimension<1>>,
}

impl Problem {
    fn outputs(&self) -> usize {
        self.kept.iter().map(|(extent, _)| extent).product()
    }

    fn length(&self) -> usize {
        self.reduced.iter().map(|(extent, _)| extent).product()
    }

    /// Whether the elements of neighbouring outputs are neighbours, and there are enough of both to share.
    fn has_columns(&self) -> bool {
        self.kept.last().is_some_and(|(extent, [stride])| *stride == 1 && *extent >= COLUMNS)
            && self.length() >= 2 * OF_A_COLUMN
    }

    /// How many neighbouring columns a thread may have, of elements of so many bytes, where ranges are long, or columns
    /// so many that there are enough blocks (50 sums of 256 rows of 768 columns of f32: 17 us with one). It decides
    /// into how many pieces a range is cut, and with that the order of sums. So it depends on the extents of what is
    /// `kept` as the shape has them, and not on how strides join them.
    fn pack(&self, size: usize, kept: &[usize]) -> usize {
        let pack = (COLUMN_BYTES / size).max(1);
        let columns: usize = kept.iter().product();
        let fits = columns.is_multiple_of(pack) && columns >= pack * COLUMNS;
        let enough = self.length() >= 2 * SHORTEST_PIECE || columns >= pack * COLUMNS * ENOUGH_BLOCKS / 4;
        if self.has_columns() && fits && enough { pack } else { 1 }
    }

    /// The same where strides do not let a thread have so many.
    fn own_pack(&self, pack: usize) -> usize {
        if self.kept.last().is_some_and(|(extent, _)| extent.is_multiple_of(pack)) { pack } else { 1 }
    }

    /// Whether packs of so many elements can be read at once where the tensor is aligned to them.
    fn keeps_alignment(&self, pack: usize) -> bool {
        let outer = self.kept.split_last().map_or(&[][..], |(_, outer)| outer);
        outer.iter().chain(&self.reduced).all(|(_, [stride])| stride % pack as isize == 0)
    }
}

/// The reduction of `input` over `dims`.
fn problem(input: &DeviceTensor, dims: &[usize]) -> Problem {
    let all = input.shape().iter().copied().zip(input.strides.iter().map(|stride| [*stride])).enumerate();
    let (reduced, kept): (Vec<_>, Vec<_>) = all.partition(|(i, _)| dims.contains(i));
    let of = |dims: Vec<(usize, Dimension<1>)>| collapsed(dims.into_iter().map(|(_, dim)| dim));
    Problem { kept: of(kept), reduced: of(reduced) }
}

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

/// How one stage of a reduction is launched.
fn stage(
    plan: &mut Plan,
    kind: &str,
    from: (DType, &str, &Problem),
    (pack, aligned): (usize, bool),
    pieces: usize,
    parameters: (fulgurite_runtime::rules::Parameter, fulgurite_runtime::rules::Parameter),
    to: &str,
) -> Result<()> {
    let (dtype, element, problem) = from;
    let (outputs, length) = (problem.outputs(), problem.length());
    plan.source(source_files!["reduce.cu"]);
    plan.define("IN", element);
    plan.define("OUT", to);
    plan.define("WIDE", wide_of(dtype));
    plan.define("KIND", kind);
    plan.define("KEPT(i)", offset(&problem.kept, 0, "i"));
    plan.define("REDUCED(j)", offset(&problem.reduced, 0, "j"));
    plan.define("OF_A_COLUMN", OF_A_COLUMN);
    // Blocks of a multiprocessor, and elements that a thread has on their way: the divisions of several dimensions'
    // indices need registers.
    let [resident, ahead] = match problem.reduced.len() {
        2.. => [2, 2],
        _ if pack > 1 => [2, 8],
        // A warp reads 64 bytes or fewer at once.
        _ if dtype.size() <= 2 && !problem.has_columns() => [4, 16],
        _ => [4, 8],
    };
    plan.define("RESIDENT", resident);
    plan.define("AHEAD", ahead);
    plan.define("PACK", pack);
    plan.define("ALIGNED", u8::from(aligned));
    let piece = length.div_ceil(pieces);
    let given = |kernel: &str, plan: &mut Plan, shape| {
        plan.launch(kernel, shape, binds![parameters.0, parameters.1, outputs, length, piece])
    };
    if problem.has_columns() {
        let blocks = outputs.div_ceil(COLUMNS * pack) as u32;
        let shape = LaunchShape::new([blocks, pieces as u32, 1], [COLUMNS as u32, OF_A_COLUMN as u32, 1]);
        return given("reduce_side_by_side", plan, shape);
    }
    // A block a row pays where its elements are adjacent, or where there are too few outputs for a thread each.
    let side_by_side = problem.reduced.last().is_some_and(|(_, [stride])| *stride == 1);
    let by_block = piece >= 64 && (side_by_side || outputs * pieces < ENOUGH_THREADS / 32);
    let threads = if by_block { piece.div_ceil(4).next_multiple_of(32).clamp(32, 512) as u32 } else { 128 };
    let (kernel, blocks) =
        if by_block { ("reduce_rows", outputs) } else { ("reduce_columns", outputs.div_ceil(threads as usize)) };
    let shape = LaunchShape::new([blocks as u32, pieces as u32, 1], [threads, 1, 1]);
    given(kernel, plan, shape)
}

/// Whether a launch can have a block for each value of a reduction.
fn outputs_fit(input: &TensorMeta, dims: &[usize]) -> Claim {
    let kept = (0..input.rank()).filter(|dim| !dims.contains(dim));
    let outputs: usize = kept.map(|dim| input.shape()[dim]).product();
    refuse_unless!(outputs <= i32::MAX as usize, "has a block for each of at most {} values, not {outputs}", i32::MAX);
    Ok(())
}

/// Plans a reduction of `input` over `dims`.
fn reduce(plan: &mut Plan, kind: &str, input: &DeviceTensor, dims: &[usize], out: &DeviceTensor) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let problem = problem(input, dims);
    let (outputs, length) = (problem.outputs(), problem.length());
    let dtype = input.meta.dtype();
    let kept: Vec<usize> =
        (0..input.meta.rank()).filter(|dim| !dims.contains(dim)).map(|dim| input.shape()[dim]).collect();
    let of_shape = problem.pack(dtype.size(), &kept);
    let pack = problem.own_pack(of_shape);
    let aligned = problem.keeps_alignment(pack) && input.alignment.is_multiple_of(pack * dtype.size());
    // Enough pieces to fill the device, none so short that the second launch costs more than it gains.
    let pieces = if problem.has_columns() {
        // A thread of several columns has more on its way, so that half as many blocks will do.
        let blocks = if of_shape > 1 { ENOUGH_BLOCKS / 2 } else { ENOUGH_BLOCKS };
        // Pieces have as many elements of several columns as of one.
        let most = (length * of_shape / SHORTEST_PIECE).max(1);
        (blocks / outputs.div_ceil(COLUMNS * of_shape)).clamp(1, most)
    } else {
        (ENOUGH_THREADS / outputs.max(1)).clamp(1, (length / 256).max(1)).min(1024)
    };
    if pieces == 1 {
        let from = (dtype, type_of(dtype), &problem);
        return stage(plan, kind, from, (pack, aligned), 1, (input.into(), out.into()), type_of(out.meta.dtype()));
    }
    let wide = wide_of(dtype);
    let bytes = outputs * pieces * if wide == "float" { 4 } else { 8 };
    let partial = plan.workspace(bytes as u64);
    let from = (dtype, type_of(dtype), &problem);
    stage(plan, kind, from, (pack, aligned), pieces, (input.into(), partial.into()), wide)?;
    let rest = Problem { kept: vec![(outputs, [1])], reduced: vec![(pieces, [outputs as isize])] };
    stage(plan, kind, (dtype, wide, &rest), (1, true), 1, (partial.into(), out.into()), type_of(out.meta.dtype()))
}

/// Plans the sum over the rows of `input` [rows, columns].
pub fn sum_rows(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
    reduce(plan, "Sum", input, &[0], out)
}

macro_rules! reduction {
    ($($module:ident: $of:ident, $kind:literal;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cuda, strided)]
        mod $module {
            fn checker(input: &TensorMeta, dims: &[usize]) -> Claim {
                super::outputs_fit(input, dims)
            }

            fn plan(plan: &mut Plan, input: &DeviceTensor, dims: &[usize], out: &DeviceTensor) -> Result<()> {
                super::reduce(plan, $kind, input, dims, out)
            }
        }
    )*};
}

reduction! {
    sum_by_cuda: sum, "Sum";
    prod_by_cuda: prod, "Product";
    amax_by_cuda: amax, "Max";
    amin_by_cuda: amin, "Min";
}
