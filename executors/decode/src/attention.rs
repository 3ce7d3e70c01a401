use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless, source_files};

use super::{AT_ONCE, decode, overlapping, readable, takes};
use fulgurite_executor_cuda::elementwise::{contiguous_copy, copy};
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::nn::{cached_attention, extend_and_attend};

/// The most heads that share keys of a block: the rows that the tensor cores have at a time.
const ROWS: usize = 16;
/// Warps of a block.
const WARPS: usize = 8;
/// The most blocks of a cluster, which share the positions of a sequence.
const MOST_SPLITS: usize = 8;
/// Blocks that keep a device busy: of more sequences and heads, fewer share positions.
const BLOCKS: usize = 256;
/// Heads are multiples of this wide, up to [`WIDEST`].
const STEP: usize = 32;
const WIDEST: usize = 128;

/// Whether the kernel is written for `query` [B, H, 1, E] and a cache [B, G, S, E].
fn fits(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
    takes("query", query)?;
    let (q, k) = (query.shape(), key.shape());
    refuse_unless!(key == value, "key is {key}, value {value}, takes heads of one width");
    let width = q[3];
    refuse_unless!(
        width.is_multiple_of(STEP) && (STEP..=WIDEST).contains(&width),
        "heads are {width} wide, takes multiples of {STEP} up to {WIDEST}"
    );
    refuse_unless!(q[2] == 1, "takes one token, query is {query}");
    refuse_unless!(q[..3].iter().all(|extent| *extent > 0), "query is {query}: nothing to attend with");
    refuse_unless!(k[..3].iter().product::<usize>() <= 1 << 31, "counts rows by 32 bits, key is {key}");
    Ok(())
}

/// What a launch takes besides the cache.
struct Problem<'a> {
    query: &'a DeviceTensor,
    /// New keys and values, which are written to the cache.
    new: Option<[&'a DeviceTensor; 2]>,
    /// Cosines and sines, by which queries and new keys are rotated.
    table: Option<[&'a DeviceTensor; 2]>,
    starts: &'a DeviceTensor,
    scale: Option<f64>,
    window: Option<i64>,
    cap: Option<f64>,
}

impl Problem<'_> {
    /// `key` and `value` are in the order of their own dimensions; with new ones they are written to.
    fn plan(&self, plan: &mut Plan, [key, value]: [&DeviceTensor; 2], out: &DeviceTensor) -> Result<()> {
        let [batch, heads, width] = [0, 1, 3].map(|dim| self.query.shape()[dim]);
        let (groups, positions) = (key.shape()[1], key.shape()[2]);
        let shared = heads / groups;
        let rows = shared.min(ROWS);
        let fitting = BLOCKS / (batch * groups * shared.div_ceil(ROWS)).max(1);
        let splits = match plan.properties().clusters {
            true => fitting.clamp(1, MOST_SPLITS).next_power_of_two(),
            false => 1,
        };
        let query = rows_readable(plan, self.query)?;
        let starts = readable(plan, self.starts)?;
        let (mut tables, mut new) = (Vec::new(), Vec::new());
        for table in self.table.into_iter().flatten() {
            tables.push(readable(plan, table)?);
        }
        for tensor in self.new.into_iter().flatten() {
            new.push(rows_readable(plan, tensor)?);
        }
        let fault = self.new.map(|_| plan.fault("starts"));
        plan.source(source_files!["overlap.cuh", "attention.cu"]);
        plan.define("ELEMENT", type_of(out.dtype()));
        plan.define("STARTS", type_of(starts.dtype()));
        plan.define("WIDTH", width);
        plan.define("SHARED", shared);
        plan.define("ROWS", rows);
        plan.define("WARPS", WARPS);
        plan.define("SPLITS", splits);
        plan.define("WINDOW", self.window.unwrap_or(0));
        plan.define("CAPPED", u8::from(self.cap.is_some()));
        plan.define("ROTATED", u8::from(self.table.is_some()));
        plan.define("EXTENDS", u8::from(self.new.is_some()));
        let strides = |tensor: &DeviceTensor| Parameter::from([0, 1].map(|dim| tensor.strides[dim] as i64));
        let mut parameters: Vec<Parameter> = [&query].into_iter().chain(&tables).map(Parameter::from).collect();
        parameters.extend(new.iter().chain([key, value, &starts, out]).map(Parameter::from));
        parameters.push(strides(&query));
        parameters.extend(new.iter().map(strides));
        parameters.extend(fault.into_iter().flat_map(|fault| [fault.into(), Parameter::FaultCode]));
        parameters.extend([(groups as i32).into(), (positions as i32).into()]);
        let scale = self.scale.unwrap_or(1.0 / (width as f64).sqrt());
        parameters.extend([(scale as f32).into(), (self.cap.unwrap_or(0.0) as f32).into()]);
        let blocks = batch * groups * shared.div_ceil(ROWS) * splits;
        let bytes = (WARPS + splits) * rows * (width + 2) * size_of::<f32>();
        let shape = LaunchShape::linear(blocks as u32, 32 * WARPS as u32).shared(bytes as u32);
        let shape = if splits > 1 { shape.cluster([splits as u32, 1, 1]) } else { shape };
        let shape = overlapping(plan, shape);
        plan.launch("attend", shape, parameters)
    }
}

