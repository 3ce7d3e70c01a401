//! Sparsemax without sorting.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::refuse_unless;
use fulgurite_runtime::rules::{LaunchShape, Plan};

use super::{liger, takes};
use fulgurite_executor_cuda::rows::{Rows, streamed};
use fulgurite_executor_cuda::support::{are_aligned, pack_anywhere, type_of};
use fulgurite_ops::nn::{plain_sparsemax, sparsemax_gradient};

/// Threads of a block where it has several rows.
const THREADS: usize = 128;
/// Threads of a block where it has one.
const MOST_THREADS: usize = 1024;
/// Threads of a block that streams a row.
const STREAMING_THREADS: usize = 512;
/// The most elements of a row: numbers of them are counted in f32.
const LONGEST: usize = 1 << 24;

/// `max(x - tau, 0)` along the last dimension, with the tau for which a row sums to one. A row that registers hold is
/// read once.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    in_place,
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod sparsemax {
    fn sparsemax(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected rows");
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        fulgurite_ops::core::arrays::along(input, -1, plain_sparsemax)
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        if input.is_empty() {
            return Ok(());
        }
        let columns = input.shape()[input.rank() - 1];
        let (rows, size) = (input.len() / columns, input.dtype().size());
        plan.source(streamed("sparsemax.cu", include_str!("sparsemax.cu")));
        plan.define("ELEMENT", type_of(input.dtype()));
        let pack = pack_anywhere(columns, size);
        if let Some(kept) = Rows::kept(columns, pack, THREADS, MOST_THREADS) {
            kept.define(plan);
            plan.define("ALIGNED", u8::from(are_aligned(pack, &[input, out])));
            return plan.launch("sparsemax_kept", kept.launch(rows), binds![input, out, rows]);
        }
        // Rows need not start at packs.
        let pack = pack_anywhere(0, size);
        plan.define("COLUMNS", columns);
        plan.define("PACK", pack);
        plan.define("ALIGNED", u8::from(are_aligned(pack, &[input, out])));
        plan.define("THREADS", STREAMING_THREADS);
        let shape = LaunchShape::linear(rows as u32, STREAMING_THREADS as u32);
        plan.launch("sparsemax_streamed", shape, binds![input, out, rows])
    }

    fn samples(s: &mut Samples) {
        for shape in [&[4, 8][..], &[7], &[3, 5, 64], &[0, 3], &[3, 0], &[2, 1], &[9, 515], &[2, 1024], &[3, 4100]] {
            s.case(with(s.normal(shape)));
        }
        // All elements in the support, or many; rows longer than registers.
        s.case(with(s.uniform(0.0, 1e-3, [3, 300])));
        s.case(with(s.uniform(0.0, 0.1, [5, 2051])));
        s.case(with(s.normal([3, 20001])));
        s.case(with(s.values([4], [30.0, -30.0, 1e4, 9.9e3])));
        s.case(with(s.values([2, 4], [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 0.25])));
        s.case(with(s.values([2, 3], [f64::NAN, 0.5, 1.0, 0.5, 0.25, 0.0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.of(DType::F32, [])), "expected rows");
    }
}

#[implementation(of = fulgurite_ops::nn::sparsemax, by = liger)]
mod sparsemax_by_liger {
    fn checker(input: &TensorMeta, dim: i64) -> Claim {
        takes("input", input)?;
        refuse_unless!(input.rank() > 0, "input is zero-dimensional, takes rows");
        let last = dim == -1 || dim == input.rank() as i64 - 1;
        refuse_unless!(last, "dim is {dim}, takes the last one of {:?}", input.shape());
        let (columns, rows) = (input.shape()[input.rank() - 1], input.shape()[..input.rank() - 1].iter());
        refuse_unless!(columns <= LONGEST, "takes rows of at most {LONGEST} elements, not {columns}");
        let rows: usize = rows.product();
        refuse_unless!(rows <= i32::MAX as usize, "takes at most 2^31 - 1 rows, not {rows}");
        Ok(())
    }

    fn execution(input: Tensor, _dim: i64) -> Tensor {
        super::sparsemax(input)
    }

    fn grad(input: Tensor, dim: i64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = super::sparsemax(input);
        (out, move |d_out: Tensor| Grads { input: sparsemax_gradient(out, d_out, dim) })
    }
}
