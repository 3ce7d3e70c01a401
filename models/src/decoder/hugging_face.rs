//! Decoders as Hugging Face's `transformers` stores them: `config.json` and safetensors, one file or several with an
//! index.
//!
//! Queries, keys and values are three tensors there, which are one below the other in ours; GPT-NeoX has one tensor in
//! which those of a head are together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use fulgurite_kernels::scratch::{try_copy, try_room};
use serde_json::Value;

use super::config::DecoderConfig;
use super::files::{DecoderFilesError, folder_of, json_of, write_beside, write_failed, write_text};
use super::hugging_face_config::{Kind, fault_of_type, from_json, kind_of, to_json};
use crate::host_tensor::HostTensor;
use crate::model::Model;
use crate::tensor_file::TensorFile;
use crate::weights::Weights;

const CONFIG: &str = "config.json";

/// The type and the configuration that the `config.json` of a folder says.
fn configuration(folder: &Path) -> Result<(Kind, DecoderConfig), DecoderFilesError> {
    let path = folder.join(CONFIG);
    let file = json_of(&path)?;
    let read = kind_of(&file).and_then(|kind| Ok((kind, from_json(kind, &file)?)));
    read.map_err(|message| DecoderFilesError::File { path, message })
}

/// Whether tensors have the names of a decoder's.
pub(crate) fn is_one(tensors: &BTreeMap<String, HostTensor>) -> bool {
    tensors.keys().any(|name| name.starts_with("model.") || name.starts_with("gpt_neox."))
}

/// The error for tensors that are not a decoder's, where the `config.json` of their folder names another model than a
/// GPT-2. The reader of that file tells its other faults.
pub(crate) fn other_type(folder: &Path) -> Option<DecoderFilesError> {
    let path = folder.join(CONFIG);
    let message = fault_of_type(&json_of(&path).ok()?)?;
    Some(DecoderFilesError::File { path, message })
}

