//! The parameters of a model as arrays: drawn at random, read from tensors, zero.

use std::collections::BTreeMap;
use std::convert::Infallible;

use fulgurite_ops::core::promotion::cast;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Result, Tensor, jit};

use crate::argument_error::wrong;
use crate::config::Parameter;
use crate::host_tensor::HostTensor;
use crate::initialize::initialize;
use crate::model::Model;
use crate::parameter_list::Parameters;

/// Parameters of `model`, drawn from `seed`.
pub fn initial_parameters(model: &dyn Model, seed: u64) -> Result<Parameters<Array>> {
    initial(&model.parameters(), seed)
}

/// Tensors by the rules of this list, drawn from `seed`.
pub fn initial(list: &[Parameter], seed: u64) -> Result<Parameters<Array>> {
    let make = &mut |rule: &Parameter| Array::written(&rule.shape, |values| initialize(rule, seed, values));
    Parameters::build(list, make)
}

/// Parameters from tensors by name, all of this element type.
pub fn parameters_from(
    model: &dyn Model,
    tensors: &BTreeMap<String, HostTensor>,
    prefix: &str,
    dtype: DType,
) -> Result<Parameters<Array>> {
    listed_from(&model.parameters(), tensors, prefix, dtype)
}

/// Those of this list from tensors by name, all of this element type.
pub fn listed_from(
    list: &[Parameter],
    tensors: &BTreeMap<String, HostTensor>,
    prefix: &str,
    dtype: DType,
) -> Result<Parameters<Array>> {
    Parameters::build(list, &mut |Parameter { name, shape, .. }| {
        let name = format!("{prefix}{name}");
        let tensor = tensors.get(&name).ok_or_else(|| wrong(&name, "is missing in the checkpoint"))?;
        if tensor.shape() != *shape || tensor.dtype() != dtype {
            let (held, extents) = (tensor.dtype(), tensor.shape());
            return Err(wrong(&name, format!("is {held}{extents:?} in the checkpoint, expected {dtype}{shape:?}")));
        }
        to_array(tensor)
    })
}

/// The parameters of which mixed precision keeps rounded copies: those of linear layers.
pub fn copied(model: &dyn Model) -> Vec<Parameter> {
    model.parameters().into_iter().filter(|parameter| parameter.is_linear).collect()
}

/// Copies in `rounded` of the parameters of linear layers, on the device of the parameters; none without such a type.
pub fn rounded_copies(
    model: &dyn Model,
    params: &Parameters<Array>,
    rounded: Option<DType>,
) -> Result<Parameters<Array>> {
    let Some(rounded) = rounded else { return Ok(Parameters::none()) };
    let list = copied(model);
    let function = |(params,): (Parameters<Tensor>,)| {
        let built: std::result::Result<_, Infallible> =
            Parameters::build(&list, &mut |own| Ok(cast(params.tensor(&own.name), rounded)));
        let Ok(copies) = built;
        copies
    };
    jit(function).named("rounded_copies").arguments(["params"]).results(["copies"]).call((params.clone(),))
}

/// Zeros of the parameters' shapes on `device`: moments, and sums of gradients, at their start.
pub fn zeros(model: &dyn Model, dtype: DType, device: Device) -> Result<Parameters<Array>> {
    Parameters::build(&model.parameters(), &mut |parameter| Array::zeros_on(device, &parameter.shape, dtype))
}

/// Parameters of f32 in an element type, f32 or bf16, on a device.
pub fn placed(params: Parameters<Array>, dtype: DType, device: Device) -> Result<Parameters<Array>> {
    let mut failed = None;
    let one = |array: &Array| match dtype == array.dtype() {
        true => array.to_device(device),
        false => {
            let tensor = to_host(array)?.converted(dtype)?;
            let tensor = tensor.ok_or_else(|| wrong("dtype", format!("is {dtype}, expected f32 or bf16")))?;
            tensor.to_array()?.to_device(device)
        }
    };
    let placed = params.map(&mut |array: Array| {
        one(&array).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            array
        })
    });
    failed.map_or(Ok(placed), Err)
}

fn to_array(tensor: &HostTensor) -> Result<Array> {
    Array::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes())
}

/// A tensor in plain memory, from whatever device the array is on.
pub(crate) fn to_host(array: &Array) -> Result<HostTensor> {
    HostTensor::new(array.dtype(), array.shape(), array.to_bytes()?).map_err(|error| wrong("tensor", error))
}
