//! GPT-2 as Hugging Face's `transformers` stores it: safetensors under the names of `GPT2Model` (`wte.weight`,
//! `h.0.attn.c_attn.weight`, ...), with or without the prefix `transformer.` of `GPT2LMHeadModel`.
//!
//! Its `Conv1D` keeps weights as [in, out], the transpose of ours. The output projection `lm_head.weight` is the
//! embedding again and may be left out; the buffers `h.*.attn.bias` and `h.*.attn.masked_bias` hold the causal mask and
//! are not read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use serde_json::Value;

use crate::config::{ConfigError, GptConfig, Parameter};
use crate::foreign_file;
use crate::gpt2_config_file;
use crate::host_tensor::HostTensor;
use crate::tensor_file::TensorFile;
use crate::weights::{Weights, WeightsError};

const PREFIX: &str = "transformer.";
const LM_HEAD: &str = "lm_head.weight";
/// The metadata's key for the number of heads, which no tensor's shape tells.
const HEADS: &str = "n_head";
/// The file beside the weights with the model's sizes and functions.
const CONFIG: &str = "config.json";

/// How tensors are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// `wte.weight`, as in the published `gpt2`.
    #[default]
    Plain,
    /// `transformer.wte.weight`, as `GPT2LMHeadModel` saves itself.
    Prefixed,
}

/// Tensors that are no GPT-2 of Hugging Face's. The file is named by the error around it.
#[derive(Debug, thiserror::Error)]
pub enum HuggingFaceError {
    /// A tensor is not there.
    #[error("tensor {0:?} is missing (also as \"transformer.{0}\")")]
    Missing(String),
    /// A tensor that GPT-2 does not have.
    #[error("tensor {0:?} belongs to no parameter of a GPT-2 of {1} layers")]
    Unexpected(String, usize),
    /// A tensor under both names.
    #[error("tensor {0:?} is there with the prefix \"transformer.\" and without")]
    Twice(String),
    /// A tensor of the wrong shape.
    #[error("tensor {name:?} has shape {found:?}, expected {expected}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The right shape, in words.
        expected: String,
    },
    /// A tensor of a type that weights do not have.
    #[error("tensor {name:?} holds {found}, expected f32, bf16 or f16")]
    DType {
        /// The tensor.
        name: String,
        /// Its type.
        found: DType,
    },
    /// A tensor that there is no memory for.
    #[error("tensor {name:?}: {source}")]
    Memory {
        /// The tensor.
        name: String,
        /// The bytes.
        source: OutOfMemory,
    },
    /// An output projection of its own.
    #[error(
        "tensor \"lm_head.weight\" differs from \"wte.weight\" at row {row}, column {column}: {found} and \
         {expected}, expected one tensor under both names"
    )]
    Untied {
        /// Row of the first difference.
        row: usize,
        /// Its column.
        column: usize,
        /// The value of `lm_head.weight`.
        found: f32,
        /// The value of `wte.weight`.
        expected: f32,
    },
    /// Nothing tells the number of heads.
    #[error(
        "the number of attention heads is not known: there is no config.json beside the file, and its metadata has no \
         \"n_head\"; put the model's config.json beside it, or say the number when converting (--heads)"
    )]
    UnknownHeads,
    /// Two numbers of heads.
    #[error("metadata \"n_head\" is {metadata}, but n_head of the config.json beside the file is {config}")]
    OtherHeads {
        /// That of the file.
        metadata: usize,
        /// That of `config.json`.
        config: usize,
    },
    /// A number of heads that is none.
    #[error("metadata \"n_head\" is {0:?}, expected a whole number")]
    Heads(String),
    /// A `config.json` that cannot be used.
    #[error("'{}' beside the file: {message}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Tensors that are no model's.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A shape that no model has.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Writing failed; what was there is untouched unless the message says otherwise.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
}

