//! Layer normalization.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::LaunchShape;
use fulgurite_runtime::{DType, source_files};

use super::{are_aligned, has_kernels_for, llmc, pack_anywhere, takes};
use fulgurite_executor_cuda::rows::Rows;
use fulgurite_executor_cuda::support::{WIDEST, type_of};
use fulgurite_ops::core::arrays::{array, values};
use fulgurite_ops::prims::checks;

/// Threads of a block where it has several rows.
const THREADS: usize = 128;
/// Threads of a block where it has one: each keeps a row, its cotangent, and the sums of two gradients.
const MOST_THREADS: usize = 512;

/// The longest row that is taken.
const LONGEST: usize = Rows::longest(MOST_THREADS);

/// `(x - mean) · rstd · weight + bias` of rows over the trailing `normalized_shape`, and each row's mean and
/// `1 / √(variance + eps)`, both f32.
#[operator(
    executor = llmc,
    dtypes(f32, bf16, f16),
    cheap,
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod layernorm {
    #[results(out, mean, rstd)]
    fn layernorm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        bias: Tensor<Floating>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { input, normalized_shape, weight, bias, .. } = args;
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        super::kernel_fits(input, weight, &normalized_shape)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        require!(
            weight == bias && weight.shape() == normalized_shape,
            Parameters,
            "weight is {weight}, bias {bias}, expected both of {normalized_shape:?} and one dtype"
        );
        let row = super::row_meta(input, &normalized_shape);
        Ok((input.clone(), row.clone(), row))
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { input, normalized_shape, weight, bias, eps } = args;
        let columns: usize = normalized_shape.iter().product();
        let (weight, bias) = (values(weight), values(bias));
        let (mut out, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
        for row in values(input).chunks(columns) {
            let (mean, rstd) = super::statistics(row, eps);
            out.extend(row.iter().enumerate().map(|(i, x)| (x - mean) * rstd * weight[i] + bias[i]));
            means.push(mean);
            rstds.push(rstd);
        }
        let rows = &input.shape()[..input.ndim() - normalized_shape.len()];
        (array(input.shape(), out), array(rows, means), array(rows, rstds))
    }

    fn plan(
        plan: &mut Plan,
        Args { input, normalized_shape, weight, bias, eps }: Args<&DeviceTensor>,
        out: &DeviceTensor,
        mean: &DeviceTensor,
        rstd: &DeviceTensor,
    ) -> Result<()> {
        if input.is_empty() {
            return Ok(());
        }
        let columns: usize = normalized_shape.iter().product();
        let rows = input.len() / columns;
        let pack = pack_anywhere(columns, input.dtype().size());
        let kept = super::kept(columns, pack, THREADS)?;
        super::kernels(plan, kept, input, weight);
        plan.define("ALIGNED", u8::from(are_aligned(pack, &[input, out, weight, bias])));
        plan.define("BLOCKS", 1);
        plan.define("DEPTH", 0);
        let parameters = binds![input, weight, bias, out, mean, rstd, rows, eps as f32];
        plan.launch("layernorm", kept.launch(rows), parameters)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], eps: f64, dtype: DType| {
            let parameter = |mean: f64| s.uniform(mean - 1.0, mean + 1.0, columns).cast(dtype);
            with(s.normal([rows, columns].concat()), columns, parameter(1.0), parameter(0.0), eps)
        };
        let own = s.dtype();
        let cases = [
            call(&[4], &[8], 1e-5, own),
            call(&[2], &[3, 5], 1e-2, own),
            call(&[], &[7], 1e-5, own),
            call(&[0], &[4], 1e-5, own),
            call(&[3], &[515], 1e-5, own),
            call(&[3], &[1], 1e-5, own),
            call(&[5, 3], &[768], 1e-5, DType::F32),
            call(&[3], &[1600], 1e-5, own),
            call(&[2], &[2051], 1e-5, own),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        e.case(TrailingShape, with(of(&[4, 8]), [7], of(&[7]), of(&[7]), 1e-5), "end with [7]");
        e.case(Parameters, with(of(&[4, 8]), [8], of(&[8]), of(&[7]), 1e-5), "expected both of [8]");
        e.case(Kernel, with(of(&[2, 9000]), [9000], of(&[9000]), of(&[9000]), 1e-5), "takes rows of 1 to 8192");
    }
}

