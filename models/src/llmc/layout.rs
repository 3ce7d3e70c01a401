//! The order in which llm.c lays a model's parameters down: sixteen tensors, each of all layers.

use std::io::{self, Read, Write};

use fulgurite_kernels::DType;
use half::bf16;

use super::error::LlmcError;
use super::stream::Stream;
use crate::config::GptConfig;
use crate::host_tensor::HostTensor;
use crate::weights::Weights;

/// llm.c's name of each tensor, ours of one layer's part of it (`*` is the layer's number), in the order of the file.
const TENSORS: [(&str, &str); 16] = [
    ("wte", "wte.weight"),
    ("wpe", "wpe.weight"),
    ("ln1w", "h.*.ln_1.weight"),
    ("ln1b", "h.*.ln_1.bias"),
    ("qkvw", "h.*.attn.c_attn.weight"),
    ("qkvb", "h.*.attn.c_attn.bias"),
    ("attprojw", "h.*.attn.c_proj.weight"),
    ("attprojb", "h.*.attn.c_proj.bias"),
    ("ln2w", "h.*.ln_2.weight"),
    ("ln2b", "h.*.ln_2.bias"),
    ("fcw", "h.*.mlp.c_fc.weight"),
    ("fcb", "h.*.mlp.c_fc.bias"),
    ("fcprojw", "h.*.mlp.c_proj.weight"),
    ("fcprojb", "h.*.mlp.c_proj.bias"),
    ("lnfw", "ln_f.weight"),
    ("lnfb", "ln_f.bias"),
];

/// How many rows llm.c gives the embedding of a vocabulary: the next multiple of 128.
pub fn padded_vocabulary(vocabulary: usize) -> usize {
    vocabulary.next_multiple_of(128)
}

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    Bf16,
}

impl Precision {
    fn bytes(self) -> u64 {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }

    /// Stored values as the bytes of f32 values, which hold every bf16 exactly.
    fn widen(self, bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Precision::F32 => bytes,
            Precision::Bf16 => bytes.as_chunks().0.iter().flat_map(|&[low, high]| [0, 0, low, high]).collect(),
        }
    }

    fn write(self, tensor: &HostTensor, writer: &mut dyn Write) -> io::Result<()> {
        match self {
            Precision::F32 => writer.write_all(tensor.bytes()),
            Precision::Bf16 => {
                // In parts, so that a large tensor needs no second copy of itself.
                for part in tensor.bytes().as_chunks().0.chunks(1 << 16) {
                    let rounded: Vec<u8> = part.iter().flat_map(|&value| round(f32::from_le_bytes(value))).collect();
                    writer.write_all(&rounded)?;
                }
                Ok(())
            }
        }
    }
}

/// The nearest bf16, of two the even one. Values that bf16 holds stay as they are, NaNs included.
fn round(value: f32) -> [u8; 2] {
    match value.to_bits() {
        bits if bits & 0xFFFF == 0 => ((bits >> 16) as u16).to_le_bytes(),
        _ => bf16::from_f32(value).to_le_bytes(),
    }
}

/// Bytes of all parameters, in 128 bits so that no header can make them overflow.
pub(crate) fn parameter_bytes(config: &GptConfig, rows: usize, precision: Precision) -> u128 {
    let [c, l, t, rows] = [config.channels, config.layers, config.context, rows].map(|size| size as u128);
    ((rows + t) * c + l * (12 * c * c + 13 * c) + 2 * c) * u128::from(precision.bytes())
}

