//! Rotary position embedding.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

use super::{liger, takes};
use fulgurite_executor_cuda::support::{
    Dimension, WIDEST, are_aligned, collapsed, index_type, offset, positions, type_of,
};
use fulgurite_ops::core::arrays::spread;
use fulgurite_ops::core::promotion::{broadcast_shapes, constant_like};
use fulgurite_ops::nn::rope_table_gradients;
use fulgurite_ops::prims;

/// Threads of a block, and rows that each rotates by the same angles, as measured on an H200.
const THREADS: u32 = 128;
const EACH: usize = 2;

/// Whether the kernel is written for these queries, keys and tables.
///
/// # Errors
/// The reason why it is not.
pub fn kernel_fits(q: &TensorMeta, k: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Claim {
    takes("q", q)?;
    takes("cos", cos)?;
    refuse_unless!(q.dtype() == k.dtype(), "q is {q}, k is {k}, takes one dtype");
    refuse_unless!(cos.dtype() == sin.dtype(), "cos is {cos}, sin is {sin}, takes one dtype");
    let width = q.shape().last().copied().unwrap_or(0);
    let rotated = cos.shape().last().copied().unwrap_or(0);
    refuse_unless!(rotated > 0 && rotated.is_multiple_of(2), "cos is {cos}, takes an even width");
    for (name, table) in [("cos", cos), ("sin", sin)] {
        let as_wide = table.shape().last() == Some(&rotated);
        refuse_unless!(as_wide, "{name} is {table}, takes rows of {rotated} elements");
    }
    for (name, x) in [("q", q), ("k", k)] {
        let as_wide = x.shape().last() == Some(&width) && rotated <= width;
        refuse_unless!(as_wide, "{name} is {x}, takes rows of {width} elements, {rotated} or more");
        let rows = rows_of(x);
        let spread = |table| broadcast_shapes(&[rows, rows_of(table)]).as_deref() == Some(rows);
        refuse_unless!(spread(cos) && spread(sin), "cos is {cos}, sin {sin}, which do not broadcast to {name}'s {x}");
    }
    Ok(())
}

/// The extents before the last one.
fn rows_of(tensor: &TensorMeta) -> &[usize] {
    tensor.shape().split_last().map_or(&[], |(_, rows)| rows)
}

/// The rows of queries or keys: strides are those of the operand, the result, cosines, sines.
struct Place {
    /// Dimensions along which the angles change.
    positions: Vec<Dimension<4>>,
    /// Dimensions along which they are the same.
    shared: Vec<Dimension<4>>,
}

impl Place {
    fn new(x: &DeviceTensor, out: &DeviceTensor, tables: [&DeviceTensor; 2]) -> Place {
        let rows = rows_of(&x.meta);
        let of_table = |table: &DeviceTensor, dim: usize| {
            let own = (dim + table.rank()).checked_sub(x.rank()).filter(|own| table.shape()[*own] != 1);
            own.map_or(0, |own| table.strides[own])
        };
        let dims = rows.iter().enumerate().map(|(dim, extent)| {
            let [cos, sin] = tables.map(|table| of_table(table, dim));
            (*extent, [x.strides[dim], out.strides[dim], cos, sin])
        });
        let (shared, positions): (Vec<_>, Vec<_>) = dims.partition(|(_, [.., cos, sin])| *cos == 0 && *sin == 0);
        Place { positions: collapsed(positions), shared: collapsed(shared) }
    }

    /// Threads that have all positions, if each row is `units` packs wide; none if there are no rows.
    fn threads(&self, units: usize) -> usize {
        if positions(&self.shared) == 0 { 0 } else { positions(&self.positions) * units }
    }

    /// How often a position's rows are cut.
    fn pieces(&self) -> usize {
        if positions(&self.positions) == 0 { 0 } else { positions(&self.shared).div_ceil(EACH) }
    }

    /// Whether every row of operand and result starts at a multiple of `pack` elements of its tensor.
    fn is_whole(&self, pack: usize) -> bool {
        let mut strides = self.positions.iter().chain(&self.shared).flat_map(|(_, strides)| &strides[..2]);
        strides.all(|stride| stride.unsigned_abs().is_multiple_of(pack))
    }

    /// Tells the kernel, under names that begin with `name`.
    fn define(&self, plan: &mut Plan, name: &str, x: &DeviceTensor, out: &DeviceTensor) {
        plan.define(&format!("{name}_POSITIONS"), positions(&self.positions));
        plan.define(&format!("{name}_SHARED"), positions(&self.shared));
        plan.define(&format!("{name}_FROM_STEP"), last_step(x));
        plan.define(&format!("{name}_TO_STEP"), last_step(out));
        for (tensor, part) in ["FROM", "TO", "COS", "SIN"].into_iter().enumerate() {
            plan.define(&format!("{name}_{part}(at)"), offset(&self.positions, tensor, "at"));
        }
        for (tensor, part) in ["FROM", "TO"].into_iter().enumerate() {
            plan.define(&format!("{name}_{part}_SHARED(at)"), offset(&self.shared, tensor, "at"));
        }
    }
}

/// The stride of the last dimension.
fn last_step(tensor: &DeviceTensor) -> isize {
    tensor.strides.last().copied().unwrap_or(1)
}

/// The most neighbouring elements that are read and written at once, if parts of a row have these widths.
fn pack_of(places: [&Place; 2], tensors: [&DeviceTensor; 4], parts: [usize; 2]) -> usize {
    let fits = |pack: usize| {
        parts.iter().all(|part| part.is_multiple_of(pack))
            && tensors.iter().all(|tensor| last_step(tensor) == 1)
            && places.iter().all(|place| place.is_whole(pack))
            && are_aligned(pack, &tensors)
    };
    let mut pack = WIDEST / tensors[0].dtype().size();
    while pack > 1 && !fits(pack) {
        pack /= 2;
    }
    pack
}

/// Queries and keys rotated by one table: of each pair (x₁, x₂), x₁ in the first half of the last dimension and x₂ in
/// the second, (x₁ c₁ - x₂ s₁, x₂ c₂ + x₁ s₂); if `inverse`, the transpose of that, (x₁ c₁ + x₂ s₂, x₂ c₂ - x₁ s₁).
/// `cos` and `sin` broadcast over the other dimensions; where they are narrower, that many first columns are rotated.
/// Computed in f32.
#[operator(
    executor = liger,
    strided,
    in_place(q, k),
    cheap,
    dtypes(f32, bf16, f16),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod rope {
    #[results(query, key)]
    fn rope(
        q: Tensor<Floating>,
        k: Tensor<Floating>,
        cos: Tensor<Floating>,
        sin: Tensor<Floating>,
        inverse: bool,
    ) -> (Tensor, Tensor);

    fn meta(q: &TensorMeta, k: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        super::kernel_fits(q, k, cos, sin).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((q.clone(), k.clone()))
    }

    fn reference(Args { q, k, cos, sin, inverse }: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        (turned(q, cos, sin, inverse), turned(k, cos, sin, inverse))
    }

    fn turned(x: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>, inverse: bool) -> ArrayD<f64> {
        let mut shape = x.shape().to_vec();
        let count = cos.shape()[cos.ndim() - 1];
        shape[x.ndim() - 1] = count;
        let (cos, sin) = (spread(cos, &shape), spread(sin, &shape));
        let half = count / 2;
        ArrayD::from_shape_fn(x.raw_dim(), |at| {
            let mut partner = at.clone();
            let last = x.ndim() - 1;
            if at[last] >= count {
                return x[&at];
            }
            let first = at[last] < half;
            partner[last] = if first { at[last] + half } else { at[last] - half };
            let across = if inverse { -sin[&partner] } else { sin[&at] };
            x[&at] * cos[&at] + if first { -across } else { across } * x[&partner]
        })
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, query: &DeviceTensor, key: &DeviceTensor) -> Result<()> {
        let Args { q, k, cos, sin, inverse } = args;
        let (queries, keys) = (super::Place::new(q, query, [cos, sin]), super::Place::new(k, key, [cos, sin]));
        let (width, rotated) = (q.shape()[q.rank() - 1], cos.shape()[cos.rank() - 1]);
        let parts = [rotated / 2, width - rotated];
        let pack = super::pack_of([&queries, &keys], [q, k, query, key], parts);
        let units = (parts[0] + parts[1]) / pack;
        let threads = queries.threads(units).max(keys.threads(units));
        let pieces = [queries.pieces(), keys.pieces()];
        let blocks = threads.div_ceil(THREADS as usize);
        let grid = blocks * (pieces[0] + pieces[1]);
        if grid == 0 {
            return Ok(());
        }
        plan.source(source_files!["rope.cu"]);
        plan.define("ELEMENT", type_of(q.dtype()));
        plan.define("TABLE", type_of(cos.dtype()));
        plan.define("PACK", pack);
        plan.define("WIDTH", width);
        plan.define("ROTATED", rotated);
        plan.define("THREADS", THREADS);
        plan.define("EACH", EACH);
        plan.define("BLOCKS", blocks);
        plan.define("QUERY_PIECES", pieces[0]);
        plan.define("INVERSE", u8::from(inverse));
        plan.define("INDEX", index_type(q.len().max(k.len()) + THREADS as usize));
        queries.define(plan, "QUERY", q, query);
        keys.define(plan, "KEY", k, key);
        plan.define("COS_STEP", super::last_step(cos));
        plan.define("SIN_STEP", super::last_step(sin));
        let whole = |table: &DeviceTensor| {
            let rows = table.strides.iter().zip(table.shape()).rev().skip(1).filter(|(_, extent)| **extent > 1);
            rows.map(|(stride, _)| stride).all(|stride| stride.unsigned_abs().is_multiple_of(pack))
        };
        let aligned = are_aligned(pack, &[cos, sin]) && whole(cos) && whole(sin);
        plan.define("TABLE_ALIGNED", u8::from(aligned));
        let shape = LaunchShape::linear(u32::try_from(grid).unwrap_or(u32::MAX), THREADS);
        plan.launch("rope", shape, binds![q, k, cos, sin, query, key])
    }

    fn samples(s: &mut Samples) {
        let call = |q: &[usize], k: &[usize], cos: &[usize], sin: &[usize], table: DType, inverse: bool| {
            let angles = |shape: &[usize]| s.uniform(-1.0, 1.0, shape).cast(table);
            with(s.normal(q), s.normal(k), angles(cos), angles(sin), inverse)
        };
        let own = s.dtype();
        let mut cases = Vec::new();
        for inverse in [false, true] {
            cases.push(call(&[2, 6, 4, 8], &[2, 2, 4, 8], &[4, 8], &[4, 8], own, inverse));
            cases.push(call(&[2, 3, 5, 64], &[2, 1, 5, 64], &[5, 64], &[5, 64], DType::F32, inverse));
            cases.push(call(&[5, 2], &[3, 5, 2], &[5, 2], &[2], own, inverse));
        }
        cases.push(call(&[2], &[2], &[2], &[2], own, false));
        cases.push(call(&[0, 4], &[3, 4], &[4], &[4], own, false));
        cases.push(call(&[3, 7, 6], &[7, 6], &[7, 6], &[7, 6], DType::F32, false));
        // A part of each row is rotated.
        for inverse in [false, true] {
            cases.push(call(&[2, 3, 5, 24], &[2, 1, 5, 24], &[5, 16], &[5, 16], DType::F32, inverse));
        }
        cases.push(call(&[4, 7], &[4, 7], &[4, 4], &[4, 4], own, false));
        // A table of each batch; more rows than a thread has, and than a block.
        cases.push(call(&[2, 9, 40, 16], &[2, 17, 40, 16], &[2, 1, 40, 16], &[1, 1, 40, 16], DType::F32, true));
        cases.push(call(&[1, 32, 300, 32], &[1, 8, 300, 32], &[300, 32], &[300, 32], DType::F32, false));
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let odd = with(of(&[4, 3]), of(&[4, 3]), of(&[3]), of(&[3]), false);
        e.case(Kernel, odd, "takes an even width");
        e.case(Kernel, with(of(&[4, 2]), of(&[5, 2]), of(&[4, 2]), of(&[4, 2]), false), "broadcast to k's f32[5, 2]");
    }
}

#[implementation(of = fulgurite_ops::nn::rope, by = liger)]
mod rope_by_liger {
    fn checker(q: &TensorMeta, k: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Claim {
        super::kernel_fits(q, k, cos, sin)
    }

    fn execution(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        rope(q, k, cos, sin, false)
    }

    fn grad(args: Args<Tensor>) -> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads) {
        let Args { q, k, cos, sin } = args;
        let out = rope(q, k, cos, sin, false);
        (out, move |(d_query, d_key): (Option<Tensor>, Option<Tensor>)| {
            let d_query = d_query.unwrap_or_else(|| constant_like(out.0, 0.0));
            let d_key = d_key.unwrap_or_else(|| constant_like(out.1, 0.0));
            let (d_q, d_k) = rope(d_query, d_key, cos, sin, true);
            let [of_query, of_key] =
                [(d_query, q), (d_key, k)].map(|(d_out, input)| rope_table_gradients(d_out, input, cos, sin));
            let [d_cos, d_sin] = [0, 1].map(|table: usize| prims::add(of_query[table], of_key[table]));
            Grads { q: d_q, k: d_k, cos: d_cos, sin: d_sin }
        })
    }
}
