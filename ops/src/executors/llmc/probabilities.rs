//! Softmax.

use fulgurite_ops_macros::{implementation, operator};

use super::rows::Rows;
use super::{has_kernels_for, llmc, pack_of, source, takes};
use crate::core::arrays::{along, softmax_row};
use crate::executors::cuda::support::{WIDEST, has_large_shared_memory};
use fulgurite::rules::LaunchShape;

/// Threads of a block where it has several rows.
const THREADS: usize = 128;
/// Threads of a block where it has one.
const MOST_THREADS: usize = 1024;
/// Threads of a block that streams a row.
const STREAMING_THREADS: usize = 512;

/// Multiprocessors of the devices whose shared memory rows are kept in: blocks go from row to row, and there are no more than run at
/// a time.
const MULTIPROCESSORS: usize = 132;
/// Bytes of shared memory that the blocks of one of them have, and what each takes for itself.
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
}

impl Shared {
    /// For rows of `columns` elements of `size` bytes, `pack` of which are read at once; `None` if they do not fit, or are not
    /// aligned.
    fn new(columns: usize, pack: usize, size: usize) -> Option<Shared> {
        if pack * size != WIDEST {
            return None;
        }
        let packs = columns / pack;
        let threads = [512, MOST_THREADS].into_iter().find(|threads| packs <= threads * MOST_STEPS)?;
        let kept = Shared { threads, steps: packs.div_ceil(threads), blocks: 1 };
        let blocks = (SHARED_BYTES / (kept.bytes() + OWN_BYTES)).min(MOST_THREADS / threads);
        (blocks > 0).then_some(Shared { blocks, ..kept })
    }

    /// Dynamic shared memory of a block.
    fn bytes(self) -> usize {
        self.steps * self.threads * WIDEST
    }
}

/// `e^(x - max) / Σ e^(x - max)` along the last dimension.
#[operator(executor = llmc, in_place, no_grad = "softmax, which is run by it, has the gradient")]
pub mod softmax {
    fn softmax(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected rows");
        require!(has_kernels_for(input.dtype()), KernelDType, "input is {}, takes f32, bf16, f16", input.dtype());
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
        source!(plan, input.dtype(), ["vectors.cuh", "stream.cuh"], "softmax.cu");
        let pack = pack_of(columns, size, &[input, out]);
        if let Some(kept) = Rows::kept(columns, pack, THREADS, MOST_THREADS) {
            kept.define(plan);
            return plan.launch("softmax_kept", kept.launch(rows), binds![input, out, rows]);
        }
        // Rows need not start at packs.
        let pack = pack_of(0, size, &[input, out]);
        plan.define("COLUMNS", columns);
        plan.define("PACK", pack);
        if let Some(kept) = Shared::new(columns, pack, size).filter(|_| has_large_shared_memory(plan.architecture())) {
            plan.define("THREADS", kept.threads);
            plan.define("STEPS", kept.steps);
            plan.define("BLOCKS", kept.blocks);
            let blocks = rows.min(MULTIPROCESSORS * kept.blocks);
            let shape = LaunchShape::linear(blocks as u32, kept.threads as u32).shared(kept.bytes() as u32);
            return plan.launch("softmax_shared", shape, binds![input, out, rows]);
        }
        plan.define("THREADS", STREAMING_THREADS);
        let shape = LaunchShape::linear(rows as u32, STREAMING_THREADS as u32);
        plan.launch("softmax_streamed", shape, binds![input, out, rows])
    }

    fn samples(s: &mut Samples) {
        if !has_kernels_for(s.dtype()) {
            return;
        }
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
        e.case(KernelDType, with(e.of(DType::F64, [3])), "input is f64");
    }
}

#[implementation(of = crate::nn::softmax, by = llmc)]
mod softmax_by_llmc {
    fn checker(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Claim {
        takes(input)?;
        refuse_unless!(input.rank() > 0, "input is zero-dimensional, takes rows");
        let last = dim == -1 || dim == input.rank() as i64 - 1;
        refuse_unless!(last, "dim is {dim}, takes the last one of {:?}", input.shape());
        let same = dtype.is_none_or(|dtype| dtype == input.dtype());
        refuse_unless!(same, "dtype is another than that of input, {}", input.dtype());
        Ok(())
    }

    fn execution(input: Tensor, _dim: i64, _dtype: Option<DType>) -> Tensor {
        super::softmax(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_the_shared_memory() {
        for (pack, size) in [(4, 4), (8, 2)] {
            for columns in (1..70_000).step_by(37).chain([50_257, 50_304]) {
                let Some(kept) = Shared::new(columns, pack, size) else {
                    assert!(columns * size > 190 << 10, "{columns}");
                    continue;
                };
                assert!(kept.steps * kept.threads * pack >= columns / pack * pack, "{kept:?}");
                assert!(
                    kept.steps <= MOST_STEPS && kept.blocks * (kept.bytes() + OWN_BYTES) <= SHARED_BYTES,
                    "{kept:?}"
                );
            }
        }
        assert_eq!(Shared::new(50_257, 4, 4), Some(Shared { threads: 1024, steps: 13, blocks: 1 }));
        assert_eq!(Shared::new(50_257, 8, 2), Some(Shared { threads: 512, steps: 13, blocks: 2 }));
        assert_eq!(Shared::new(50_257, 1, 4), None);
    }
}
