//! The weights of a model without the rest of a training run.

use std::collections::BTreeMap;

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Device, Result as RuntimeResult};

use crate::argument_error::wrong;
use crate::config::{GptConfig, Parameter};
use crate::decoder::DecoderConfig;
use crate::host_tensor::HostTensor;
use crate::layer_weight::{HEAD, beside};
use crate::model::Model;
use crate::model_config::ModelConfig;
use crate::packed::{bits_of, numbers_of};
use crate::parameter_list::Parameters;
use crate::parameters::{parameters_from, to_host};
use crate::quantized::Quantization;
use crate::vision::ImageConfig;

/// A model's parameters on the host: exactly those of its configuration `C`, each in its shape, in f32 or, as files may
/// have them, in bf16 or f16, or as integers with scales beside them. Formats that hold one family say so by the type.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights<C = GptConfig> {
    config: C,
    tensors: BTreeMap<String, HostTensor>,
}

/// Tensors that are no model's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// A tensor of the model is not there.
    #[error("tensor {0:?} is missing")]
    Missing(String),
    /// A tensor that the model does not have.
    #[error("tensor {0:?} belongs to no parameter of the model")]
    Surplus(String),
    /// A tensor of another shape or type.
    #[error("tensor {name:?} is {found_dtype}{found:?}, the model has f32{expected:?} (or bf16, or f16)")]
    Wrong {
        /// The tensor.
        name: String,
        /// Its dtype.
        found_dtype: DType,
        /// Its shape.
        found: Vec<usize>,
        /// The model's shape.
        expected: Vec<usize>,
    },
}

impl<C: Model + Clone> Weights<C> {
    /// Weights from tensors by the names of [`Model::parameters`]: all of them, in f32, bf16 or f16, or as
    /// integers with their scales, and no others.
    pub fn new(config: C, tensors: BTreeMap<String, HostTensor>) -> Result<Self, WeightsError> {
        let parameters = config.parameters();
        let mut beside_others = 0;
        for parameter in &parameters {
            let tensor = tensors.get(&parameter.name);
            let tensor = tensor.ok_or_else(|| WeightsError::Missing(parameter.name.clone()))?;
            let known = matches!(tensor.dtype(), DType::F32 | DType::BF16 | DType::F16);
            if let Some(figures) = figures_of(&tensors, parameter) {
                beside_others += figures;
                continue;
            }
            if !known || tensor.shape() != parameter.shape {
                return Err(WeightsError::Wrong {
                    name: parameter.name.clone(),
                    found_dtype: tensor.dtype(),
                    found: tensor.shape().to_vec(),
                    expected: parameter.shape.clone(),
                });
            }
        }
        if tensors.len() > parameters.len() + beside_others {
            let figures = |weight: &str| ["scales", "offsets"].map(|figure| beside(weight, figure));
            let known = |name: &String| {
                let mut of_any = parameters.iter().filter(|own| figures_of(&tensors, own).is_some());
                parameters.iter().any(|parameter| parameter.name == *name)
                    || of_any.any(|own| figures(&own.name).contains(name))
            };
            if let Some(name) = tensors.keys().find(|name| !known(name)) {
                return Err(WeightsError::Surplus(name.clone()));
            }
        }
        Ok(Weights { config, tensors })
    }

    /// The weights of a model in use, from whatever device they are on. They must be f32.
    pub fn of(config: &C, params: &impl Tree<Leaf = Array>) -> RuntimeResult<Self> {
        let mut tensors = BTreeMap::new();
        for (name, array) in params.leaves() {
            tensors.insert(name, to_host(array)?);
        }
        Weights::new(config.clone(), tensors).map_err(|error| wrong("params", error))
    }

    /// The weights as a model's parameters, on the host in f32, in memory of their own.
    pub fn params(&self) -> RuntimeResult<Parameters<Array>> {
        parameters_from(&self.config, &self.tensors, "", DType::F32)
    }

