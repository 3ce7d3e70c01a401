//! Softmax and its gradient.

use fulgurite_ops_macros::{implementation, operator};

use super::{are_aligned, llmc, pack_anywhere, takes};
use fulgurite_executor_cuda::rows::{Rows, streamed};
use fulgurite_executor_cuda::support::{WIDEST, type_of};
use fulgurite_ops::core::arrays::{along, softmax_row};
use fulgurite_ops::nn::softmax_gradient;
use fulgurite_ops::prims::checks;
use fulgurite_runtime::device::Properties;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{LaunchShape, Plan};
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

/// Threads of a block where it has several rows.
const THREADS: usize = 128;
/// Threads of a block where it has one.
const MOST_THREADS: usize = 1024;
/// Threads of a block that streams a row.
const STREAMING_THREADS: usize = 512;

/// Rows are kept in the shared memory of multiprocessors that have at least so many bytes of it, and what each block
/// takes for itself.
const SHARED_BYTES: usize = 228 << 10;
const OWN_BYTES: usize = 2 << 10;
/// The most packs of a thread.
const MOST_STEPS: usize = 16;

/// How a row is kept in the shared memory of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    threads: usize,
    /// Packs of a thread.
    steps: usize,
    /// Blocks that a multiprocessor has at a time.
    blocks: usize,
    /// Tensors whose rows are kept.
    operands: usize,
}

impl Shared {
    /// For parts of `packs` packs of rows of `operands` tensors, of which a thread of a block of few has at most
    /// `most`; `None` if they do not fit.
    fn new(packs: usize, operands: usize, most: usize) -> Option<Shared> {
        let threads = if packs <= 512 * most { 512 } else { MOST_THREADS };
        let kept = Shared { threads, steps: packs.div_ceil(threads), blocks: 1, operands };
        let blocks = (SHARED_BYTES / (kept.bytes() + OWN_BYTES)).min(2);
        (blocks > 0 && kept.steps <= MOST_STEPS).then_some(Shared { blocks, ..kept })
    }

    /// Dynamic shared memory of a block.
    fn bytes(self) -> usize {
        self.operands * self.steps * self.threads * WIDEST
    }

    /// Defines the constants that the kernels use.
    fn define(self, plan: &mut Plan) {
        plan.define("THREADS", self.threads);
        plan.define("STEPS", self.steps);
        plan.define("BLOCKS", self.blocks);
    }

    /// A launch of as many blocks as run at a time, which go from row to row, or as `rows` need if each has `blocks` of
    /// its own.
    fn launch(self, device: &Properties, rows: usize, blocks: usize) -> LaunchShape {
        let blocks = (rows * blocks).min(device.multiprocessors / blocks * blocks * self.blocks);
        LaunchShape::linear(blocks as u32, self.threads as u32).shared(self.bytes() as u32)
    }
}

/// `e^(x - max) / Σ e^(x - max)` along the last dimension.
#[operator(
    executor = llmc,
    dtypes(f32, bf16, f16),
    in_place,
    no_grad = "softmax, which is run by it, has the gradient"
)]
pub mod softmax {
    fn softmax(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected rows");
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        along(input, -1, softmax_row)
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        if input.is_empty() {
            return Ok(());
        }
        let columns = input.shape()[input.rank() - 1];
        let rows = input.len() / columns;
        let size = input.dtype().size();
        plan.source(streamed("softmax.cu", include_str!("softmax.cu")));
        plan.define("ELEMENT", type_of(input.dtype()));
        let pack = pack_anywhere(columns, size);
        if let Some(kept) = Rows::kept(columns, pack, THREADS, MOST_THREADS) {
            kept.define(plan);
            plan.define("ALIGNED", u8::from(are_aligned(pack, &[input, out])));
            return plan.launch("softmax_kept", kept.launch(rows), binds![input, out, rows]);
        }
        // Rows need not start at packs.
        let pack = pack_anywhere(0, size);
        plan.define("COLUMNS", columns);
        plan.define("PACK", pack);
        plan.define("ALIGNED", u8::from(are_aligned(pack, &[input, out])));
        let large = plan.properties().shared_bytes_per_multiprocessor >= SHARED_BYTES;
        // As measured on an H200: where a pack has more to compute, many packs are better spread over many threads.
        let most = if size == 2 { 8 } else { MOST_STEPS };
        if let Some(kept) = Shared::new(columns / pack, 1, most).filter(|_| large) {
            kept.define(plan);
            let shape = kept.launch(plan.properties(), rows, 1);
            return plan.launch("softmax_shared", shape, binds![input, out, rows]);
        }
        plan.define("THREADS", STREAMING_THREADS);
        let shape = LaunchShape::linear(rows as u32, STREAMING_THREADS as u32);
        plan.launch("softmax_streamed", shape, binds![input, out, rows])
    }