/// The decoder of these tensors, with the configuration of the `config.json` in `folder`.
pub(crate) fn from_tensors(
    mut tensors: BTreeMap<String, HostTensor>,
    folder: &Path,
) -> Result<Weights<DecoderConfig>, DecoderFilesError> {
    let (kind, config) = configuration(folder)?;
    // Constants that some files keep: the angles of rotations, the causal mask.
    let buffers = [".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"];
    tensors.retain(|name, _| !buffers.iter().any(|buffer| name.ends_with(buffer)));
    let mut weights = BTreeMap::new();
    for parameter in config.parameters() {
        let mut parts = Vec::new();
        for (name, rows) in theirs(kind, &config, &parameter.name, parameter.shape[0]) {
            let tensor = tensors.remove(&name).ok_or_else(|| DecoderFilesError::Missing(name.clone()))?;
            let expected = [&[rows], &parameter.shape[1..]].concat();
            if tensor.shape() != expected {
                return Err(DecoderFilesError::Shape { name, found: tensor.shape().to_vec(), expected });
            }
            let found = tensor.dtype();
            if !matches!(found, DType::F32 | DType::BF16 | DType::F16) {
                return Err(DecoderFilesError::DType { name, found });
            }
            parts.push(tensor);
        }
        let exchanged = interleaved(kind, &parameter.name).then_some([config.n_head, 3]);
        let lacking = |source| DecoderFilesError::Memory { name: parameter.name.clone(), source };
        let tensor = joined(parts, &parameter.shape, exchanged).map_err(lacking)?;
        let tensor = tensor.ok_or_else(|| DecoderFilesError::Missing(parameter.name.clone()))?;
        weights.insert(parameter.name, tensor);
    }
    for head in ["lm_head.weight", "embed_out.weight"].into_iter().filter(|_| config.tie_embeddings) {
        let Some(tensor) = tensors.remove(head) else { continue };
        let lacking = |source| DecoderFilesError::Memory { name: head.to_owned(), source };
        let embedding = weights.get("wte.weight").map(HostTensor::widened).transpose().map_err(lacking)?.flatten();
        if tensor.widened().map_err(lacking)? != embedding {
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

/// Files that weights were written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// The index, which names them.
    pub index: PathBuf,
    /// Number of files.
    pub files: usize,
    /// The largest tensor that is larger than a file was to be, with its bytes.
    pub oversized: Option<(String, u64)>,
}

/// As [`save`], in several files of at most `most` bytes of tensors each (or of one tensor), with an index:
/// `NAME-00001-of-00003.safetensors` and `NAME.safetensors.index.json` for a `path` that ends in `NAME.safetensors`.
/// The index is written last.
pub(crate) fn save_sharded(
    weights: &Weights<DecoderConfig>,
    path: &Path,
    most: u64,
) -> Result<Shards, DecoderFilesError> {
    let mut shards: Vec<BTreeMap<String, HostTensor>> = vec![BTreeMap::new()];
    let (mut held, mut total) = (0, 0);
    let mut largest: Option<(String, u64)> = None;
    for (name, tensor) in their_tensors(weights, path)? {
        let bytes = tensor.bytes().len() as u64;
        if bytes > largest.as_ref().map_or(most, |(_, bytes)| *bytes) {
            largest = Some((name.clone(), bytes));
        }
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
    Ok(Shards { index, files: shards.len(), oversized: largest })
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
    let mut tensors = BTreeMap::new();
    for (own, tensor) in weights.tensors() {
        let lacking = |source| DecoderFilesError::Memory { name: own.clone(), source };
        let exchanged = interleaved(kind, own).then(|| blocks_exchanged(tensor.bytes(), [3, config.n_head]));
        let exchanged = exchanged.transpose().map_err(lacking)?;
        let bytes = exchanged.as_deref().unwrap_or(tensor.bytes());
        let row = bytes.len() / tensor.shape()[0];
        let mut start = 0;
        for (name, rows) in theirs(kind, config, own, tensor.shape()[0]) {
            let (end, shape) = (start + rows * row, [&[rows], &tensor.shape()[1..]].concat());
            let part = HostTensor::new(DType::F32, &shape, try_copy(&bytes[start..end]).map_err(lacking)?);
            tensors.insert(name.clone(), part.map_err(|_| DecoderFilesError::Missing(name))?);
            start = end;
        }
    }
    // It may have fields more that change nothing, such as ids of tokens.
    let same = |old: &str| {
        let old = serde_json::from_str::<Value>(old).ok().filter(|old| kind_of(old) == Ok(kind));
        old.is_some_and(|old| from_json(kind, &old).is_ok_and(|old| from_json(kind, &file) == Ok(old)))
    };
    write_beside(&beside, &format!("{file:#}\n"), same)?;
    Ok(tensors)
}

fn write_tensors(tensors: &BTreeMap<String, HostTensor>, path: &Path) -> Result<(), DecoderFilesError> {
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    durable::replace(path, |writer| TensorFile::write(&metadata, tensors, writer)).map_err(write_failed)
}

/// Whether the rows of a parameter are head by head in the files.
fn interleaved(kind: Kind, name: &str) -> bool {
    kind == Kind::NeoX && name.contains(".attn.qkv.")
}

/// Tensors one below the other, and then with blocks exchanged, if that is asked for. One tensor alone stays where it
/// is; several of different types become f32.
fn joined(
    mut parts: Vec<HostTensor>,
    shape: &[usize],
    exchanged: Option<[usize; 2]>,
) -> Result<Option<HostTensor>, OutOfMemory> {
    if parts.len() == 1 && exchanged.is_none() {
        return Ok(parts.pop());
    }
    let Some(first) = parts.first().map(HostTensor::dtype) else { return Ok(None) };
    let dtype = if parts.iter().all(|part| part.dtype() == first) { first } else { DType::F32 };
    let mut bytes = try_room(shape.iter().product::<usize>() * dtype.size())?;
    for part in parts {
        match part.dtype() == dtype {
            true => bytes.extend_from_slice(part.bytes()),
            false => match part.converted(dtype)? {
                Some(part) => bytes.extend_from_slice(part.bytes()),
                None => return Ok(None),
            },
        }
    }
    if let Some(counts) = exchanged {
        bytes = blocks_exchanged(&bytes, counts)?;
    }
    Ok(HostTensor::new(dtype, shape, bytes).ok())
}

/// Bytes as `outer` times `inner` equal blocks, those of the same inner number brought together.
fn blocks_exchanged(bytes: &[u8], [outer, inner]: [usize; 2]) -> Result<Vec<u8>, OutOfMemory> {
    let block = bytes.len() / (outer * inner);
    let places = (0..inner).flat_map(|i| (0..outer).map(move |o| o * inner + i));
    let mut exchanged = try_room(bytes.len())?;
    places.for_each(|place| exchanged.extend_from_slice(&bytes[place * block..(place + 1) * block]));
    Ok(exchanged)
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
