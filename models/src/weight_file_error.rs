//! What is wrong with a file of weights.

use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::CheckpointError;
use crate::decoder::DecoderFilesError;
use crate::hugging_face::HuggingFaceError;
use crate::llmc::LlmcError;
use crate::model_config::Family;
use crate::nonfinite::NonFinite;
use crate::tensor_file::TensorFileError;
use crate::tokenizer_error::TokenizerError;
use crate::weight_format::Format;
use crate::weights::WeightsError;
use fulgurite_kernels::buffer::OutOfMemory;

/// A file of weights that cannot be used, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WeightFileError {
    /// The file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// Weights that there is no memory for.
    #[error("'{}': {source}", path.display())]
    Memory {
        /// The file that is read or written.
        path: PathBuf,
        /// The bytes.
        source: OutOfMemory,
    },
    /// Tensors that are no model's.
    #[error("'{}': {source}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        source: WeightsError,
    },
    /// A file of another kind.
    #[error("'{}' is {found}, expected {expected}", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// The kind of file found.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A file that only names another one, or is of another program.
    #[error("'{}' {told}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        told: &'static str,
    },
    /// No format has this name.
    #[error(
        "unknown format '{0}', expected one of {names}, or gguf, which is read alone",
        names = Format::ALL.map(Format::name).join(", ")
    )]
    UnknownFormat(String),
    /// The end of a file's name tells no format.
    #[error("'{}' ends in neither .bin (llm.c), .safetensors (Hugging Face) nor .pth (LitGPT): say which format it \
             gets", path.display())]
    UnknownExtension {
        /// The file.
        path: PathBuf,
    },
    /// A part of a checkpoint, which another file names.
    #[error(
        "'{}' is one of the parts of a checkpoint that several ranks wrote: name the checkpoint, '{}', which reads all \
         of them, or the folder",
        path.display(),
        checkpoint.display()
    )]
    Part {
        /// The file.
        path: PathBuf,
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A model that has no tokens.
    #[error(
        "'{}' holds weights of a {family} model, which reads images; expected those of a model of text",
        path.display()
    )]
    Images {
        /// The file.
        path: PathBuf,
        /// The model's family.
        family: Family,
    },
    /// A model for which no tokenizer is known.
    #[error(
        "a vocabulary of {vocabulary} is smaller than that of every tokenizer, of which 'bytes' has the least with \
         256 ids"
    )]
    NoTokenizer {
        /// V.
        vocabulary: usize,
    },
    /// A decoder of others, whose tokenizer is not known.
    #[error(
        "the files do not say which tokenizer the model of {vocabulary} ids was trained with: say which (--tokenizer), \
         'gpt2', 'bytes' or a tokenizer.json"
    )]
    OtherTokenizer {
        /// V.
        vocabulary: usize,
    },
    /// A tokenizer with ids that the model does not have.
    #[error("the tokenizer '{tokenizer}' has {ids} ids, the model has a vocabulary of {vocabulary}")]
    LargeTokenizer {
        /// The tokenizer's name, or its file.
        tokenizer: String,
        /// Number of its ids.
        ids: usize,
        /// V.
        vocabulary: usize,
    },
    /// A faulty tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A weight that is infinite or no number.
    #[error("'{}': {found}: the weights of a run that diverged, with which nothing can be computed", path.display())]
    NonFinite {
        /// The file.
        path: PathBuf,
        /// The first value that is not finite.
        found: NonFinite,
    },
    /// A faulty checkpoint of a training run.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A faulty file of llm.c.
    #[error(transparent)]
    Llmc(#[from] LlmcError),
    /// A faulty safetensors file.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A format that does not hold models of this family.
    #[error("'{}': the format {format} does not hold models of the family {family}", path.display())]
    Family {
        /// The file that was to be written.
        path: PathBuf,
        /// The format.
        format: Format,
        /// The family.
        family: Family,
    },
    /// Files of a family that comes in one.
    #[error("'{}': a gpt2 is written as one file, shards are of a llama", path.display())]
    Unsharded {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// Files that are no decoder of Hugging Face's or LitGPT's.
    #[error("{}", within(path, source))]
    Decoder {
        /// The file or the folder.
        path: PathBuf,
        /// What is wrong with it.
        source: DecoderFilesError,
    },
    /// Tensors that are no GPT-2 of Hugging Face's.
    #[error("'{}': {source}", path.display())]
    HuggingFace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: HuggingFaceError,
    },
}

/// A message that names a file: its own, or else `path`.
fn within(path: &Path, source: &DecoderFilesError) -> String {
    if source.names_file() { source.to_string() } else { format!("'{}': {source}", path.display()) }
}
