//! A program that cannot be loaded: the device may be at work on its memory when that is found.

use fulgurite::compile::Options;
use fulgurite::device::DeviceState;
use fulgurite::prelude::*;
use fulgurite::{DType, Device};
use fulgurite_example_sim::library::{LONGEST, Product};

/// Comes before the executor of the crate.
#[executor(device = "sim", priority = 5)]
pub mod wishful {}

/// Asks for sums that the library does not have, with nothing to be done instead.
#[implementation(of = fulgurite::ops::prims::erf, by = wishful)]
mod erf_by_wishful {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {}", input.dtype());
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let product =
            super::Product { batch: 1, m: 1, n: 1, k: super::LONGEST + 1, dtype: input.dtype(), out: out.dtype() };
        plan.library(product, [Some(input.address), Some(input.address), Some(out.address)]);
        Ok(())
    }
}

/// Without the wait for what is enqueued, memory is freed that the device still writes to, and the device is lost.
#[test]
fn memory_of_a_program_that_is_not_loaded_is_freed_behind_the_devices_work() {
    let device = Device::new("sim", 0);
    let state = DeviceState::of(device).unwrap();
    let options = Options { device: Some(device), ..Options::default() };
    for extent in 1..20 {
        let x = Array::zeros([extent], DType::F32).unwrap();
        let error = jit(|x: Tensor| fulgurite::ops::prims::erf(exp(x))).options(options.clone()).call(x).unwrap_err();
        assert!(error.to_string().contains("the device's library cannot do Product"), "{error}");
        state.synchronize().unwrap();
    }
    let out = jit(|x: Tensor| exp(x)).options(options).call(Array::zeros([2], DType::F32).unwrap()).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [1.0, 1.0]);
}
