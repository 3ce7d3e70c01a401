//! How the kernels of attention are launched.

use fulgurite_runtime::device::{Address, Command};
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::source_files;

use fulgurite_executor_cuda::elementwise::{contiguous_copy, copy, in_workspace};
use fulgurite_executor_cuda::support::type_of;

use super::changes::{Changes, Way};
use super::groups::{Groups, JOINT_TILE};
use super::problem::{Problem, Products, WIDEST_ACCESS};

/// Rows of a warp.
const OF_A_WARP: usize = 16;

/// How many warps a block has, and how many rows of the other side it reads at a time.
#[derive(Clone, Copy)]
struct Tiling {
    products: Products,
    warps: usize,
    tile: usize,
}

impl Tiling {
    /// Measured on an H200: of the sizes that fit registers the fastest, or as good as any. Wide heads leave room for
    /// small tiles, and so do widths of no whole packs, whose elements are read one by one. The size of a tile is
    /// part of the order of sums, so it depends on the shape and on nothing that addresses or strides decide.
    fn forward(problem: &Problem, changes: &Changes) -> Tiling {
        let products = problem.products;
        let wide = problem.padded() > 64;
        let (warps, tile) = match (products, problem.has_whole_packs()) {
            (Products::Halves, _) if problem.is_wide() => (4, 32),
            (Products::Halves, whole) => (4, if whole && !(wide && changes.of_registers() > 1) { 64 } else { 32 }),
            (Products::Tf32, false) if !wide => (4, 16),
            // Few queries do not fill more warps.
            (Products::Tf32, _) => (if problem.queries > 4 * OF_A_WARP { 8 } else { 4 }, if wide { 16 } else { 32 }),
            (Products::F32, _) => (4, if wide { 16 } else { 32 }),
        };
        Tiling { products, warps, tile }
    }

    /// The same of the backward kernel.
    fn backward(problem: &Problem, changes: &Changes) -> Tiling {
        let (products, changed) = (problem.products, changes.of_registers() > 0);
        let tile = match (products, problem.has_whole_packs()) {
            (Products::F32, _) if problem.padded() > 64 && changed => 8,
            _ if problem.padded() > 64 => 16,
            (Products::Halves, true) if !changed => 64,
            (Products::Halves, _) => 32,
            (Products::Tf32, true) | (Products::F32, _) if !changed => 32,
            (Products::Tf32 | Products::F32, _) => 16,
        };
        Tiling { products, warps: 4, tile }
    }

    /// Blocks for each head of `rows` rows.
    fn blocks(&self, rows: usize) -> usize {
        rows.div_ceil(OF_A_WARP * self.warps)
    }

    /// Shared memory in bytes: of the tiles of two tensors, beside which the next ones are fetched, but for TF32; and
    /// of the block's own rows of `own` tensors.
    fn shared_bytes(&self, problem: &Problem, own: usize) -> usize {
        let stages = if self.products == Products::Tf32 { 1 } else { 2 };
        let rows = 2 * stages * self.tile + own * OF_A_WARP * self.warps;
        rows * problem.padded() * self.products.size()
    }

    fn threads(&self) -> u32 {
        32 * self.warps as u32
    }
}

/// The tensor, or a contiguous copy of it in the workspace.
fn contiguous(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    if tensor.is_contiguous() {
        return Ok(tensor.clone());
    }
    contiguous_copy(plan, tensor)
}

/// A tensor of heads as kernels take it.
struct Heads {
    tensor: DeviceTensor,
}

impl Heads {
    /// The tensor itself, or a copy in the workspace if its rows are not contiguous, or overlap.
    fn laid_out(plan: &mut Plan, tensor: &DeviceTensor) -> Result<Heads> {
        if (tensor.strides[3] == 1 || tensor.shape()[3] == 1) && tensor.strides.iter().all(|stride| *stride >= 0) {
            return Ok(Heads { tensor: tensor.clone() });
        }
        Ok(Heads { tensor: contiguous(plan, tensor)? })
    }

