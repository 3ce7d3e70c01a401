//! Weights for measurements.

use std::collections::HashMap;

use fulgurite_models::config::{Initial, Parameter};
use fulgurite_models::quantized::Quantization;
use fulgurite_models::{Model, Parameters};
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device, Result, Tensor, jit};

/// Parameters of a model: uniform numbers of the deviation that each starts with, drawn where they are. (Those that
/// training starts with are drawn on the host, which takes seconds for a billion of them.)
pub fn drawn(config: &dyn Model, dtype: DType, device: Device) -> Result<Parameters<Array>> {
    let mut draw = drawer(dtype, device);
    Parameters::build(&config.parameters(), &mut |parameter| draw(parameter))
}

/// As [`drawn`], of which those of layers are rounded to integers, one after the other.
pub fn drawn_quantized(
    config: &dyn Model,
    quantization: Quantization,
    dtype: DType,
    device: Device,
) -> Result<Parameters<Array>> {
    let mut draw = drawer(dtype, device);
    quantization.build(config, dtype, &mut |parameter, _| draw(parameter))
}

/// Draws one parameter after the other.
fn drawer(dtype: DType, device: Device) -> impl FnMut(&Parameter) -> Result<Array> {
    let (mut programs, mut drawn) = (HashMap::new(), 0i64);
    move |parameter: &Parameter| {
        let (low, high) = match parameter.initial {
            Initial::Normal(deviation) => (-deviation * 3.0_f64.sqrt(), deviation * 3.0_f64.sqrt()),
            Initial::Ones => (1.0, 1.0),
            Initial::Zeros => (0.0, 0.0),
        };
        let shape = parameter.shape.clone();
        let program = programs.entry((shape.clone(), high.to_bits())).or_insert_with(|| {
            let device = (!device.is_cpu()).then_some(device);
            let options = Options { device, ..Options::default() };
            jit(move |generator: Tensor| prims::uniform(shape.clone(), low, high, dtype, generator)).options(options)
        });
        drawn += 1;
        program.call(Array::new([2], &[42, drawn])?.to_device(device)?)
    }
}
