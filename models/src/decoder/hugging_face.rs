//! Decoders as Hugging Face's `transformers` stores them: `config.json` and safetensors, one file or several with an
//! index.
//!
//! Queries, keys and values are three tensors there, which are one below the other in ours; GPT-NeoX and Falcon have
//! one tensor in which those of a group of heads are together. Phi 3 has both inputs of SwiGLU in one tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use fulgurite_kernels::scratch::{try_copy, try_room, try_zeroed};
use serde_json::Value;

use super::config::DecoderConfig;
use super::families::{Kind, fault_of_type, kind_of};
use super::files::{DecoderFilesError, folder_of, json_of, write_beside, write_failed, write_text};
use super::hugging_face_config::from_json;
use super::hugging_face_names::{Piece, groups_of_heads, pieces};
use super::hugging_face_written::to_json;
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
    let starts = ["model.", "gpt_neox.", "transformer.word_embeddings."];
    tensors.keys().any(|name| starts.iter().any(|start| name.starts_with(start)))
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
    // Tensors of which parameters are parts, which stay until all of them are read.
    let mut shared = BTreeSet::new();
    for parameter in config.parameters() {
        let mut parts = Vec::new();
        for piece in pieces(kind, &config, &parameter.name, parameter.shape[0]) {
            let missing = || DecoderFilesError::Missing(piece.name.clone());
            let lacking = |source| DecoderFilesError::Memory { name: piece.name.clone(), source };
            let tensor = tensors.get(&piece.name).ok_or_else(missing)?;
            let expected = [&[piece.of], &parameter.shape[1..]].concat();
            if tensor.shape() != expected {
                let (name, found) = (piece.name, tensor.shape().to_vec());
                return Err(DecoderFilesError::Shape { name, found, expected });
            }
            let found = tensor.dtype();
            if !matches!(found, DType::F32 | DType::BF16 | DType::F16) {
                return Err(DecoderFilesError::DType { name: piece.name, found });
            }
            parts.push(match piece.is_whole() {
                true => tensors.remove(&piece.name).ok_or_else(missing)?,
                false => {
                    let rows = rows_of(tensor, &piece).map_err(lacking)?.ok_or_else(missing)?;
                    shared.insert(piece.name);
                    rows
                }
            });
        }
        let groups = groups_of_heads(kind, &config, &parameter.name);
        let lacking = |source| DecoderFilesError::Memory { name: parameter.name.clone(), source };
        let tensor = joined(parts, &parameter.shape, groups).map_err(lacking)?;
        let tensor = tensor.ok_or_else(|| DecoderFilesError::Missing(parameter.name.clone()))?;
        weights.insert(parameter.name, tensor);
    }
    tensors.retain(|name, _| !shared.contains(name));
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
    // Tensors of which parameters are parts, as they are put together.
    let mut shared: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (own, tensor) in weights.tensors() {
        let lacking = |source| DecoderFilesError::Memory { name: own.clone(), source };
        let groups = groups_of_heads(kind, config, own);
        let together = groups.map(|groups| regrouped(tensor.bytes(), groups, Order::Groups)).transpose();
        let together = together.map_err(lacking)?;
        let bytes = together.as_deref().unwrap_or(tensor.bytes());
        let row = bytes.len() / tensor.shape()[0];
        let mut start = 0;
        for piece in pieces(kind, config, own, tensor.shape()[0]) {
            let (end, shape) = (start + piece.rows * row, [&[piece.of], &tensor.shape()[1..]].concat());
            if piece.is_whole() {
                let part = HostTensor::new(DType::F32, &shape, try_copy(&bytes[start..end]).map_err(lacking)?);
                tensors.insert(piece.name.clone(), part.map_err(|_| DecoderFilesError::Missing(piece.name))?);
            } else {
                if !shared.contains_key(&piece.name) {
                    let room = try_zeroed(piece.of * row).map_err(lacking)?;
                    shared.insert(piece.name.clone(), (shape, room));
                }
                if let Some((_, whole)) = shared.get_mut(&piece.name) {
                    let place = piece.start * row..(piece.start + piece.rows) * row;
                    whole[place].copy_from_slice(&bytes[start..end]);
                }
            }
            start = end;
        }
    }
    for (name, (shape, bytes)) in shared {
        let whole = HostTensor::new(DType::F32, &shape, bytes);
        tensors.insert(name.clone(), whole.map_err(|_| DecoderFilesError::Missing(name))?);
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

/// Some rows of a tensor.
fn rows_of(tensor: &HostTensor, piece: &Piece) -> Result<Option<HostTensor>, OutOfMemory> {
    let row = tensor.bytes().len() / piece.of;
    let bytes = try_copy(&tensor.bytes()[piece.start * row..(piece.start + piece.rows) * row])?;
    let shape = [&[piece.rows], &tensor.shape()[1..]].concat();
    Ok(HostTensor::new(tensor.dtype(), &shape, bytes).ok())
}

/// Tensors one below the other, and then with the parts of groups apart, if they are together. One tensor alone stays
/// where it is; several of different types become f32.
fn joined(
    mut parts: Vec<HostTensor>,
    shape: &[usize],
    groups: Option<(usize, [usize; 3])>,
) -> Result<Option<HostTensor>, OutOfMemory> {
    if parts.len() == 1 && groups.is_none() {
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
    if let Some(groups) = groups {
        bytes = regrouped(&bytes, groups, Order::Parts)?;
    }
    Ok(HostTensor::new(dtype, shape, bytes).ok())
}

/// Which rows of heads are beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Queries, keys and values of a group.
    Groups,
    /// The queries of all groups, then the keys, then the values.
    Parts,
}

/// The bytes of heads in this order, of the other one: so many groups, each with so many heads of queries, keys and
/// values.
fn regrouped(bytes: &[u8], (groups, heads): (usize, [usize; 3]), order: Order) -> Result<Vec<u8>, OutOfMemory> {
    let of_group: usize = heads.iter().sum();
    let head = bytes.len() / (groups * of_group);
    let mut runs = Vec::new();
    for (part, count) in heads.into_iter().enumerate() {
        let before: usize = heads[..part].iter().sum();
        let run = |group: usize| {
            let (by_parts, by_groups) = (groups * before + group * count, group * of_group + before);
            (by_parts * head, by_groups * head, count * head)
        };
        runs.extend((0..groups).map(run));
    }
    let mut moved = try_zeroed(bytes.len())?;
    for (by_parts, by_groups, length) in runs {
        let (to, from) = if order == Order::Parts { (by_parts, by_groups) } else { (by_groups, by_parts) };
        moved[to..to + length].copy_from_slice(&bytes[from..from + length]);
    }
    Ok(moved)
}