    fn samples(s: &mut Samples) {
        for shape in [&[4, 8][..], &[7], &[3, 5, 64], &[0, 3], &[3, 0], &[2, 1], &[9, 515], &[2, 1024], &[3, 4100]] {
            s.case(with(s.normal(shape)));
        }
        // Longer than registers, rows that start anywhere; more rows than blocks; longer than shared memory.
        s.case(with(s.normal([3, 20001])));
        s.case(with(s.normal([280, 16390])));
        s.case(with(s.normal([2, 120_003])));
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3])));
        let masked = [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 2.0];
        s.case(with(s.values([2, 4], masked)));
        s.case(with(s.values([2], [f64::NEG_INFINITY])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.of(DType::F32, [])), "expected rows");
    }
}

/// The gradient of softmax along the last dimension, from its result p: `p (d_out - Σ p · d_out)`.
#[operator(
    executor = llmc,
    dtypes(f32, bf16, f16),
    in_place,
    no_grad = "a gradient is not differentiated again"
)]
pub mod softmax_backward {
    fn softmax_backward(probabilities: Tensor<Floating>, d_out: Tensor<Floating>) -> Tensor;

    fn meta(probabilities: &TensorMeta, d_out: &TensorMeta) -> Result<TensorMeta> {
        require!(probabilities.rank() > 0, ProbabilitiesRank, "probabilities is zero-dimensional, expected rows");
        checks::is_like(("d_out", d_out), probabilities, Code::Cotangent)?;
        Ok(probabilities.clone())
    }

    fn reference(probabilities: &ArrayD<f64>, d_out: &ArrayD<f64>) -> ArrayD<f64> {
        let axis = ndarray::Axis(probabilities.ndim() - 1);
        let total = (probabilities * d_out).sum_axis(axis).insert_axis(axis);
        probabilities * &(d_out - &total)
    }

    fn plan(plan: &mut Plan, probabilities: &DeviceTensor, d_out: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        if probabilities.is_empty() {
            return Ok(());
        }
        let columns = probabilities.shape()[probabilities.rank() - 1];
        let (rows, size) = (probabilities.len() / columns, probabilities.dtype().size());
        plan.source(streamed("softmax.cu", include_str!("softmax.cu")));
        plan.define("ELEMENT", type_of(probabilities.dtype()));
        // Rows need not start at packs.
        let pack = pack_anywhere(0, size);
        plan.define("COLUMNS", columns);
        plan.define("PACK", pack);
        plan.define("ALIGNED", u8::from(are_aligned(pack, &[probabilities, d_out, out])));
        let large = plan.properties().shared_bytes_per_multiprocessor >= SHARED_BYTES;
        if let Some(kept) = Shared::new((columns / pack).div_ceil(2), 2, MOST_STEPS).filter(|_| large) {
            kept.define(plan);
            plan.define("PAIRED", 1);
            let shape = kept.launch(plan.properties(), rows, 2).cluster([2, 1, 1]);
            return plan.launch("softmax_backward_shared", shape, binds![probabilities, d_out, out, rows]);
        }
        if rows > i32::MAX as usize {
            return Err(Failure::new("TooManyRows", format!("{rows} rows do not fit a launch")));
        }
        plan.define("THREADS", STREAMING_THREADS);
        let shape = LaunchShape::linear(rows as u32, STREAMING_THREADS as u32);
        plan.launch("softmax_backward_streamed", shape, binds![probabilities, d_out, out, rows])
    }