    /// The same, or a copy, so that `pack` neighbours of every row can be read at once.
    fn packed(self, plan: &mut Plan, pack: usize) -> Result<Heads> {
        if self.aligned(pack) {
            return Ok(self);
        }
        Ok(Heads { tensor: contiguous_copy(plan, &self.tensor)? })
    }

    /// Of batch, head and row, in elements.
    fn strides(&self) -> Parameter {
        Parameter::from([0, 1, 2].map(|dim| self.tensor.strides[dim] as i64))
    }

    /// Whether `pack` neighbours of every row can be read at once.
    fn aligned(&self, pack: usize) -> bool {
        let DeviceTensor { meta, strides, alignment, .. } = &self.tensor;
        let extents = meta.shape();
        let whole = (0..3).all(|dim| extents[dim] == 1 || strides[dim] % pack as isize == 0);
        whole && alignment.is_multiple_of(pack * meta.dtype().size())
    }
}

/// The strides of a result [batch, rows, heads, width], in the order of [`Heads::strides`].
fn strides_of_result(result: &DeviceTensor) -> Parameter {
    Parameter::from([0, 2, 1].map(|dim| result.strides[dim] as i64))
}

/// Takes the following kernels from a file.
macro_rules! kernels {
    ($plan:expr, $tiling:expr, $file:literal) => {
        $plan.source(match $tiling.products {
            Products::Halves => source_files!["rows.cuh", "masks.cuh", "warps.cuh", "halves.cuh", $file],
            Products::Tf32 => source_files!["rows.cuh", "masks.cuh", "warps.cuh", "tf32.cuh", $file],
            Products::F32 => source_files!["rows.cuh", "masks.cuh", "warps.cuh", "f32.cuh", $file],
        });
        $plan.define("WARPS", $tiling.warps);
        $plan.define("TILE", $tiling.tile);
    };
}

/// Tells the kernels what they are compiled for.
fn define(plan: &mut Plan, problem: &Problem, padded: usize, is_causal: bool, aligned: bool) {
    plan.define("ELEMENT", type_of(problem.dtype));
    plan.define("WIDTH", problem.width);
    plan.define("PADDED", padded);
    plan.define("CAUSAL", u8::from(is_causal));
    plan.define("ALIGNED", u8::from(aligned));
}

/// The same of kernels whose warps multiply by themselves. Of wide heads operands are packed whatever results are.
fn define_by_warps(plan: &mut Plan, problem: &Problem, is_causal: bool, aligned: bool) {
    define(plan, problem, problem.padded(), is_causal, aligned || problem.is_wide());
    if problem.is_wide() {
        plan.define("RESULTS_ALIGNED", u8::from(aligned));
    }
}

/// Whether `pack` neighbours can be taken at once of all operands and results of the width.
fn aligned(problem: &Problem, pack: usize, operands: &[Heads], results: &[&DeviceTensor]) -> bool {
    let whole = |tensor: &&DeviceTensor| Heads { tensor: (*tensor).clone() }.aligned(pack);
    problem.has_whole(pack) && results.iter().all(whole) && operands.iter().all(|heads| heads.aligned(pack))
}

/// Tensors of heads as kernels take them; those of warp groups, and those of wide heads, take packs alone.
fn operands(plan: &mut Plan, problem: &Problem, by_groups: bool, tensors: &[&DeviceTensor]) -> Result<Vec<Heads>> {
    let taken = |tensor: &&DeviceTensor| {
        let heads = Heads::laid_out(plan, tensor)?;
        if by_groups || problem.is_wide() { heads.packed(plan, Groups::pack(problem)) } else { Ok(heads) }
    };
    tensors.iter().map(taken).collect()
}

