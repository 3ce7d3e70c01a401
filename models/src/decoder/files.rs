//! Files of other programs' weights: which of them a path means, the tensors in them, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use serde_json::Value;

use crate::foreign_file;
use crate::kept;
use crate::tensor_file::{TensorFile, TensorFileError};
use crate::torch::{self, TorchError};
use crate::weights::WeightsError;

/// What a folder is looked through for, in this order: Hugging Face's safetensors, whole or with an index, LitGPT's
/// file, Hugging Face's older files.
const FILES: [&str; 5] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "lit_model.pth",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The ends of names of files of `torch.save`.
const TORCH: [&str; 3] = ["pth", "pt", "bin"];

/// Files that are no decoder of others, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DecoderFilesError {
    /// A file of JSON or YAML that cannot be used.
    #[error("'{}': {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A tensor that there is no memory for.
    #[error("tensor {name:?}: {source}")]
    Memory {
        /// The tensor.
        name: String,
        /// The bytes.
        source: OutOfMemory,
    },
    /// A file that only names another one, or is of another program.
    #[error("'{}' {told}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        told: &'static str,
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
    /// A configuration that LitGPT does not compute.
    #[error("LitGPT computes no decoder whose {0}")]
    NotOfLitGpt(String),
    /// A faulty safetensors file.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A faulty file of `torch.save`.
    #[error(transparent)]
    Torch(#[from] TorchError),
    /// Tensors that are no model's.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(#[source] std::io::Error),
}

impl DecoderFilesError {
    /// Whether the message names a file itself.
    pub(crate) fn names_file(&self) -> bool {
        use DecoderFilesError::{File, Foreign};
        matches!(self, File { .. } | Foreign { .. } | DecoderFilesError::Tensors(_) | DecoderFilesError::Torch(_))
    }
}

/// Whether a path names several files of weights: a folder, or an index.
pub(crate) fn names_several(path: &Path) -> bool {
    path.is_dir() || path.to_string_lossy().ends_with(".index.json")
}

/// The tensors of a folder, of the files of an index, or of one file.
pub(crate) fn gather(path: &Path) -> Result<TensorFile, DecoderFilesError> {
    if !path.is_dir() {
        // A file that was named is read, also where there is none: no other takes its place.
        return of_one(path);
    }
    match FILES.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
        Some(file) => of_one(&file),
        None => {
            let gguf = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let gguf = gguf.map(|name| name.to_string_lossy().into_owned()).find(|name| name.ends_with(".gguf"));
            let gguf = gguf.map_or(String::new(), |name| {
                format!("; it has '{name}', a GGUF file of llama.cpp: name the file itself")
            });
            let message = format!("has no {} of a training run, and no {}{gguf}", kept::NEWEST, FILES.join(", "));
            Err(DecoderFilesError::File { path: path.to_owned(), message })
        }
    }
}

fn of_one(path: &Path) -> Result<TensorFile, DecoderFilesError> {
    if names_several(path) { of_index(path) } else { of_file(path) }
}

/// One file, whose content tells what it is.
fn of_file(path: &Path) -> Result<TensorFile, DecoderFilesError> {
    let mut start = Vec::new();
    // A missing file is an error of its reader.
    let _ = std::fs::File::open(path).and_then(|file| file.take(foreign_file::START as u64).read_to_end(&mut start));
    if let Some(told) = foreign_file::told(&start) {
        return Err(DecoderFilesError::Foreign { path: path.to_owned(), told });
    }
    let named = path.extension().is_some_and(|extension| TORCH.iter().any(|torch| extension == *torch));
    if named || torch::is_archive(&start) || torch::is_old(&start) {
        return Ok(TensorFile { metadata: BTreeMap::new(), tensors: torch::load(path)? });
    }
    Ok(TensorFile::map(path)?)
}

fn of_index(index: &Path) -> Result<TensorFile, DecoderFilesError> {
    let wrong = |message: String| DecoderFilesError::File { path: index.to_owned(), message };
    let map = json_of(index)?;
    let map = map.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| wrong("has no object weight_map".into()))?;
    // A model that was wrapped as it was saved has the wrapper's names in the index and in the files.
    let twice = |name: String| wrong(format!("weight_map has two tensors named {name:?}"));
    let map = torch::unwrapped(map).map_err(twice)?;
    let names: BTreeSet<Option<&str>> = map.values().map(|name| name.as_str()).collect();
    let mut all = TensorFile::default();
    for name in names {
        // A file beside the index, and no other place.
        let beside = name.filter(|name| Path::new(name).file_name().is_some_and(|own| own == *name));
        let name = beside.ok_or_else(|| wrong("weight_map has a value that is no name of a file".into()))?;
        let shard = torch::unwrapped(of_file(&folder_of(index).join(name))?.tensors);
        let shard = shard.map_err(|own| wrong(format!("'{name}' has two tensors named {own:?}")))?;
        if let Some(own) = shard.keys().find(|own| map.get(*own).and_then(|file| file.as_str()) != Some(name)) {
            return Err(wrong(format!("'{name}' has the tensor {own:?}, which weight_map does not say")));
        }
        all.tensors.extend(shard);
    }
    if let Some(name) = map.keys().find(|name| !all.tensors.contains_key(*name)) {
        return Err(wrong(format!("weight_map has the tensor {name:?}, which its file does not have")));
    }
    Ok(all)
}

/// The folder that a file is in, or the folder itself.
pub(crate) fn folder_of(path: &Path) -> &Path {
    if path.is_dir() {
        return path;
    }
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn json_of(path: &Path) -> Result<Value, DecoderFilesError> {
    let wrong = |message: String| DecoderFilesError::File { path: path.to_owned(), message };
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    if let Some(told) = foreign_file::told(&text) {
        return Err(DecoderFilesError::Foreign { path: path.to_owned(), told });
    }
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

/// Writes the file of a configuration. One that is there and does not say the same is left alone, and is an error.
pub(super) fn write_beside(path: &Path, text: &str, same: impl Fn(&str) -> bool) -> Result<(), DecoderFilesError> {
    let wrong = |message: String| DecoderFilesError::File { path: path.to_owned(), message };
    if path.exists() {
        let old = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if !same(&old) {
            let message = "is there already, and not what would be written; choose another folder";
            return Err(wrong(message.to_owned()));
        }
    }
    write_text(path, text)
}

pub(super) fn write_text(path: &Path, text: &str) -> Result<(), DecoderFilesError> {
    durable::replace(path, |writer| std::io::Write::write_all(writer, text.as_bytes())).map_err(write_failed)
}

pub(super) fn write_failed((stage, error): (durable::Stage, std::io::Error)) -> DecoderFilesError {
    DecoderFilesError::Write(std::io::Error::new(error.kind(), format!("{}: {error}", stage.describe())))
}
