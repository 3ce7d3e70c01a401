//! A gradient that was computed for a cotangent of one, times the cotangent.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Plan, Result};
use fulgurite_runtime::{DType, binds, source_files};

use super::liger;
use fulgurite_executor_cuda::support::{THREADS, pack_of, type_of};

/// Blocks that a multiprocessor has at a time.
const RESIDENT: usize = 8;

/// `input · factor`, where `factor` is f32[]. In the place of `input` a factor of one, which a loss has that nothing is
/// done with, costs a launch.
#[operator(executor = liger, dtypes(f32, bf16, f16), in_place(input), no_grad = "the implementation that uses it has \
    a gradient of its own")]
pub mod scaled {
    fn scaled(input: Tensor<Floating>, factor: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, factor: &TensorMeta) -> Result<TensorMeta> {
        let number = factor.rank() == 0 && factor.dtype() == DType::F32;
        require!(number, Factor, "factor is {factor}, expected f32[]");
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>, factor: &ArrayD<f64>) -> ArrayD<f64> {
        input * factor.sum()
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, factor: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let (dtype, count) = (input.dtype(), input.len());
        if count == 0 {
            return Ok(());
        }
        // Elements are counted through: only the tensors' own alignment matters.
        let pack = pack_of(0, dtype.size(), &[input, out]);
        let in_place = plan.lies_over(out, input);
        plan.source(source_files!["scaled.cu"]);
        plan.define("ELEMENT", type_of(dtype));
        plan.define("THREADS", THREADS);
        plan.define("PACK", pack);
        plan.define("ALIGNED", 1);
        plan.define("IN_PLACE", u8::from(in_place));
        let most = plan.properties().multiprocessors * super::RESIDENT;
        let blocks = count.div_ceil(pack * THREADS as usize).min(most);
        plan.launch("scaled", LaunchShape::linear(blocks as u32, THREADS), binds![input, factor, out, count])
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[0], &[7], &[3, 2051], &[700, 1031]] {
            s.case(with(s.normal(shape), s.values([], [-1.5]).cast(DType::F32)));
        }
        s.case(with(s.normal([3, 50]), s.values([], [1.0]).cast(DType::F32)));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Factor, with(e.of(DType::F32, [3]), e.of(DType::F32, [3])), "expected f32[]");
        e.case(Factor, with(e.of(DType::F32, [3]), e.of(DType::BF16, [])), "factor is bf16[]");
    }
}