/// The gradients of [`mod@layernorm`]: of input, weight and bias.
#[operator(executor = llmc, dtypes(f32, bf16, f16), in_place, no_grad = "a gradient is not differentiated again")]
pub mod layernorm_backward {
    #[results(d_input, d_weight, d_bias)]
    fn layernorm_backward(
        d_out: Tensor<Floating>,
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        mean: Tensor<Floating>,
        rstd: Tensor<Floating>,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { d_out, input, normalized_shape, weight, mean, rstd } = args;
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        super::kernel_fits(input, weight, &normalized_shape)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), input, Code::Cotangent)?;
        let row = super::row_meta(input, &normalized_shape);
        checks::is_like(("mean", mean), &row, Code::Statistics)?;
        checks::is_like(("rstd", rstd), &row, Code::Statistics)?;
        let parameter = weight.shape() == normalized_shape;
        require!(parameter, Parameters, "weight is {weight}, expected {normalized_shape:?}");
        Ok((input.clone(), weight.clone(), weight.clone()))
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { d_out, input, normalized_shape, weight, mean, rstd } = args;
        let columns: usize = normalized_shape.iter().product();
        let (x, d, w) = (values(input), values(d_out), values(weight));
        let (means, rstds) = (values(mean), values(rstd));
        let (mut d_input, mut d_weight, mut d_bias) = (Vec::new(), vec![0.0; columns], vec![0.0; columns]);
        for (row, (x, d)) in x.chunks(columns).zip(d.chunks(columns)).enumerate() {
            let normal: Vec<f64> = x.iter().map(|x| (x - means[row]) * rstds[row]).collect();
            let g: Vec<f64> = d.iter().zip(&w).map(|(d, w)| d * w).collect();
            let centre = g.iter().sum::<f64>() / columns as f64;
            let along = g.iter().zip(&normal).map(|(g, n)| g * n).sum::<f64>() / columns as f64;
            for i in 0..columns {
                d_input.push((g[i] - centre - normal[i] * along) * rstds[row]);
                d_weight[i] += d[i] * normal[i];
                d_bias[i] += d[i];
            }
        }
        (array(input.shape(), d_input), array(&normalized_shape, d_weight), array(&normalized_shape, d_bias))
    }

    fn plan(
        plan: &mut Plan,
        Args { d_out, input, normalized_shape, weight, mean, rstd }: Args<&DeviceTensor>,
        d_input: &DeviceTensor,
        d_weight: &DeviceTensor,
        d_bias: &DeviceTensor,
    ) -> Result<()> {
        if input.is_empty() {
            plan.fill(d_weight, 0);
            plan.fill(d_bias, 0);
            return Ok(());
        }
        let columns: usize = normalized_shape.iter().product();
        let rows = input.len() / columns;
        let pack = pack_anywhere(columns, input.dtype().size());
        let size = input.dtype().size();
        let super::Backward { rows: kept, blocks, depth } = super::Backward::new(columns, pack, size)?;
        // A launch leaves sums of the parameters' gradients for each of its blocks, of which there are as many on every
        // device of an architecture, so that all of them add in the same order.
        let blocks_in_all = rows.div_ceil(kept.at_a_time()).min(plan.typical().multiprocessors * blocks);
        let partial = plan.workspace((blocks_in_all * 2 * columns * size_of::<f32>()) as u64);
        super::kernels(plan, kept, input, weight);
        plan.define("ALIGNED", u8::from(are_aligned(pack, &[d_out, input, d_input, weight])));
        plan.define("BLOCKS", blocks);
        let depth = if pack * size == WIDEST { depth } else { 0 };
        plan.define("DEPTH", depth);
        // The next rows of each of the two operands for every group.
        let fetched = 2 * depth * kept.of_a_thread() * size * kept.threads;
        let shape = LaunchShape::linear(blocks_in_all as u32, kept.threads as u32).shared(fetched as u32);
        let parameters = binds![d_out, input, weight, mean, rstd, d_input, partial, rows];
        plan.launch("layernorm_backward", shape, parameters)?;
        let shape = LaunchShape::new([(2 * columns).div_ceil(32) as u32, 1, 1], [32, 16, 1]);
        plan.launch("layernorm_parameters", shape, binds![partial, d_weight, d_bias, blocks_in_all as i32])
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], dtype: DType| {
            let shape = [rows, columns].concat();
            let weight = s.uniform(0.0, 2.0, columns).cast(dtype);
            let mean = s.uniform(-0.1, 0.1, rows).cast(DType::F32);
            let rstd = s.uniform(0.8, 1.2, rows).cast(DType::F32);
            with(s.normal(&shape), s.normal(&shape), columns, weight, mean, rstd)
        };
        let own = s.dtype();
        let cases = [
            call(&[4], &[8], own),
            call(&[2], &[3, 5], own),
            call(&[], &[7], own),
            call(&[0], &[4], own),
            call(&[3], &[515], own),
            call(&[3], &[1], own),
            // More rows than the blocks have at a time.
            call(&[700, 8], &[96], DType::F32),
            call(&[5, 3], &[768], own),
            call(&[9], &[1024], own),
            call(&[3], &[1600], own),
            call(&[2], &[2051], own),
            // A block a row, and several rows a block.
            call(&[1500], &[1028], own),
            call(&[700], &[2048], own),
            call(&[300], &[4096], own),
            call(&[140], &[8192], own),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), of(&[4]), of(&[4]));
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        let long = with(of(&[2, 9000]), of(&[2, 9000]), [9000], of(&[9000]), of(&[2]), of(&[2]));
        e.case(Kernel, long, "takes rows of 1 to 8192");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        e.case(Statistics, ARGUMENTS.mean.set(good(), of(&[5])), "expected f32[4]");
        e.case(Parameters, ARGUMENTS.weight.set(good(), of(&[9])), "expected [8]");
    }
}