/// Plans [`super::attention`].
pub(super) fn forward(
    plan: &mut Plan,
    operands: [&DeviceTensor; 3],
    way: &Way,
    out: &DeviceTensor,
    log_sums: &DeviceTensor,
) -> Result<()> {
    if log_sums.is_contiguous() {
        return launch_forward(plan, operands, None, way, out, Some(log_sums));
    }
    let near = in_workspace(plan, log_sums);
    launch_forward(plan, operands, None, way, out, Some(&near))?;
    copy(plan, &near, log_sums)
}

/// Plans [`super::attention_after`].
pub(super) fn forward_after(
    plan: &mut Plan,
    operands: [&DeviceTensor; 3],
    starts: &DeviceTensor,
    scale: f64,
    out: &DeviceTensor,
) -> Result<()> {
    let way = Way { is_causal: true, scale, tf32: false, changes: Changes::default() };
    launch_forward(plan, operands, Some(starts), &way, out, None)
}

/// Attention of rows that are positions 0 and so on, or that begin at `starts`.
fn launch_forward(
    plan: &mut Plan,
    [query, key, value]: [&DeviceTensor; 3],
    starts: Option<&DeviceTensor>,
    way: &Way,
    out: &DeviceTensor,
    log_sums: Option<&DeviceTensor>,
) -> Result<()> {
    let problem = Problem::of(query, key, way.tf32);
    let Way { is_causal, scale, changes, .. } = way;
    let groups = Groups::forward(plan, &problem, changes);
    let operands = operands(plan, &problem, groups.is_some(), &[query, key, value])?;
    let marks = changes.marks(plan, &problem, *is_causal, [groups.is_some(), false])?;
    let shape = if let Some(groups) = groups {
        plan.source(source_files!["rows.cuh", "masks.cuh", "wgmma.cuh", "tiles.cuh", "forward_wgmma.cu"]);
        groups.define(plan);
        let aligned = aligned(&problem, Groups::pack(&problem), &operands, &[out]);
        define(plan, &problem, Groups::padded(&problem), *is_causal, aligned);
        groups.shape(plan)
    } else {
        let tiling = Tiling::forward(&problem, changes);
        kernels!(plan, tiling, "forward.cu");
        let aligned = aligned(&problem, tiling.products.pack(), &operands, &[out]);
        define_by_warps(plan, &problem, *is_causal, aligned);
        let blocks = tiling.blocks(problem.queries) * problem.heads * problem.batch;
        // Of wide heads, and of rows that several threads read, the block's own are in shared memory.
        let own = usize::from(problem.products == Products::F32 || problem.is_wide());
        LaunchShape::linear(blocks as u32, tiling.threads()).shared(tiling.shared_bytes(&problem, own) as u32)
    };
    plan.define("AFTER", u8::from(starts.is_some()));
    changes.define(plan, marks.as_ref());
    let mut parameters: Vec<Parameter> = operands.iter().map(|heads| Parameter::from(&heads.tensor)).collect();
    parameters.push(Parameter::from(out));
    match starts {
        Some(starts) => {
            plan.define("STARTS", type_of(starts.dtype()));
            parameters.push(Parameter::from(&contiguous(plan, starts)?));
        }
        None => parameters.extend(log_sums.map(Parameter::from)),
    }
    parameters.extend(operands.iter().map(Heads::strides));
    parameters.push(strides_of_result(out));
    parameters.extend(problem.extents(*scale));
    if let Some(groups) = groups {
        parameters.extend(groups.parameters(&problem));
        parameters.extend(groups.forward_parameters(zeros(plan, size_of::<u32>())));
    }
    parameters.extend(changes.parameters(plan, &problem, marks.as_ref(), false)?);
    plan.launch("attention", shape, parameters)
}

/// Threads of the kernel that brings what backward needs of each row.
const THREADS_OF_ROWS: usize = 256;

/// Neighbouring queries of a block of that kernel.
const NEAR: usize = 8;

