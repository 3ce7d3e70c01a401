//! Tensors made from nothing: the host's numbers, bit by bit.

use fulgurite_ops_macros::implementation;

use super::cuda;
use super::support::{one_thread_each, type_of};

#[implementation(of = crate::prims::iota, by = cuda)]
mod iota_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, start: Scalar, step: Scalar, out: &DeviceTensor) -> Result<()> {
        let count: usize = out.shape().iter().product();
        if count == 0 {
            return Ok(());
        }
        plan.source("iota.cu", include_str!("iota.cu"));
        plan.define("OUT", super::type_of(out.meta.dtype()));
        let shape = super::one_thread_each(count);
        let fraction = matches!(start, Scalar::Float(_)) || matches!(step, Scalar::Float(_));
        if fraction || !out.meta.dtype().is_integer() {
            plan.launch("iota", shape, binds![out, count, start.to_f64(), step.to_f64()])
        } else {
            plan.launch("iota_exact", shape, binds![out, count, start.to_i64(), step.to_i64()])
        }
    }
}

#[implementation(of = crate::prims::uniform, by = cuda)]
mod uniform_by_cuda {
    use fulgurite::rules::fulgurite_kernels::philox::largest_below;

    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, low: f64, high: f64, generator: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count: usize = out.shape().iter().product();
        if count == 0 {
            return Ok(());
        }
        let dtype = out.meta.dtype();
        let below = largest_below(dtype, low, high);
        plan.source("uniform.cu", include_str!("uniform.cu"));
        plan.define("OUT", super::type_of(dtype));
        if dtype == DType::F64 {
            plan.define("NUMBER", "double");
            let shape = super::one_thread_each(count.div_ceil(2));
            return plan.launch("uniform", shape, binds![generator, out, count, low, high - low, below]);
        }
        plan.define("NUMBER", "float");
        let shape = super::one_thread_each(count.div_ceil(4));
        plan.launch("uniform", shape, binds![generator, out, count, low as f32, (high - low) as f32, below as f32])
    }
}
