//! Weights of 8 and 4 bits: which parameters of a model have them, and how they are made of others.
//!
//! A parameter `h.0.attn.qkv.weight` that is quantized is the integers of
//! [`mod@fulgurite_ops::nn::dequantize_weight`]; beside it are `h.0.attn.qkv.scales`, and `h.0.attn.qkv.offsets` if
//! there are any.

use std::fmt;
use std::str::FromStr;

use fulgurite_ops::nn::quantize_weight;
use fulgurite_runtime::{Array, DType, Device, Error, Result, Tensor, TensorMeta, jit};

use crate::argument_error::wrong;
use crate::config::{Initial, Parameter};
use crate::layer_weight::{HEAD, beside};
use crate::model::Model;
use crate::parameter_list::Parameters;

/// Neighbours of a group where none are given.
const GROUP: usize = 64;

/// Integers that weights are rounded to: of how many bits, and how many neighbours share a scale. As text `int8` or
/// `int4`, `int4:128` with the size of groups, which is 64 otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Integers {
    /// 8 or 4.
    pub bits: usize,
    /// Inputs of a group.
    pub group_size: usize,
}

impl fmt::Display for Integers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "int{}:{}", self.bits, self.group_size)
    }
}

impl FromStr for Integers {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let bits = match name {
            "int8" => 8,
            "int4" => 4,
            _ => return Err(format!("is '{text}', expected int8 or int4, or with the size of groups int4:128")),
        };
        let group_size = group.map_or(Ok(GROUP), str::parse).unwrap_or(0);
        // A thread of the kernels reads 32 numbers of 4 bits at once.
        match group_size > 0 && group_size.is_multiple_of(32) {
            true => Ok(Integers { bits, group_size }),
            false => Err(format!("is '{text}', expected a multiple of 32 as the size of groups")),
        }
    }
}

/// Which weights of a model are rounded to integers, and to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quantization {
    /// Weights of the products of blocks.
    pub blocks: Integers,
    /// The layer that makes logits, which is no integers if absent. A model that has one matrix for it and for the
    /// embeddings keeps these as they are, and has the integers besides.
    pub head: Option<Integers>,
}

/// What is stored in the place of a parameter, or beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// As it is.
    Whole,
    Codes(Integers),
    Scales(Integers),
}

impl Quantization {
    /// The integers of a parameter of `model`, if it is quantized.
    fn of(&self, model: &dyn Model, parameter: &Parameter) -> Option<Integers> {
        match parameter.name == HEAD {
            true => self.head,
            false => model.may_be_quantized(&parameter.name).then_some(self.blocks),
        }
    }

    /// What is stored, in order, each with the parameter of the model that it is of.
    ///
    /// # Errors
    /// A model without such weights, with experts, and one whose inputs are no multiple of the groups.
    fn parts(&self, model: &dyn Model) -> Result<Vec<(Parameter, Parameter, Part)>> {
        let list = model.parameters();
        if let Some(expert) = list.iter().find(|parameter| parameter.name.contains(".mlp.experts.")) {
            return Err(wrong("weights", format!("are {self}, '{}' is read by no quantized layer", expert.name)));
        }
        if !list.iter().any(|parameter| model.may_be_quantized(&parameter.name)) {
            return Err(wrong("weights", format!("are {self}, which only decoders such as Llama read")));
        }
        let tied = self.head.filter(|_| !list.iter().any(|parameter| parameter.name == HEAD));
        let embedding = list.first().filter(|_| tied.is_some()).cloned();
        let mut parts = Vec::new();
        let rounded = list.into_iter().map(|own| (own.name.clone(), self.of(model, &own), own));
        let head = embedding.map(|embedding| (HEAD.to_owned(), tied, embedding));
        for (name, integers, own) in rounded.chain(head) {
            let Some(integers) = integers else {
                parts.push((own.clone(), own, Part::Whole));
                continue;
            };
            let Integers { bits, group_size } = integers;
            let [outputs, inputs] = own.shape[..] else {
                return Err(wrong("weights", format!("are {self}, '{name}' is no matrix")));
            };
            if !inputs.is_multiple_of(group_size) {
                let message =
                    format!("are {integers}, '{name}' has {inputs} inputs, expected a multiple of {group_size}");
                return Err(wrong("weights", message));
            }
            let part = |name: String, shape: [usize; 2]| {
                let (shape, initial) = (shape.to_vec(), Initial::Zeros);
                Parameter { name, shape, decays: false, is_linear: false, initial }
            };
            let scales = part(beside(&name, "scales"), [outputs, inputs / group_size]);
            let codes = part(name, [outputs, inputs * bits / 8]);
            parts.push((codes, own.clone(), Part::Codes(integers)));
            parts.push((scales, own, Part::Scales(integers)));
        }
        Ok(parts)
    }

