//! How the kernels of attention are launched.

use fulgurite::DType;
use fulgurite::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};

use crate::executors::cuda::elementwise::contiguous_copy;
use crate::executors::llmc::source;

/// The widest heads that the kernels hold.
pub(super) const WIDEST: usize = 128;

/// Rows of a warp.
const OF_A_WARP: usize = 16;

/// The problem as the kernels see it: [batch, heads, queries, width] against [batch, shared_heads, keys, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Problem {
    pub batch: usize,
    pub heads: usize,
    pub shared_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    pub dtype: DType,
}

impl Problem {
    /// Of tensors whose metas were checked.
    pub fn of(query: &DeviceTensor, key: &DeviceTensor) -> Problem {
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let (shared_heads, keys) = (key.shape()[1], key.shape()[2]);
        Problem { batch, heads, shared_heads, queries, keys, width, dtype: query.dtype() }
    }

    /// The width with zeros behind it.
    fn padded(&self) -> usize {
        self.width.next_power_of_two().max(32)
    }

    /// The extents that kernels take, and the factor of scores.
    fn extents(&self, scale: f64) -> Vec<Parameter> {
        let counts = [self.heads, self.shared_heads, self.queries, self.keys];
        let mut parameters: Vec<Parameter> = counts.iter().map(|count| Parameter::from(*count as i32)).collect();
        parameters.push((scale as f32).into());
        parameters
    }
}

/// How many warps a block has, and how many rows of the other side it reads at a time.
#[derive(Clone, Copy)]
struct Tiling {
    warps: usize,
    tile: usize,
}

impl Tiling {
    /// Blocks for each head of `rows` rows.
    fn blocks(&self, rows: usize) -> usize {
        rows.div_ceil(OF_A_WARP * self.warps)
    }

    /// Shared memory of two tiles, in bytes.
    fn shared_bytes(&self, problem: &Problem) -> usize {
        2 * self.tile * problem.padded() * size_of::<f32>()
    }

    fn threads(&self) -> u32 {
        32 * self.warps as u32
    }
}

/// Measured on an H200: of the sizes that fit registers the fastest, or as good as any. Wide heads leave room for small tiles.
fn forward_tiling(problem: &Problem) -> Tiling {
    Tiling { warps: 4, tile: if problem.padded() > 64 { 16 } else { 32 } }
}
fn backward_tiling(problem: &Problem) -> Tiling {
    Tiling { warps: 8, tile: if problem.padded() > 64 { 16 } else { 32 } }
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
    /// The tensor as it lies, or a copy in the workspace if its rows are not of neighbours, or overlap.
    fn laid_out(plan: &mut Plan, tensor: &DeviceTensor) -> Result<Heads> {
        if (tensor.strides[3] == 1 || tensor.shape()[3] == 1) && tensor.strides.iter().all(|stride| *stride >= 0) {
            return Ok(Heads { tensor: tensor.clone() });
        }
        Ok(Heads { tensor: contiguous(plan, tensor)? })
    }

    /// Of batch, head and row, in elements.
    fn strides(&self) -> Parameter {
        Parameter::from([0, 1, 2].map(|dim| self.tensor.strides[dim] as i64))
    }

    /// Whether four neighbours of every row can be read at once.
    fn aligned(&self) -> bool {
        let DeviceTensor { meta, strides, alignment, .. } = &self.tensor;
        let extents = meta.shape();
        let whole = (0..3).all(|dim| extents[dim] == 1 || strides[dim] % 4 == 0);
        whole && alignment.is_multiple_of(4 * meta.dtype().size())
    }
}

/// Takes the following kernels from `source!`'s file and tells them what they are compiled for.
fn define(plan: &mut Plan, problem: &Problem, tiling: Tiling, is_causal: bool, aligned: bool) {
    plan.define("WIDTH", problem.width);
    plan.define("PADDED", problem.padded());
    plan.define("WARPS", tiling.warps);
    plan.define("TILE", tiling.tile);
    plan.define("CAUSAL", u8::from(is_causal));
    plan.define("ALIGNED", u8::from(aligned));
}