/// A workspace of zeros.
fn zeros(plan: &mut Plan, bytes: usize) -> Address {
    let to = plan.workspace(bytes as u64);
    plan.push(Command::Fill { to, byte: 0, bytes: bytes as u64 });
    to
}

/// What the backward kernels need of each query.
enum Rows<'a> {
    /// It is computed where it is needed, of these.
    Here { log_sums: &'a DeviceTensor, out: &'a DeviceTensor },
    /// It was computed by a kernel before.
    Before(Address),
}

/// Queries of which each block computes what it needs itself: a tile or two, for which a kernel of its own would take
/// as long as the gradients.
const FEW: usize = 128;

/// Whether the blocks of the backward kernel compute it. The shape decides, since the order of sums is another. Wider
/// heads, masks and the like leave no registers for it.
fn rows_here(problem: &Problem, changes: &Changes) -> bool {
    let whole = problem.has_whole(WIDEST_ACCESS / problem.dtype.size());
    problem.queries <= FEW && problem.padded() <= 64 && whole && changes.is_none()
}

/// Plans the kernel that computes it, and says where.
fn rows_before(
    plan: &mut Plan,
    problem: &Problem,
    is_causal: bool,
    d_out: &[Heads],
    out: &DeviceTensor,
    log_sums: &DeviceTensor,
) -> Result<Address> {
    plan.source(source_files!["rows.cuh", "rows.cu"]);
    plan.define("THREADS_OF_ROWS", THREADS_OF_ROWS);
    plan.define("NEAR", NEAR);
    // Its threads read other packs than those of the products.
    let pack = WIDEST_ACCESS / problem.dtype.size();
    let rows_aligned = aligned(problem, pack, d_out, &[out]);
    let padded = problem.padded().next_power_of_two();
    define(plan, problem, padded, is_causal, rows_aligned);
    let count = problem.batch * problem.heads * problem.queries;
    let rows = plan.workspace((count * 2 * size_of::<f32>()) as u64);
    let mut parameters = vec![Parameter::from(&d_out[0].tensor), out.into(), log_sums.into(), rows.into()];
    parameters.extend([d_out[0].strides(), strides_of_result(out)]);
    parameters.extend([(problem.heads as i32).into(), (problem.queries as i32).into(), (count as i64).into()]);
    let heads_of_block = THREADS_OF_ROWS * pack / padded / NEAR;
    let blocks = problem.batch * problem.heads.div_ceil(heads_of_block) * problem.queries.div_ceil(NEAR);
    plan.launch("attention_rows", LaunchShape::linear(blocks as u32, THREADS_OF_ROWS as u32), parameters)?;
    Ok(rows)
}

