use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{TensorMeta, refuse_unless, source_files};

use super::{AT_ONCE, decode, readable, takes};
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::nn::cached_attention;

/// The most new tokens of a sequence: of more, products of matrices are faster.
const MOST_TOKENS: usize = 16;
/// Rows, of heads and tokens, that a thread has sums of; there are blocks for each such number of them.
const ROWS: usize = 8;
/// Warps of a block.
const WARPS: usize = 8;
/// Blocks of a cluster, which share the positions of a sequence.
const SPLITS: usize = 8;
/// The widest heads.
const WIDEST: usize = 128;

/// Whether the kernel is written for `query` [B, H, L, E] and a cache [B, G, S, E].
fn fits(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
    takes("query", query)?;
    let (q, k) = (query.shape(), key.shape());
    refuse_unless!(key == value, "key is {key}, value {value}, takes heads of one width");
    let width = q[3];
    refuse_unless!(
        width.is_power_of_two() && (AT_ONCE / 2..=WIDEST).contains(&width),
        "heads are {width} wide, takes powers of two from {} to {WIDEST}",
        AT_ONCE / 2
    );
    refuse_unless!(q[2] <= MOST_TOKENS, "takes up to {MOST_TOKENS} tokens, query is {query}");
    refuse_unless!(q[..3].iter().all(|extent| *extent > 0), "query is {query}: nothing to attend with");
    refuse_unless!(k[..3].iter().product::<usize>() <= 1 << 31, "counts rows by 32 bits, key is {key}");
    Ok(())
}

/// What a launch takes besides tensors.
struct Problem {
    scale: f64,
    window: Option<i64>,
    cap: Option<f64>,
}

fn plan_attention(
    plan: &mut Plan,
    query: &DeviceTensor,
    [key, value]: [&DeviceTensor; 2],
    starts: &DeviceTensor,
    problem: &Problem,
    out: &DeviceTensor,
) -> Result<()> {
    let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
    let (groups, positions) = (key.shape()[1], key.shape()[2]);
    let rows = heads / groups * length;
    let (key, value) = (readable(plan, key)?, readable(plan, value)?);
    let pack = AT_ONCE / query.dtype().size();
    // A row of the query is read by as many elements at once as of the cache.
    let whole = query.strides[..3].iter().all(|stride| stride % pack as isize == 0);
    let query = match query.strides[3] == 1 && whole && query.alignment.is_multiple_of(AT_ONCE) {
        true => query.clone(),
        false => readable(plan, query)?,
    };
    let starts = readable(plan, starts)?;
    let splits = if plan.properties().clusters { SPLITS } else { 1 };
    let mut parameters = vec![Parameter::from(&query)];
    plan.source(source_files!["attention.cu"]);
    plan.define("ELEMENT", type_of(out.dtype()));
    plan.define("STARTS", type_of(starts.dtype()));
    plan.define("WIDTH", width);
    plan.define("LENGTH", length);
    plan.define("ALL_ROWS", rows);
    plan.define("ROWS", rows.min(ROWS));
    plan.define("WARPS", WARPS);
    plan.define("SPLITS", splits);
    plan.define("WINDOW", problem.window.unwrap_or(0));
    plan.define("CAPPED", u8::from(problem.cap.is_some()));
    parameters.extend([&key, &value, &starts, out].map(Parameter::from));
    parameters.push(Parameter::from([0, 1, 2].map(|dim| query.strides[dim] as i64)));
    parameters.extend([(groups as i32).into(), (positions as i32).into(), (problem.scale as f32).into()]);
    parameters.push((problem.cap.unwrap_or(0.0) as f32).into());
    let blocks = batch * groups * rows.div_ceil(ROWS) * splits;
    let shape = LaunchShape::linear(blocks as u32, 32 * WARPS as u32);
    let shape = if splits > 1 { shape.cluster([splits as u32, 1, 1]) } else { shape };
    plan.launch("attend", shape, parameters)
}

#[implementation(of = cached_attention, by = decode, strided)]
mod cached_attention_by_decode {
    fn checker(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
        fits(query, key, value)
    }

    fn plan(
        plan: &mut Plan,
        query: &DeviceTensor,
        key: &DeviceTensor,
        value: &DeviceTensor,
        starts: &DeviceTensor,
        scale: Option<f64>,
        window: Option<i64>,
        cap: Option<f64>,
        out: &DeviceTensor,
    ) -> Result<()> {
        let problem = Problem { scale: scale.unwrap_or(1.0 / (query.shape()[3] as f64).sqrt()), window, cap };
        plan_attention(plan, query, [key, value], starts, &problem, out)
    }
}