    /// The weights as parameters of an element type, f32 or bf16, on a device. On the host, those of a mapped file that
    /// have this type already are used where they are: a program cannot write over them.
    ///
    /// Weights of layers that a file has as integers stay integers, with their scales as the file has them
    /// ([`crate::quantized`]).
    pub fn placed(&self, dtype: DType, device: Device) -> RuntimeResult<Parameters<Array>> {
        let (mut list, mut made) = (Vec::new(), Vec::new());
        for parameter in self.config.parameters() {
            let is_layer = self.config.may_be_quantized(&parameter.name) || parameter.name == HEAD;
            if is_layer && figures_of(&self.tensors, &parameter).is_some() {
                let figures = ["scales", "offsets"].map(|figure| beside(&parameter.name, figure));
                for name in [parameter.name.clone()].into_iter().chain(figures) {
                    let Some(tensor) = self.tensors.get(&name) else { continue };
                    made.push(tensor.to_array()?.to_device(device)?);
                    list.push(Parameter { name, shape: tensor.shape().to_vec(), ..parameter.clone() });
                }
                continue;
            }
            let tensor = self.numbers(&parameter, dtype)?;
            let tensor = tensor.ok_or_else(|| wrong("dtype", format!("is {dtype}, expected f32 or bf16")))?;
            made.push(tensor.to_array()?.to_device(device)?);
            list.push(parameter);
        }
        let mut made = made.into_iter();
        Parameters::build(&list, &mut |own| made.next().ok_or_else(|| wrong(&own.name, "was not made")))
    }

    /// A parameter in f32 or bf16, whatever it is stored as.
    fn numbers(&self, parameter: &Parameter, dtype: DType) -> Result<Option<HostTensor>, OutOfMemory> {
        let Some(tensor) = self.tensors.get(&parameter.name) else { return Ok(None) };
        if figures_of(&self.tensors, parameter).is_none() {
            return tensor.converted(dtype);
        }
        let figures = |name: &str| self.tensors.get(&beside(&parameter.name, name));
        let Some(scales) = figures("scales") else { return Ok(None) };
        numbers_of(tensor, scales, figures("offsets"), dtype)
    }

    /// Whether weights are integers.
    pub fn are_quantized(&self) -> bool {
        self.tensors.values().any(|tensor| bits_of(tensor).is_some())
    }

    /// As [`Weights::placed`], of which those of layers are rounded to integers, one after the other, on the device.
    ///
    /// # Errors
    /// Those of [`Quantization::build`], and types other than f32 and bf16.
    pub fn quantized(
        &self,
        quantization: Quantization,
        dtype: DType,
        device: Device,
    ) -> RuntimeResult<Parameters<Array>> {
        if self.are_quantized() {
            return Err(wrong("weights", format!("are {quantization}, the file has integers already")));
        }
        quantization.build(&self.config, dtype, &mut |parameter, dtype| {
            let tensor = self.tensors.get(&parameter.name);
            let tensor = match dtype {
                // Rounded once, from what the file has.
                None => tensor.cloned(),
                Some(dtype) => tensor.map(|tensor| tensor.converted(dtype)).transpose()?.flatten(),
            };
            let tensor = tensor.ok_or_else(|| wrong("dtype", "is another, expected f32 or bf16"))?;
            tensor.to_array()?.to_device(device)
        })
    }

    /// The weights in f32.
    pub fn widened(self) -> Result<Self, OutOfMemory> {
        if self.are_quantized() {
            let mut tensors = BTreeMap::new();
            for parameter in self.config.parameters() {
                if let Some(numbers) = self.numbers(&parameter, DType::F32)? {
                    tensors.insert(parameter.name, numbers);
                }
            }
            return Ok(Weights { tensors, ..self });
        }
        let wide = |(name, tensor): (String, HostTensor)| Ok((name, tensor.widened()?.unwrap_or(tensor)));
        Ok(Weights { tensors: self.tensors.into_iter().map(wide).collect::<Result<_, OutOfMemory>>()?, ..self })
    }

    /// The model. Its dropout is 0 unless a checkpoint said otherwise.
    pub fn config(&self) -> &C {
        &self.config
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&HostTensor> {
        self.tensors.get(name)
    }

    /// The model, and its tensors by name.
    pub fn into_parts(self) -> (C, BTreeMap<String, HostTensor>) {
        (self.config, self.tensors)
    }

    /// The tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, HostTensor> {
        &self.tensors
    }
}

