//! The parameters of a model as arrays: drawn at random, read from tensors, zero.

use std::collections::BTreeMap;

use fulgurite_runtime::{Array, DType, Device, Result};

use crate::argument_error::wrong;
use crate::config::GptConfig;
use crate::gpt2::Gpt2;
use crate::host_tensor::HostTensor;
use crate::initialize::initialize;

/// Parameters of `config`, drawn from `seed`.
pub fn initial_parameters(config: &GptConfig, seed: u64) -> Result<Gpt2<Array>> {
    let rules = config.parameters();
    let mut rules = rules.iter();
    Gpt2::build(config, &mut |name, shape| {
        let rule = rules.next().filter(|rule| rule.name == name && rule.shape == shape);
        let rule = rule.ok_or_else(|| wrong(name, "is not the configuration's next parameter"))?;
        Array::written(shape, |values| initialize(rule, seed, values))
    })
}

/// Parameters from tensors by name.
pub fn parameters_from(
    config: &GptConfig,
    tensors: &BTreeMap<String, HostTensor>,
    prefix: &str,
) -> Result<Gpt2<Array>> {
    Gpt2::build(config, &mut |name, shape| {
        let name = format!("{prefix}{name}");
        let tensor = tensors.get(&name).ok_or_else(|| wrong(&name, "is missing in the checkpoint"))?;
        if tensor.shape() != shape || tensor.dtype() != DType::F32 {
            let found = format!("is {}{:?} in the checkpoint, expected f32{shape:?}", tensor.dtype(), tensor.shape());
            return Err(wrong(&name, found));
        }
        to_array(tensor)
    })
}

/// Zeros of the parameters' shapes, in f32, on `device`: moments, and sums of gradients, at their start.
pub fn zeros(config: &GptConfig, device: Device) -> Result<Gpt2<Array>> {
    Gpt2::build(config, &mut |_, shape| Array::zeros_on(device, shape, DType::F32))
}

fn to_array(tensor: &HostTensor) -> Result<Array> {
    Array::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes())
}

/// A tensor in plain memory, from whatever device the array is on.
pub(crate) fn to_host(array: &Array) -> Result<HostTensor> {
    HostTensor::new(array.dtype(), array.shape(), array.to_bytes()?).map_err(|error| wrong("tensor", error))
}