/// Whether Hugging Face stores this weight transposed.
fn transposed(name: &str) -> bool {
    [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"].iter().any(|end| name.ends_with(end))
}

/// A buffer of the causal mask.
fn is_mask(name: &str) -> bool {
    let layer = name.strip_suffix(".attn.bias").or(name.strip_suffix(".attn.masked_bias"));
    layer.is_some_and(|layer| layer_of(layer).is_some_and(|(_, rest)| rest.is_empty()))
}

/// The number in `h.3.ln_1.weight`, and what follows it.
fn layer_of(name: &str) -> Option<(usize, &str)> {
    let rest = name.strip_prefix("h.")?;
    let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
    Some((number.parse().ok()?, rest))
}

/// The weights of a safetensors file, widened to f32. The sizes follow from the shapes. What is computed, and the
/// number of heads, is said by the `config.json` in `folder`, each of whose fields is used, known to change nothing, or
/// an error; without one it is OpenAI's, with `n_head` of the file's metadata. `heads` takes the place of the number
/// that the files say. Never panics, whatever the tensors.
pub fn read(file: TensorFile, heads: Option<usize>, folder: Option<&Path>) -> Result<Weights, HuggingFaceError> {
    let TensorFile { metadata, tensors } = file;
    let mut found = BTreeMap::new();
    for (name, tensor) in tensors {
        let plain = name.strip_prefix(PREFIX).unwrap_or(&name);
        if is_mask(plain) {
            continue;
        }
        if found.contains_key(plain) {
            return Err(HuggingFaceError::Twice(plain.to_owned()));
        }
        found.insert(plain.to_owned(), tensor);
    }
    let config = config_of(&found, &metadata, heads, folder)?;
    let mut weights = BTreeMap::new();
    for Parameter { name, shape, .. } in config.parameters() {
        let tensor = found.remove(&name).ok_or_else(|| HuggingFaceError::Missing(name.clone()))?;
        weights.insert(name.clone(), parameter(&name, &shape, tensor)?);
    }
    if let (Some(head), Some(wte)) = (found.remove(LM_HEAD), weights.get("wte.weight")) {
        check_tied(parameter(LM_HEAD, wte.shape(), head)?, wte)?;
    }
    if let Some(name) = found.into_keys().next() {
        return Err(HuggingFaceError::Unexpected(name, config.layers));
    }
    Ok(Weights::new(config, weights)?)
}

fn config_of(
    tensors: &BTreeMap<String, HostTensor>,
    metadata: &BTreeMap<String, String>,
    heads: Option<usize>,
    folder: Option<&Path>,
) -> Result<GptConfig, HuggingFaceError> {
    let matrix = |name: &str| {
        let tensor = tensors.get(name).ok_or_else(|| HuggingFaceError::Missing(name.to_owned()))?;
        match tensor.shape() {
            [rows, columns] => Ok((*rows, *columns)),
            found => Err(HuggingFaceError::Shape {
                name: name.to_owned(),
                found: found.to_vec(),
                expected: "[rows, channels]".to_owned(),
            }),
        }
    };
    let (vocabulary, channels) = matrix("wte.weight")?;
    let (context, _) = matrix("wpe.weight")?;
    let last = tensors.keys().filter_map(|name| layer_of(name)).map(|(layer, _)| layer).max();
    let layers = last.map_or(0, |last| last.saturating_add(1));
    let of_metadata = match metadata.get(HEADS) {
        Some(text) => Some(text.parse().map_err(|_| HuggingFaceError::Heads(text.clone()))?),
        None => None,
    };
    let sizes = GptConfig { vocabulary, context, layers, heads: 1, channels, ..GptConfig::GPT2 };
    let config = match folder.map(|folder| folder.join(CONFIG)).filter(|path| path.exists()) {
        Some(path) => {
            let wrong = |message: String| HuggingFaceError::ConfigFile { path: path.clone(), message };
            let text = std::fs::read(&path).map_err(|error| wrong(error.to_string()))?;
            if let Some(told) = foreign_file::told(&text) {
                return Err(wrong(told.to_owned()));
            }
            let file: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
            let said = gpt2_config_file::from_json(&file, &sizes).map_err(wrong)?;
            match of_metadata.filter(|metadata| heads.is_none() && *metadata != said.heads) {
                Some(metadata) => return Err(HuggingFaceError::OtherHeads { metadata, config: said.heads }),
                None => GptConfig { heads: heads.unwrap_or(said.heads), ..said },
            }
        }
        None => GptConfig { heads: heads.or(of_metadata).ok_or(HuggingFaceError::UnknownHeads)?, ..sizes },
    };
    config.validate()?;
    Ok(config)
}

/// One stored tensor as a parameter of ours: `shape` is ours.
fn parameter(name: &str, shape: &[usize], tensor: HostTensor) -> Result<HostTensor, HuggingFaceError> {
    let turned = transposed(name);
    let stored: Vec<usize> = if turned { shape.iter().rev().copied().collect() } else { shape.to_vec() };
    if tensor.shape() != stored {
        let note = if turned { " ([in, out], as Conv1D stores it)" } else { "" };
        return Err(HuggingFaceError::Shape {
            name: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: format!("{stored:?}{note}"),
        });
    }
    let dtype = tensor.dtype();
    let lacking = |source| HuggingFaceError::Memory { name: name.to_owned(), source };
    let wide = tensor.widened().map_err(lacking)?;
    let wide = wide.ok_or_else(|| HuggingFaceError::DType { name: name.to_owned(), found: dtype })?;
    Ok(if turned { wide.transposed().map_err(lacking)?.unwrap_or(wide) } else { wide })
}

fn check_tied(head: HostTensor, wte: &HostTensor) -> Result<(), HuggingFaceError> {
    if head.bytes() == wte.bytes() {
        return Ok(());
    }
    let (found, expected) = (head.bytes().as_chunks().0, wte.bytes().as_chunks().0);
    let channels = wte.shape()[1];
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(index) => Err(HuggingFaceError::Untied {
            row: index / channels,
            column: index % channels,
            found: f32::from_le_bytes(found[index]),
            expected: f32::from_le_bytes(expected[index]),
        }),
    }
}