/// Reads the parameters of a model whose embedding is stored with `rows` rows, those beyond the vocabulary being 0.
/// The length of the file must have been described.
pub(crate) fn read_parameters<R: Read>(
    stream: &mut Stream<R>,
    config: &GptConfig,
    rows: usize,
    precision: Precision,
) -> Result<Weights, LlmcError> {
    let parameters = config.parameters();
    let mut tensors = std::collections::BTreeMap::new();
    for (short, pattern) in TENSORS {
        let layers = if pattern.contains('*') { config.layers } else { 1 };
        for layer in 0..layers {
            let name = pattern.replacen('*', &layer.to_string(), 1);
            let place = || match layers {
                1 => format!("tensor '{short}'"),
                _ => format!("layer {layer} of tensor '{short}'"),
            };
            let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else { continue };
            let elements: u128 = parameter.shape.iter().map(|&size| size as u128).product();
            // A number that does not fit is more than any file has.
            let bytes = u64::try_from(elements * u128::from(precision.bytes())).unwrap_or(u64::MAX);
            let offset = stream.offset();
            let values = precision.widen(stream.take(bytes, place)?);
            let tensor = HostTensor::new(DType::F32, &parameter.shape, values).map_err(|error| LlmcError::Value {
                place: place(),
                offset,
                found: error.to_string(),
                expected: format!("f32{:?}", parameter.shape),
            })?;
            tensors.insert(name, tensor);
            if short == "wte" {
                read_padding(stream, (rows - config.vocabulary) as u64 * config.channels as u64 * precision.bytes())?;
            }
        }
    }
    Weights::new(config.clone(), tensors).map_err(|error| LlmcError::Value {
        place: "the model".into(),
        offset: 0,
        found: error.to_string(),
        expected: "all parameters of a GPT-2".into(),
    })
}

/// llm.c counts on these rows being 0: it computes logits of them, and leaves them out of the softmax.
fn read_padding<R: Read>(stream: &mut Stream<R>, bytes: u64) -> Result<(), LlmcError> {
    let offset = stream.offset();
    let padding = stream.take(bytes, || "the padding of tensor 'wte'".into())?;
    match padding.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(position) => Err(LlmcError::Value {
            place: "a byte of tensor 'wte' in the rows beyond the vocabulary".into(),
            offset: offset + position as u64,
            found: padding[position].to_string(),
            expected: "0".into(),
        }),
    }
}

/// Writes what [`read_parameters`] reads.
pub(crate) fn write_parameters(
    weights: &Weights,
    rows: usize,
    precision: Precision,
    writer: &mut dyn Write,
) -> io::Result<()> {
    let config = weights.config();
    for (short, pattern) in TENSORS {
        let layers = if pattern.contains('*') { config.layers } else { 1 };
        for layer in 0..layers {
            let name = pattern.replacen('*', &layer.to_string(), 1);
            let tensor = weights.tensor(&name).ok_or_else(|| io::Error::other(format!("{name} is missing")))?;
            precision.write(tensor, writer)?;
            if short == "wte" {
                let padding = (rows - config.vocabulary) as u64 * config.channels as u64 * precision.bytes();
                io::copy(&mut io::repeat(0).take(padding), writer)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_bf16_is_to_nearest_even() {
        for (value, bits) in [
            (0x3F80_0000_u32, 0x3F80_u16),
            (0x3F80_7FFF, 0x3F80),
            // Ties go to the even one, down and up.
            (0x3F80_8000, 0x3F80),
            (0x3F81_8000, 0x3F82),
            (0x3F80_8001, 0x3F81),
            (0xBF81_8000, 0xBF82),
            // The largest f32 rounds to infinity.
            (0x7F7F_FFFF, 0x7F80),
            (0x0000_8001, 0x0001),
            // NaNs stay NaNs, and those of bf16 keep their bits.
            (0x7F80_0001, 0x7FC0),
            (0x7F81_0000, 0x7F81),
        ] {
            assert_eq!(u16::from_le_bytes(round(f32::from_bits(value))), bits, "{value:08x}");
        }
        for bits in 0..=u16::MAX {
            let wide = Precision::Bf16.widen(bits.to_le_bytes().to_vec());
            let wide = f32::from_le_bytes(wide.try_into().unwrap());
            assert_eq!(u16::from_le_bytes(round(wide)), bits);
        }
    }

    #[test]
    fn lengths_are_those_of_the_published_files() {
        let config = GptConfig::named("124M", 50_257).unwrap();
        let rows = padded_vocabulary(50_257);
        assert_eq!(rows, 50_304);
        // 124 475 904 parameters with the padding.
        assert_eq!(parameter_bytes(&config, rows, Precision::F32), 4 * 124_475_904);
        assert_eq!(parameter_bytes(&config, 50_257, Precision::Bf16), 2 * 124_439_808);
    }
}