/// The tensor [B, H, 1, E], or a copy, whose rows can be read by [`AT_ONCE`] bytes wherever they are.
fn rows_readable(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    let pack = (AT_ONCE / tensor.dtype().size()) as isize;
    let whole = tensor.strides[..2].iter().all(|stride| stride % pack == 0);
    match tensor.strides[3] == 1 && whole && tensor.alignment.is_multiple_of(AT_ONCE) {
        true => Ok(tensor.clone()),
        false => readable(plan, tensor),
    }
}

#[implementation(of = cached_attention, by = decode, strided)]
mod cached_attention_by_decode {
    fn checker(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
        fits(query, key, value)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { query, key, value, starts, scale, window, cap } = args;
        let (key, value) = (readable(plan, key)?, readable(plan, value)?);
        let problem = Problem { query, new: None, table: None, starts, scale, window, cap };
        problem.plan(plan, [&key, &value], out)
    }
}

#[implementation(of = extend_and_attend, by = decode, strided, in_place(caches))]
mod extend_and_attend_by_decode {
    fn checker(query: &TensorMeta, caches: &[TensorMeta], cos: Option<&TensorMeta>, sin: Option<&TensorMeta>) -> Claim {
        fits(query, &caches[0], &caches[1])?;
        for (name, table) in [("cos", cos), ("sin", sin)] {
            let Some(table) = table else { continue };
            let whole = table.dtype() == DType::F32 && table.shape()[3] == query.shape()[3];
            refuse_unless!(whole, "{name} is {table}, takes f32 rows as wide as heads, query is {query}");
        }
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        keys: &DeviceTensor,
        values: &DeviceTensor,
        out: &DeviceTensor,
    ) -> Result<()> {
        let Args { query, key, value, caches, starts, cos, sin, scale, window, cap } = args;
        let mut caches_read = Vec::new();
        for (cache, result) in caches.iter().zip([keys, values]) {
            let lies_over = plan.lies_over(result, cache);
            let alignment = if lies_over { cache.alignment.min(result.alignment) } else { result.alignment };
            caches_read.push(match result.is_contiguous() && alignment.is_multiple_of(AT_ONCE) {
                true if lies_over => result.clone(),
                true => {
                    copy(plan, cache, result)?;
                    result.clone()
                }
                // The kernel reads and writes rows where they are aligned, and the result has them from there.
                false => contiguous_copy(plan, cache)?,
            });
        }
        let table = cos.zip(sin).map(|(cos, sin)| [cos, sin]);
        let problem = Problem { query, new: Some([key, value]), table, starts, scale, window, cap };
        problem.plan(plan, [&caches_read[0], &caches_read[1]], out)?;
        for (read, result) in caches_read.iter().zip([keys, values]) {
            if read.address != result.address {
                copy(plan, read, result)?;
            }
        }
        Ok(())
    }
}