/// The content of a safetensors file of these weights, in f32. The metadata says `format: pt`, which `transformers`
/// asks for, and the number of heads.
pub fn tensor_file(weights: &Weights, names: Names) -> Result<TensorFile, HuggingFaceError> {
    let config = weights.config();
    let tensors = weights.tensors().iter().map(|(name, tensor)| {
        let lacking = |source| HuggingFaceError::Memory { name: name.clone(), source };
        let turned = if transposed(name) { tensor.transposed().map_err(lacking)? } else { None };
        let stored = turned.unwrap_or_else(|| tensor.clone());
        let name = match names {
            Names::Plain => name.clone(),
            Names::Prefixed => format!("{PREFIX}{name}"),
        };
        Ok((name, stored))
    });
    Ok(TensorFile {
        tensors: tensors.collect::<Result<_, HuggingFaceError>>()?,
        metadata: BTreeMap::from([
            ("format".to_owned(), "pt".to_owned()),
            (HEADS.to_owned(), config.heads.to_string()),
        ]),
    })
}

/// Writes a safetensors file in place of the one at `path`, whole or not at all, and `config.json` beside it. One that
/// is there and says the same stays as it is; one of another model is an error, and nothing is written.
pub fn save(weights: &Weights, names: Names, path: &Path) -> Result<(), HuggingFaceError> {
    save_config(weights.config(), &path.with_file_name(CONFIG))?;
    let TensorFile { metadata, tensors } = tensor_file(weights, names)?;
    durable::replace(path, |writer| TensorFile::write(&metadata, &tensors, writer)).map_err(|(stage, error)| {
        HuggingFaceError::Write(std::io::Error::new(error.kind(), format!("{}: {error}", stage.describe())))
    })
}

fn save_config(config: &GptConfig, path: &Path) -> Result<(), HuggingFaceError> {
    let wrong = |message: String| HuggingFaceError::ConfigFile { path: path.to_owned(), message };
    let write_failed = |error| HuggingFaceError::Write(error);
    match std::fs::read(path) {
        Ok(text) => {
            let read =
                serde_json::from_slice(&text).ok().and_then(|old| gpt2_config_file::from_json(&old, config).ok());
            match read.is_some_and(|read| read == *config) {
                true => Ok(()),
                false => Err(wrong("is there already, and not that of what is written; choose another folder".into())),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("{:#}\n", gpt2_config_file::to_json(config));
            let written = durable::replace(path, |writer| std::io::Write::write_all(writer, text.as_bytes()));
            written.map_err(|(_, error)| write_failed(error))
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

#[cfg(test)]
#[path = "hugging_face_tests.rs"]
mod tests;