    /// What is in the place of the parameters of `model`, of which those that are not quantized, and scales, are of
    /// `dtype`.
    ///
    /// # Errors
    /// As [`Quantization::build`].
    pub fn metas(&self, model: &dyn Model, dtype: DType) -> Result<Parameters<TensorMeta>> {
        let parts = self.parts(model)?;
        let mut each = parts.iter().map(|(own, _, part)| {
            let dtype = match part {
                Part::Codes(integers) if integers.bits == 8 => DType::I8,
                Part::Codes(_) => DType::U8,
                Part::Whole | Part::Scales(_) => dtype,
            };
            TensorMeta::new(&own.shape, dtype, Device::CPU)
        });
        listed(&parts, &mut each)
    }

    /// Parameters of `model`, of which weights are quantized one after the other, where `make` makes them: so one alone
    /// is there as it was. `make` gets a parameter, and `None` if any floating-point type will do, or the type that the
    /// result is to have. Scales are of `dtype`.
    ///
    /// # Errors
    /// A model without such weights, or with experts; inputs that are no multiple of the groups; those of `make`.
    pub fn build(
        &self,
        model: &dyn Model,
        dtype: DType,
        make: &mut dyn FnMut(&Parameter, Option<DType>) -> Result<Array>,
    ) -> Result<Parameters<Array>> {
        let parts = self.parts(model)?;
        let mut made = Vec::new();
        for (_, own, part) in &parts {
            match part {
                Part::Whole => made.push(make(own, Some(dtype))?),
                Part::Codes(integers) => made.extend(integers.round(make(own, None)?, dtype)?),
                // It came with the integers.
                Part::Scales(_) => {}
            }
        }
        listed(&parts, &mut made.into_iter())
    }
}

impl Integers {
    /// The integers of a weight [out, in] and their scales, where it is.
    pub(crate) fn round(self, weight: Array, scale_dtype: DType) -> Result<[Array; 2]> {
        let program = jit(move |(weight,): (Tensor,)| quantize_weight(weight, self.group_size, self.bits, scale_dtype));
        let (codes, scales) = program.named("quantize").arguments(["weight"]).call((weight,))?;
        Ok([codes, scales])
    }
}

fn listed<T>(parts: &[(Parameter, Parameter, Part)], each: &mut dyn Iterator<Item = T>) -> Result<Parameters<T>> {
    let list: Vec<Parameter> = parts.iter().map(|(own, ..)| own.clone()).collect();
    Parameters::build(&list, &mut |own| {
        each.next().ok_or_else(|| Error::Argument { argument: own.name.clone(), message: "was not made".into() })
    })
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_they_are_written() {
        for (text, bits, group_size) in [("int8", 8, 64), ("int4", 4, 64), ("int4:128", 4, 128), ("int8:32", 8, 32)] {
            let read: Integers = text.parse().unwrap();
            assert_eq!(read, Integers { bits, group_size });
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["int3", "", "int4:", "int4:0", "int4:48", "int4:-32", "int8:64:64", "q4_0"] {
            let message = text.parse::<Integers>().unwrap_err();
            assert!(message.starts_with(&format!("is '{text}', expected")), "{message}");
        }
    }
}
