//! Decoders as Hugging Face's `transformers` stores them: `config.json` and safetensors, one file or several with an
//! index.
//!
//! Queries, keys and values are three tensors there, which stand one below the other in ours; GPT-NeoX has one tensor
//! in which those of a head stand together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use serde_json::Value;

use super::config::DecoderConfig;
use super::hugging_face_config::{Kind, from_json, kind_of, to_json};
use crate::durable;
use crate::host_tensor::HostTensor;
use crate::model::Model;
use crate::tensor_file::{TensorFile, TensorFileError};
use crate::weights::{Weights, WeightsError};

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Files that are no decoder of Hugging Face's, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DecoderFilesError {
    /// A JSON file that cannot be used.
    #[error("'{}': {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A tensor that is not there.
    #[error("tensor {0:?} is missing")]
    Missing(String),
    /// A tensor that the model does not have.
    #[error("tensor {0:?} belongs to no parameter of the model")]
    Unexpected(String),
    /// A tensor of the wrong shape.
    #[error("tensor {name:?} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The right shape.
        expected: Vec<usize>,
    },
    /// A tensor of a type that weights do not have.
    #[error("tensor {name:?} holds {found}, expected f32, bf16 or f16")]
    DType {
        /// The tensor.
        name: String,
        /// Its type.
        found: DType,
    },
    /// Two tensors for what is one.
    #[error("tensor {0:?} differs from the embedding, though config.json says tie_word_embeddings")]
    Untied(String),
    /// A configuration that `transformers` has no type for.
    #[error("no type of transformers' models computes what the configuration of '{0}' says")]
    NoType(String),
    /// A faulty safetensors file.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// Tensors that are no model's.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
}

fn json_of(path: &Path) -> Result<Value, DecoderFilesError> {
    let wrong = |message: String| DecoderFilesError::File { path: path.to_owned(), message };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

/// The type and the configuration that the `config.json` of a folder says.
fn configuration(folder: &Path) -> Result<(Kind, DecoderConfig), DecoderFilesError> {
    let path = folder.join(CONFIG);
    let file = json_of(&path)?;
    let read = kind_of(&file).and_then(|kind| Ok((kind, from_json(kind, &file)?)));
    read.map_err(|message| DecoderFilesError::File { path, message })
}

/// Whether the tensors of a file have the names of a decoder's.
pub(crate) fn is_one(file: &TensorFile) -> bool {
    file.tensors.keys().any(|name| name.starts_with("model.") || name.starts_with("gpt_neox."))
}

/// The decoder of a file, with the configuration that stands beside it.
pub(crate) fn of_file(file: TensorFile, path: &Path) -> Result<Weights<DecoderConfig>, DecoderFilesError> {
    from_tensors(file.tensors, folder_of(path))
}

/// The decoder in a folder, or in the files of an index.
pub(crate) fn load(path: &Path) -> Result<Weights<DecoderConfig>, DecoderFilesError> {
    let folder = if path.is_dir() { path } else { folder_of(path) };
    let index = if path.is_dir() { folder.join(INDEX) } else { path.to_owned() };
    let mut tensors = BTreeMap::new();
    let single = folder.join(SINGLE);
    // A file that was named is read, also where there is none: no other takes its place. In a folder a whole file comes
    // first, as in `transformers`.
    if !path.is_dir() || (index.is_file() && !single.is_file()) {
        let wrong = |message: String| DecoderFilesError::File { path: index.clone(), message };
        let map = json_of(&index)?;
        let map = map.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| wrong("has no object weight_map".into()))?;
        let names: BTreeSet<Option<&str>> = map.values().map(Value::as_str).collect();
        for name in names {
            // A file beside the index, and no other place.
            let beside = name.filter(|name| Path::new(name).file_name().is_some_and(|own| own == *name));
            let name = beside.ok_or_else(|| wrong("weight_map has a value that is no name of a file".into()))?;
            let shard = TensorFile::load(&folder.join(name))?.tensors;
            if let Some(own) = shard.keys().find(|own| map.get(*own).and_then(Value::as_str) != Some(name)) {
                return Err(wrong(format!("'{name}' has the tensor {own:?}, which weight_map does not say")));
            }
            tensors.extend(shard);
        }
        if let Some(name) = map.keys().find(|name| !tensors.contains_key(*name)) {
            return Err(wrong(format!("weight_map has the tensor {name:?}, which its file does not have")));
        }
    } else {
        tensors = TensorFile::load(&single)?.tensors;
    }
    from_tensors(tensors, folder)
}