/// How many tensors are beside a parameter that is integers of 8 or 4 bits; `None` if it is not, or they do not fit it.
fn figures_of(tensors: &BTreeMap<String, HostTensor>, parameter: &Parameter) -> Option<usize> {
    let codes = tensors.get(&parameter.name)?;
    let bits = bits_of(codes)?;
    let [outputs, inputs] = parameter.shape[..] else { return None };
    let scales = tensors.get(&beside(&parameter.name, "scales"))?;
    let [rows, groups] = scales.shape()[..] else { return None };
    let floats = matches!(scales.dtype(), DType::F32 | DType::BF16 | DType::F16);
    let grouped = rows == outputs && groups > 0 && inputs.is_multiple_of(groups);
    let whole = bits == 8 || (inputs.is_multiple_of(2) && grouped && (inputs / groups).is_multiple_of(2));
    if !floats || !grouped || !whole || codes.shape() != [outputs, inputs * bits / 8] {
        return None;
    }
    match tensors.get(&beside(&parameter.name, "offsets")) {
        None => Some(1),
        Some(offsets) => (offsets.shape() == scales.shape() && offsets.dtype() == scales.dtype()).then_some(2),
    }
}

impl From<Weights<GptConfig>> for Weights<ModelConfig> {
    fn from(weights: Weights<GptConfig>) -> Self {
        Weights { config: weights.config.into(), tensors: weights.tensors }
    }
}

impl From<Weights<DecoderConfig>> for Weights<ModelConfig> {
    fn from(weights: Weights<DecoderConfig>) -> Self {
        Weights { config: weights.config.into(), tensors: weights.tensors }
    }
}

/// Weights of one of the families.
#[derive(Debug, Clone, PartialEq)]
pub enum FamilyWeights {
    /// GPT-2.
    Gpt2(Weights<GptConfig>),
    /// Llama and its relatives.
    Decoder(Box<Weights<DecoderConfig>>),
    /// A model of images.
    Images(Weights<ImageConfig>),
}

impl Weights<ModelConfig> {
    /// The weights with the configuration of their family.
    pub fn by_family(self) -> FamilyWeights {
        match self.config {
            ModelConfig::Gpt2(config) => FamilyWeights::Gpt2(Weights { config, tensors: self.tensors }),
            ModelConfig::Decoder(config) => {
                FamilyWeights::Decoder(Box::new(Weights { config: *config, tensors: self.tensors }))
            }
            ModelConfig::Images(config) => FamilyWeights::Images(Weights { config, tensors: self.tensors }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initialize::initial_values;

    fn weights() -> Weights {
        let config = GptConfig { vocabulary: 300, context: 6, layers: 2, heads: 2, channels: 4, ..GptConfig::GPT2 };
        let tensors = config.parameters().into_iter().map(|parameter| {
            let values = initial_values(&parameter, 9);
            (parameter.name, HostTensor::from_f32(&parameter.shape, &values).unwrap())
        });
        Weights::new(config.clone(), tensors.collect()).unwrap()
    }

    #[test]
    fn only_a_whole_model_is_taken() {
        let Weights { config, tensors } = weights();
        let complain = |change: &dyn Fn(&mut BTreeMap<String, HostTensor>)| {
            let mut tensors = tensors.clone();
            change(&mut tensors);
            Weights::new(config.clone(), tensors).unwrap_err().to_string()
        };
        let small = || HostTensor::from_f32(&[1], &[0.0]).unwrap();
        for (message, expected) in [
            (complain(&|tensors| drop(tensors.remove("h.1.ln_1.bias"))), "tensor \"h.1.ln_1.bias\" is missing"),
            (
                complain(&|tensors| drop(tensors.insert("ln_f.bias".into(), small()))),
                "tensor \"ln_f.bias\" is f32[1], the model has f32[4] (or bf16, or f16)",
            ),
            (
                complain(&|tensors| drop(tensors.insert("more".into(), small()))),
                "tensor \"more\" belongs to no parameter of the model",
            ),
        ] {
            assert_eq!(message, expected);
        }
    }
}