/// Mean and reciprocal deviation of a row.
fn statistics(row: &[f64], eps: f64) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean, 1.0 / (variance + eps).sqrt())
}

/// The meta of a number of each row.
fn row_meta(input: &fulgurite_runtime::TensorMeta, normalized_shape: &[usize]) -> fulgurite_runtime::TensorMeta {
    let leading = input.rank() - normalized_shape.len();
    fulgurite_runtime::TensorMeta::new(&input.shape()[..leading], DType::F32, input.device())
}

/// Whether the kernels are written for these rows.
fn kernel_fits(
    input: &fulgurite_runtime::TensorMeta,
    weight: &fulgurite_runtime::TensorMeta,
    normalized_shape: &[usize],
) -> fulgurite_runtime::executor::Claim {
    let columns: usize = normalized_shape.iter().product();
    fulgurite_runtime::refuse_unless!(
        has_kernels_for(input.dtype()),
        "input is {}, takes f32, bf16, f16",
        input.dtype()
    );
    fulgurite_runtime::refuse_unless!(
        has_kernels_for(weight.dtype()),
        "weight is {}, takes f32, bf16, f16",
        weight.dtype()
    );
    fulgurite_runtime::refuse_unless!(
        (1..=LONGEST).contains(&columns),
        "takes rows of 1 to {LONGEST} elements, not {columns}"
    );
    Ok(())
}

/// The threads of a row, whose length was checked.
fn kept(columns: usize, pack: usize, threads: usize) -> fulgurite_runtime::rules::Result<Rows> {
    Rows::kept(columns, pack, threads, MOST_THREADS).ok_or_else(|| {
        fulgurite_runtime::Failure::new("Kernel", format!("rows of {columns} elements do not fit registers"))
    })
}

/// How the backward kernel goes over rows, as measured on an H200.
struct Backward {
    rows: Rows,
    /// Blocks that a multiprocessor has at a time.
    blocks: usize,
    /// Rows of each operand that are on their way while one is worked on.
    depth: usize,
}

impl Backward {
    /// For rows of `columns` elements of `size` bytes. Registers hold four numbers for each element of a thread: with
    /// many of them there are fewer blocks at a time. Where elements have 16 bits arithmetic takes as long as memory,
    /// and more blocks hide it.
    fn new(columns: usize, pack: usize, size: usize) -> fulgurite_runtime::rules::Result<Backward> {
        let short = size == 2;
        if let Some(rows) = Rows::of_a_block(columns, pack, 8, MOST_THREADS).filter(|_| columns > Rows::LONGEST_OF_WARP)
        {
            let (threads, depth) = if short { (1024, 1) } else { (512, 2) };
            return Ok(Backward { rows, blocks: threads / rows.threads, depth });
        }
        let rows = kept(columns, pack, if short { 128 } else { 256 })?;
        let blocks = match rows.of_a_thread() {
            _ if columns > Rows::LONGEST_OF_WARP => 1,
            0..=16 => 512 / rows.threads,
            17..=24 if short => 4,
            17..=24 => 1,
            _ => return Ok(Backward { rows: kept(columns, pack, 128)?, blocks: 3, depth: 1 }),
        };
        Ok(Backward { rows, blocks, depth: 1 })
    }
}