/// The decoder of these tensors, with the configuration of the `config.json` in `folder`.
fn from_tensors(
    mut tensors: BTreeMap<String, HostTensor>,
    folder: &Path,
) -> Result<Weights<DecoderConfig>, DecoderFilesError> {
    let (kind, config) = configuration(folder)?;
    // Constants that some files keep: the angles of rotations, the causal mask.
    let buffers = [".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"];
    tensors.retain(|name, _| !buffers.iter().any(|buffer| name.ends_with(buffer)));
    let mut weights = BTreeMap::new();
    for parameter in config.parameters() {
        let mut bytes = Vec::new();
        for (name, rows) in theirs(kind, &config, &parameter.name, parameter.shape[0]) {
            let tensor = tensors.remove(&name).ok_or_else(|| DecoderFilesError::Missing(name.clone()))?;
            let expected = [&[rows], &parameter.shape[1..]].concat();
            if tensor.shape() != expected {
                return Err(DecoderFilesError::Shape { name, found: tensor.shape().to_vec(), expected });
            }
            let found = tensor.dtype();
            bytes.extend(tensor.widened().ok_or(DecoderFilesError::DType { name, found })?.into_bytes());
        }
        if interleaved(kind, &parameter.name) {
            bytes = blocks_exchanged(&bytes, [config.n_head, 3]);
        }
        let tensor = HostTensor::new(DType::F32, &parameter.shape, bytes);
        let tensor = tensor.map_err(|_| DecoderFilesError::Missing(parameter.name.clone()))?;
        weights.insert(parameter.name, tensor);
    }
    for head in ["lm_head.weight", "embed_out.weight"].into_iter().filter(|_| config.tie_embeddings) {
        let Some(tensor) = tensors.remove(head) else { continue };
        if tensor.widened().as_ref() != weights.get("wte.weight") {
            return Err(DecoderFilesError::Untied(head.to_owned()));
        }
    }
    match tensors.into_keys().next() {
        Some(name) => Err(DecoderFilesError::Unexpected(name)),
        None => Ok(Weights::new(config, weights)?),
    }
}

/// Writes a safetensors file at `path` and `config.json` beside it. A `config.json` of another model is left alone, and
/// nothing is written.
pub(crate) fn save(weights: &Weights<DecoderConfig>, path: &Path) -> Result<(), DecoderFilesError> {
    let tensors = their_tensors(weights, path)?;
    write_tensors(&tensors, path)
}