/// Plans [`super::attention_backward`].
pub(super) fn backward(
    plan: &mut Plan,
    [d_out, query, key, value]: [&DeviceTensor; 4],
    [out, log_sums]: [&DeviceTensor; 2],
    way: &Way,
    gradients: [&DeviceTensor; 3],
) -> Result<()> {
    let problem = Problem::of(query, key, way.tf32);
    let Way { is_causal, scale, changes, .. } = way;
    let groups = Groups::backward(plan, &problem, changes);
    let operands = operands(plan, &problem, groups.is_some(), &[d_out, query, key, value])?;
    let here = groups.is_none() && rows_here(&problem, changes);
    let out = if here { contiguous(plan, out)? } else { Heads::laid_out(plan, out)?.tensor };
    let log_sums = contiguous(plan, log_sums)?;
    let [d_query, d_key, d_value] = gradients;
    let tiling = Tiling::backward(&problem, changes);
    let aligned = aligned(&problem, tiling.products.pack(), &operands, &[d_query, d_key, d_value, &out]);
    let rows = match here {
        true => Rows::Here { log_sums: &log_sums, out: &out },
        false => Rows::Before(rows_before(plan, &problem, *is_causal, &operands[..1], &out, &log_sums)?),
    };

    let mut parameters: Vec<Parameter> = operands.iter().map(|heads| Parameter::from(&heads.tensor)).collect();
    match rows {
        Rows::Here { log_sums, out } => parameters.extend([Parameter::from(log_sums), out.into()]),
        Rows::Before(rows) => parameters.push(rows.into()),
    }
    parameters.extend(gradients.map(Parameter::from));
    parameters.extend(operands.iter().map(Heads::strides));
    parameters.extend(gradients.map(strides_of_result));
    let joint = if changes.is_none() { Groups::backward_joint(plan, &problem, *is_causal) } else { None };
    if let Some(groups) = joint {
        // Sums of gradients of queries, and how many blocks of keys added to each tile's; one count more is of the
        // pieces of work that were taken.
        let tiles = problem.batch * problem.heads * problem.queries.div_ceil(JOINT_TILE);
        let sums = plan.workspace((tiles * JOINT_TILE * Groups::padded(&problem) * size_of::<f32>()) as u64);
        let counts = zeros(plan, (1 + tiles) * size_of::<u32>());
        let strides = parameters.len() - operands.len() - gradients.len();
        parameters.splice(strides..strides, [sums, counts].map(Parameter::from));
        plan.source(source_files!["rows.cuh", "wgmma.cuh", "tiles.cuh", "joint.cuh", "backward_joint.cu"]);
        groups.define(plan);
        define(plan, &problem, Groups::padded(&problem), *is_causal, aligned);
        parameters.extend(problem.extents(*scale));
        parameters.extend(groups.parameters(&problem));
        parameters.extend(groups.joint_parameters(&problem, *is_causal));
        return plan.launch("attention_backward", groups.shape(plan), parameters);
    }
    let marks = changes.marks(plan, &problem, *is_causal, [groups.is_some(), true])?;
    if let Some(both) = groups {
        for (groups, of_keys) in both.into_iter().zip([true, false]) {
            let of_changes = changes.parameters(plan, &problem, marks.as_ref(), of_keys)?;
            plan.source(source_files!["rows.cuh", "masks.cuh", "wgmma.cuh", "tiles.cuh", "backward_wgmma.cu"]);
            groups.define(plan);
            define(plan, &problem, Groups::padded(&problem), *is_causal, aligned);
            plan.define("OF_KEYS", u8::from(of_keys));
            changes.define(plan, marks.as_ref());
            let mut parameters = parameters.clone();
            parameters.extend(problem.extents(*scale));
            parameters.extend(groups.parameters(&problem));
            parameters.extend(of_changes);
            plan.launch("attention_backward", groups.shape(plan), parameters)?;
        }
        return Ok(());
    }
    let of_changes = changes.parameters(plan, &problem, marks.as_ref(), false)?;
    kernels!(plan, tiling, "backward.cu");
    define_by_warps(plan, &problem, *is_causal, aligned);
    changes.define(plan, marks.as_ref());
    plan.define("ROWS_HERE", u8::from(matches!(rows, Rows::Here { .. })));
    let rows_aligned = self::aligned(&problem, WIDEST_ACCESS / problem.dtype.size(), &operands[..1], &[&out]);
    plan.define("ROWS_ALIGNED", u8::from(rows_aligned));
    parameters.push((problem.batch as i32).into());
    parameters.extend(problem.extents(*scale));
    parameters.extend(of_changes);
    let blocks = tiling.blocks(problem.queries) * problem.heads * problem.batch
        + tiling.blocks(problem.keys) * problem.shared_heads * problem.batch * problem.parts_of_keys();
    // Wide heads do not fit registers, nor do rows that several threads read: each block keeps two operands of its own
    // rows in shared memory.
    let own = if problem.padded() > 64 || problem.products == Products::F32 { 2 } else { 0 };
    let shape = LaunchShape::linear(blocks as u32, tiling.threads()).shared(tiling.shared_bytes(&problem, own) as u32);
    plan.launch("attention_backward", shape, parameters)
}