/// Takes the following kernels from the source of this file.
fn kernels(
    plan: &mut fulgurite_runtime::rules::Plan,
    rows: Rows,
    input: &fulgurite_runtime::rules::DeviceTensor,
    weight: &fulgurite_runtime::rules::DeviceTensor,
) {
    plan.source(source_files!["layer_norm.cu"]);
    plan.define("ELEMENT", type_of(input.dtype()));
    rows.define(plan);
    plan.define("WEIGHT", type_of(weight.dtype()));
}

/// Whether the kernels are written for a call of `layer_norm`.
///
/// # Errors
/// The reason why they are not.
pub fn layernorm_fits(
    input: &fulgurite_runtime::TensorMeta,
    normalized_shape: &[usize],
    weight: Option<&fulgurite_runtime::TensorMeta>,
    bias: Option<&fulgurite_runtime::TensorMeta>,
) -> fulgurite_runtime::executor::Claim {
    takes(input)?;
    let (Some(weight), Some(bias)) = (weight, bias) else {
        return Err("takes a weight and a bias".into());
    };
    fulgurite_runtime::refuse_unless!(
        weight.dtype() == bias.dtype(),
        "weight is {}, bias {}, takes one dtype",
        weight.dtype(),
        bias.dtype()
    );
    kernel_fits(input, weight, normalized_shape)
}

/// Weight and bias, which [`layernorm_fits`] asks for.
///
/// # Panics
/// Without both.
pub fn layernorm_parameters(
    weight: Option<fulgurite_runtime::Tensor>,
    bias: Option<fulgurite_runtime::Tensor>,
) -> (fulgurite_runtime::Tensor, fulgurite_runtime::Tensor) {
    match (weight, bias) {
        (Some(weight), Some(bias)) => (weight, bias),
        _ => unreachable!("the checker asks for both"),
    }
}

#[implementation(of = fulgurite_ops::nn::layer_norm, by = llmc)]
mod layer_norm_by_llmc {
    fn checker(Args { input, normalized_shape, weight, bias, .. }: Args<&TensorMeta>) -> Claim {
        layernorm_fits(input, &normalized_shape, weight, bias)
    }

    fn execution(Args { input, normalized_shape, weight, bias, eps }: Args<Tensor>) -> Tensor {
        let (weight, bias) = layernorm_parameters(weight, bias);
        layernorm(input, normalized_shape, weight, bias, eps).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, normalized_shape, weight, bias, eps } = args;
        let (weight, bias) = layernorm_parameters(weight, bias);
        let (out, mean, rstd) = layernorm(input, &normalized_shape, weight, bias, eps);
        (out, move |d_out: Tensor| {
            let (d_input, d_weight, d_bias) = layernorm_backward(d_out, input, normalized_shape, weight, mean, rstd);
            Grads { input: d_input, weight: Some(d_weight), bias: Some(d_bias) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiprocessors_have_rows_enough_on_their_way_backward() {
        for columns in 1..=LONGEST {
            for size in [2, 4] {
                for pack in (0..4).map(|n| 1 << n).filter(|pack| columns % pack == 0 && pack * size <= WIDEST) {
                    let Backward { rows, blocks, depth } = Backward::new(columns, pack, size).unwrap();
                    let threads = blocks * rows.threads;
                    assert!((256..=1024).contains(&threads), "{columns} by {pack} of {size} bytes: {rows:?}, {blocks}");
                    // The rows that are fetched, and the sums of a block with several, in the shared memory of all
                    // devices.
                    let fetched = 2 * depth * rows.of_a_thread() * size * rows.threads;
                    let sums = if rows.at_a_time() > 1 { 2 * size_of::<f32>() * columns } else { 0 };
                    assert!(fetched + sums <= 96 << 10, "{columns} by {pack} of {size} bytes: {fetched} bytes");
                }
            }
        }
    }
}