/// As [`save`], in several files of at most `most` bytes of tensors each (or of one tensor), with an index:
/// `NAME-00001-of-00003.safetensors` and `NAME.safetensors.index.json` for a `path` that ends in `NAME.safetensors`.
/// The index is written last. Gives the path of the index and the number of files.
pub(crate) fn save_sharded(
    weights: &Weights<DecoderConfig>,
    path: &Path,
    most: u64,
) -> Result<(PathBuf, usize), DecoderFilesError> {
    let mut shards: Vec<BTreeMap<String, HostTensor>> = vec![BTreeMap::new()];
    let (mut held, mut total) = (0, 0);
    for (name, tensor) in their_tensors(weights, path)? {
        let bytes = tensor.bytes().len() as u64;
        if held > 0 && held + bytes > most {
            shards.push(BTreeMap::new());
            held = 0;
        }
        (held, total) = (held + bytes, total + bytes);
        if let Some(shard) = shards.last_mut() {
            shard.insert(name, tensor);
        }
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut map = serde_json::Map::new();
    for (shard, number) in shards.iter().zip(1..) {
        let name = format!("{stem}-{number:05}-of-{:05}.safetensors", shards.len());
        write_tensors(shard, &path.with_file_name(&name))?;
        map.extend(shard.keys().map(|tensor| (tensor.clone(), Value::from(name.as_str()))));
    }
    let index = path.with_file_name(format!("{stem}.safetensors.index.json"));
    let text = serde_json::json!({"metadata": {"total_size": total}, "weight_map": map});
    write_text(&index, &format!("{text:#}\n"))?;
    Ok((index, shards.len()))
}

/// The tensors under the names of `transformers`, whose `config.json` is written beside `path`: tensors without their
/// configuration could not be read; a configuration alone says what is missing.
fn their_tensors(
    weights: &Weights<DecoderConfig>,
    path: &Path,
) -> Result<BTreeMap<String, HostTensor>, DecoderFilesError> {
    let config = weights.config();
    let (kind, file) = to_json(config).ok_or_else(|| DecoderFilesError::NoType(config.name.clone()))?;
    let beside = folder_of(path).join(CONFIG);
    if beside.exists() && json_of(&beside)? != file {
        let message = "is there already, and not what would be written; choose another folder".to_owned();
        return Err(DecoderFilesError::File { path: beside, message });
    }
    let mut tensors = BTreeMap::new();
    for (own, tensor) in weights.tensors() {
        let exchanged = interleaved(kind, own).then(|| blocks_exchanged(tensor.bytes(), [3, config.n_head]));
        let bytes = exchanged.as_deref().unwrap_or(tensor.bytes());
        let row = bytes.len() / tensor.shape()[0];
        let mut start = 0;
        for (name, rows) in theirs(kind, config, own, tensor.shape()[0]) {
            let (end, shape) = (start + rows * row, [&[rows], &tensor.shape()[1..]].concat());
            let part = HostTensor::new(DType::F32, &shape, bytes[start..end].to_vec());
            tensors.insert(name.clone(), part.map_err(|_| DecoderFilesError::Missing(name))?);
            start = end;
        }
    }
    write_text(&beside, &format!("{file:#}\n"))?;
    Ok(tensors)
}

fn write_tensors(tensors: &BTreeMap<String, HostTensor>, path: &Path) -> Result<(), DecoderFilesError> {
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    durable::replace(path, |writer| TensorFile::write(&metadata, tensors, writer)).map_err(failed)
}

fn write_text(path: &Path, text: &str) -> Result<(), DecoderFilesError> {
    durable::replace(path, |writer| std::io::Write::write_all(writer, text.as_bytes())).map_err(failed)
}

fn failed((stage, error): (durable::Stage, std::io::Error)) -> DecoderFilesError {
    DecoderFilesError::Write(std::io::Error::new(error.kind(), format!("{}: {error}", stage.describe())))
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether the rows of a parameter stand head by head in the files.
fn interleaved(kind: Kind, name: &str) -> bool {
    kind == Kind::NeoX && name.contains(".attn.qkv.")
}

/// Bytes as `outer` times `inner` equal blocks, those of the same inner number brought together.
fn blocks_exchanged(bytes: &[u8], [outer, inner]: [usize; 2]) -> Vec<u8> {
    let block = bytes.len() / (outer * inner);
    let places = (0..inner).flat_map(|i| (0..outer).map(move |o| o * inner + i));
    places.flat_map(|place| &bytes[place * block..(place + 1) * block]).copied().collect()
}

/// The tensors of the files that a parameter consists of, one below the other, and how many of its `rows` each has.
fn theirs(kind: Kind, config: &DecoderConfig, name: &str, rows: usize) -> Vec<(String, usize)> {
    let neox = kind == Kind::NeoX;
    let either = |of_neox: &'static str, of_others: &'static str| if neox { of_neox } else { of_others };
    let (part, end) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let whole = |path: String| vec![(format!("{path}.{end}"), rows)];
    let Some((layer, part)) = part.strip_prefix("h.").and_then(|rest| rest.split_once('.')) else {
        return whole(match part {
            "wte" => either("gpt_neox.embed_in", "model.embed_tokens").to_owned(),
            "ln_f" => either("gpt_neox.final_layer_norm", "model.norm").to_owned(),
            _ => either("embed_out", "lm_head").to_owned(),
        });
    };
    let block = format!("{}.layers.{layer}", either("gpt_neox", "model"));
    if part == "attn.qkv" && !neox {
        let width = config.head_width();
        let heads = [("q", config.n_head), ("k", config.groups()), ("v", config.groups())];
        return heads.map(|(one, heads)| (format!("{block}.self_attn.{one}_proj.{end}"), heads * width)).to_vec();
    }
    if let Some((expert, part)) = part.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        let number = match part {
            "fc_1" => 1,
            "proj" => 2,
            _ => 3,
        };
        return whole(format!("{block}.block_sparse_moe.experts.{expert}.w{number}"));
    }
    let renamed = match part {
        "norm_1" => "input_layernorm",
        "norm_2" if kind == Kind::Gemma2 => "pre_feedforward_layernorm",
        "norm_2" | "post_attention_norm" => "post_attention_layernorm",
        "post_mlp_norm" => "post_feedforward_layernorm",
        "attn.qkv" => "attention.query_key_value",
        "attn.norm_q" => "self_attn.q_norm",
        "attn.norm_k" => "self_attn.k_norm",
        "attn.proj" => either("attention.dense", "self_attn.o_proj"),
        "mlp.gate" => "block_sparse_moe.gate",
        "mlp.fc" => "mlp.dense_h_to_4h",
        "mlp.fc_1" => "mlp.gate_proj",
        "mlp.fc_2" => "mlp.up_proj",
        "mlp.proj" => either("mlp.dense_4h_to_h", "mlp.down_proj"),
        other => other,
    };
    whole(format!("{block}.{renamed}"))
}