/// Whether four elements of a row of contiguous tensors can be written at once.
fn written_at_once(problem: &Problem, results: &[&DeviceTensor]) -> bool {
    let aligned = |result: &&DeviceTensor| result.alignment.is_multiple_of(4 * problem.dtype.size());
    problem.width.is_multiple_of(4) && results.iter().all(aligned)
}

/// Plans [`super::attention`].
pub(super) fn forward(
    plan: &mut Plan,
    [query, key, value]: [&DeviceTensor; 3],
    is_causal: bool,
    scale: f64,
    out: &DeviceTensor,
    log_sums: &DeviceTensor,
) -> Result<()> {
    let problem = Problem::of(query, key);
    let tiling = forward_tiling(&problem);
    let mut operands = Vec::new();
    for tensor in [query, key, value] {
        operands.push(Heads::laid_out(plan, tensor)?);
    }
    let aligned = written_at_once(&problem, &[out]) && operands.iter().all(Heads::aligned);
    source!(plan, problem.dtype, ["tiles.cuh"], "forward.cu");
    define(plan, &problem, tiling, is_causal, aligned);
    let mut parameters: Vec<Parameter> = operands.iter().map(|heads| Parameter::from(&heads.tensor)).collect();
    parameters.extend([Parameter::from(out), Parameter::from(log_sums)]);
    parameters.extend(operands.iter().map(Heads::strides));
    parameters.extend(problem.extents(scale));
    let blocks = tiling.blocks(problem.queries) * problem.heads * problem.batch;
    let shape = LaunchShape::linear(blocks as u32, tiling.threads()).shared(tiling.shared_bytes(&problem) as u32);
    plan.launch("attention", shape, parameters)
}

/// Plans [`super::attention_backward`].
pub(super) fn backward(
    plan: &mut Plan,
    [d_out, query, key, value]: [&DeviceTensor; 4],
    [out, log_sums]: [&DeviceTensor; 2],
    is_causal: bool,
    scale: f64,
    gradients: [&DeviceTensor; 3],
) -> Result<()> {
    let problem = Problem::of(query, key);
    let tiling = backward_tiling(&problem);
    let mut operands = Vec::new();
    for tensor in [d_out, query, key, value] {
        operands.push(Heads::laid_out(plan, tensor)?);
    }
    let (out, log_sums) = (contiguous(plan, out)?, contiguous(plan, log_sums)?);
    let [d_query, d_key, d_value] = gradients;
    let written = written_at_once(&problem, &[d_query, d_key, d_value, &out]);
    source!(plan, problem.dtype, ["tiles.cuh"], "backward.cu");
    define(plan, &problem, tiling, is_causal, written && operands.iter().all(Heads::aligned));
    let mut parameters: Vec<Parameter> = operands.iter().map(|heads| Parameter::from(&heads.tensor)).collect();
    parameters.extend([&out, &log_sums].into_iter().chain(gradients).map(Parameter::from));
    parameters.extend(operands.iter().map(Heads::strides));
    parameters.extend(problem.extents(scale));
    let of_queries = tiling.blocks(problem.queries) * problem.heads * problem.batch;
    let of_keys = tiling.blocks(problem.keys) * problem.shared_heads * problem.batch;
    parameters.push((of_queries as i32).into());
    // Wide heads do not fit registers: each block keeps two operands of its own rows in shared memory.
    let own =
        if problem.padded() > 64 { 2 * OF_A_WARP * tiling.warps * problem.padded() * size_of::<f32>() } else { 0 };
    let shape = LaunchShape::linear((of_queries + of_keys) as u32, tiling.threads())
        .shared((tiling.shared_bytes(&problem) + own) as u32);
    plan.launch("attention_backward", shape, parameters)
}