    fn samples(s: &mut Samples) {
        // Short rows, rows that start anywhere, more rows than pairs of blocks, rows longer than shared memory.
        for shape in [&[4, 8][..], &[7], &[0, 3], &[3, 0], &[2, 1], &[3, 20001], &[280, 16390], &[2, 120_003]] {
            s.case(with(s.uniform(0.0, 1.0, shape), s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ProbabilitiesRank, with(e.of(DType::F32, []), e.of(DType::F32, [])), "expected rows");
        e.case(Cotangent, with(e.of(DType::F32, [3]), e.of(DType::F32, [4])), "expected f32[3]");
    }
}

/// Whether the kernels are written for a call of the library's `softmax`.
///
/// # Errors
/// The reason why they are not.
pub fn softmax_fits(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Claim {
    takes(input)?;
    refuse_unless!(input.rank() > 0, "input is zero-dimensional, takes rows");
    let last = dim == -1 || dim == input.rank() as i64 - 1;
    refuse_unless!(last, "dim is {dim}, takes the last one of {:?}", input.shape());
    let same = dtype.is_none_or(|dtype| dtype == input.dtype());
    refuse_unless!(same, "dtype is another than that of input, {}", input.dtype());
    Ok(())
}

/// The gradient of softmax along the last dimension, from its result `out`. Rows that stay in registers are left to a
/// region, which may have more to compute in the same pass.
#[track_caller]
pub fn gradient_of_rows(out: Tensor, d_out: Tensor, dim: i64) -> Tensor {
    let long = out.size(-1) > Rows::longest(MOST_THREADS);
    if long { softmax_backward(out, d_out) } else { softmax_gradient(out, d_out, dim) }
}

#[implementation(of = fulgurite_ops::nn::softmax, by = llmc)]
mod softmax_by_llmc {
    fn checker(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Claim {
        softmax_fits(input, dim, dtype)
    }

    fn execution(input: Tensor, _dim: i64, _dtype: Option<DType>) -> Tensor {
        super::softmax(input)
    }

    fn grad(input: Tensor, dim: i64, _dtype: Option<DType>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = super::softmax(input);
        (out, move |d_out: Tensor| Grads { input: gradient_of_rows(out, d_out, dim) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_the_shared_memory() {
        for (pack, size) in [(4, 4), (8, 2)] {
            for (columns, operands) in (1..70_000_usize).step_by(37).flat_map(|columns| [(columns, 1), (columns, 2)]) {
                let packs = (columns / pack).div_ceil(operands);
                let Some(kept) = Shared::new(packs, operands, MOST_STEPS) else {
                    assert!(columns * size > 190 << 10, "{columns}");
                    continue;
                };
                assert!(kept.steps * kept.threads >= packs && kept.steps <= MOST_STEPS, "{kept:?}");
                assert!(kept.blocks * (kept.bytes() + OWN_BYTES) <= SHARED_BYTES, "{kept:?}");
            }
        }
        let kept = |threads, steps, blocks, operands| Some(Shared { threads, steps, blocks, operands });
        assert_eq!(Shared::new(50_257 / 4, 1, 16), kept(1024, 13, 1, 1));
        assert_eq!(Shared::new(50_257 / 8, 1, 8), kept(1024, 7, 2, 1));
        assert_eq!(Shared::new((50_257_usize / 8).div_ceil(2), 2, 16), kept(512, 7, 2, 2));
    }
}
