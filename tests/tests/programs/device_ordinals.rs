//! Devices other than the first: every value of a program is where its arguments are, and a device that is not there is
//! an error that names it. One GPU, or none, is enough.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

/// Makes values of its own: numbers, positions, masks, random ones.
fn makes_values(x: Tensor, generator: Tensor) -> Tensor {
    let scores = softmax(tril(matmul(x, x) * 2.0), -1);
    let dropped = dropout::with(scores).generator(generator).call();
    sum(dropped + fulgurite_runtime::tracer::zeros_like(x) + 1.0)
}

#[test]
fn every_value_of_a_program_is_on_the_device_of_its_arguments() {
    let second = Device::new("cuda", 1);
    let metas = (TensorMeta::new([8, 8], DType::F32, second), TensorMeta::new([2], DType::I64, second));
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let (trace, _) =
        trace("f", target, &Names::default(), metas, |(x, generator): (Tensor, Tensor)| makes_values(x, generator))
            .unwrap();
    let (program, _) = compile(trace, &Options::default()).unwrap();
    let trace = program.trace();
    for value in &trace.block.values {
        assert_eq!(value.meta.device(), second, "'{}' in\n{trace}", value.name);
    }
    // The short text leaves the first device out.
    let text = print(trace, PrintOptions::FULL);
    assert!(text.contains("cuda:1") && !text.contains("cuda:0"), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_it() {
    let absent = Device::new("cuda", 97);
    let found = DeviceState::of(absent).unwrap_err().to_string();
    if DeviceState::of(Device::new("cuda", 0)).is_ok() {
        assert!(found.contains("97"), "{found}");
        let array = Array::new([2], &[1.0_f32, 2.0]).unwrap();
        let moved = array.to_device(absent).unwrap_err().to_string();
        assert!(moved.contains("97"), "{moved}");
        let options = Options { device: Some(absent), ..Options::default() };
        let called = fulgurite_runtime::jit(|x: Tensor| x + 1.0).options(options).call(array).unwrap_err().to_string();
        assert!(called.contains("97"), "{called}");
    }
}
