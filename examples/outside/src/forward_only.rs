//! A kernel for a GPU whose parameters are tuned.

use fulgurite::prelude::*;

use crate::squareplus;

/// `squareplus` for an NVIDIA GPU without its slope, which only a gradient reads. It must be named.
#[executor(device = "cuda")]
pub mod forward_only {}

#[implementation(of = squareplus, by = forward_only)]
mod squareplus_by_forward_only {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(
            matches!(input.dtype(), DType::F32 | DType::F64),
            "the kernel is written for f32 and f64, input is {}",
            input.dtype()
        );
        Ok(())
    }

    // Threads of a block, and elements of a thread.
    #[tune(THREADS in [256, 128, 512])]
    #[tune(EACH in [1, 4])]
    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        b: f64,
        out: &DeviceTensor,
        THREADS: usize,
        EACH: usize,
    ) -> Result<()> {
        let count = input.len();
        if count == 0 {
            return Ok(());
        }
        let (element, b) = match input.dtype() {
            DType::F32 => ("float", Parameter::from(b as f32)),
            _ => ("double", Parameter::from(b)),
        };
        plan.source(source_files!["forward_only.cu"]);
        plan.define("ELEMENT", element);
        plan.define("THREADS", THREADS);
        plan.define("EACH", EACH);
        let shape = LaunchShape::linear(count.div_ceil(THREADS * EACH) as u32, THREADS as u32);
        plan.launch("squareplus", shape, binds![input, b, out, count])
    }
}
