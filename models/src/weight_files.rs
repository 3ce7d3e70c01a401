//! The files that weights come in: checkpoints of ours, checkpoints of llm.c, safetensors files under Hugging Face's
//! names.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::batches::{BatchPosition, Order};
use crate::checkpoint::{Checkpoint, CheckpointError, FIRST_MOMENT, OptimizerSettings, SECOND_MOMENT, TrainingState};
use crate::decoder::{self, DecoderFilesError};
use crate::hugging_face::{self, HuggingFaceError, Names};
use crate::llmc::{Kind, LlmcCheckpoint, LlmcError, Version};
use crate::model::Model;
use crate::model_config::{Family, ModelConfig};
use crate::nonfinite::NonFinite;
use crate::random::fingerprint;
use crate::schedule::Schedule;
use crate::tensor_file::{TensorFile, TensorFileError};
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::tokenizer_file::{self, TokenizerFile};
use crate::weights::{FamilyWeights, Weights, WeightsError};

/// A file of weights that cannot be used, or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WeightFileError {
    /// The file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// No format has this name.
    #[error("unknown format '{0}', expected one of {names}", names = Format::ALL.map(Format::name).join(", "))]
    UnknownFormat(String),
    /// The end of a file's name tells no format.
    #[error("'{}' ends in neither .bin (llm.c) nor .safetensors (Hugging Face): say which format it \
             gets", path.display())]
    UnknownExtension {
        /// The file.
        path: PathBuf,
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
         'gpt2', 'bytes' or, to generate, a tokenizer.json"
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
        /// The value.
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
    #[error(
        "'{}': the format {format} holds models of the family gpt2 alone, the weights are those of a {family} model",
        path.display()
    )]
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
    /// Files that are no decoder of Hugging Face's.
    #[error("'{}': {source}", path.display())]
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

/// A format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A checkpoint of a training run of ours.
    Checkpoint,
    /// A checkpoint of llm.c.
    Llmc(Version),
    /// A safetensors file under Hugging Face's names.
    HuggingFace,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 5] = [
        Format::Checkpoint,
        Format::Llmc(Version::F32),
        Format::Llmc(Version::Bf16),
        Format::Llmc(Version::F32Unpadded),
        Format::HuggingFace,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Checkpoint => "checkpoint",
            Format::Llmc(Version::F32) => "llmc",
            Format::Llmc(Version::Bf16) => "llmc-bf16",
            Format::Llmc(Version::F32Unpadded) => "llmc-v1",
            Format::HuggingFace => "huggingface",
        }
    }

    /// The default format of a file of this name: llm.c's in f32 for `.bin`, Hugging Face's for `.safetensors`.
    pub fn of_name(path: &Path) -> Result<Format, WeightFileError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin") => Ok(Format::Llmc(Version::F32)),
            Some("safetensors") => Ok(Format::HuggingFace),
            _ => Err(WeightFileError::UnknownExtension { path: path.to_owned() }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = WeightFileError;

    fn from_str(name: &str) -> Result<Self, WeightFileError> {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| WeightFileError::UnknownFormat(name.to_owned()))
    }
}

/// Weights from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The weights.
    pub weights: Weights<ModelConfig>,
    /// What the file was.
    pub format: Format,
    /// The tokenizer's name, where the file has it: in checkpoints of ours.
    pub tokenizer: Option<String>,
    /// The `tokenizer.json` that is beside the file, of those under Hugging Face's names.
    pub tokenizer_file: Option<PathBuf>,
}

impl Loaded {
    /// The model's own tokenizer: of the `tokenizer.json` beside the file, or else the [named](Self::named_tokenizer)
    /// one.
    ///
    /// # Errors
    /// Beside those of a named one, a faulty file, and a tokenizer with more ids than the model.
    pub fn tokenizer(&self) -> Result<Tokenizer, WeightFileError> {
        let Some(path) = &self.tokenizer_file else { return self.named_tokenizer() };
        let tokenizer = Tokenizer::File(Arc::new(TokenizerFile::load(path)?));
        self.check_vocabulary(&tokenizer)?;
        Ok(tokenizer)
    }

    /// Checks that the model has all ids of a tokenizer.
    pub fn check_vocabulary(&self, tokenizer: &Tokenizer) -> Result<(), WeightFileError> {
        let (ids, vocabulary) = (tokenizer.vocabulary(), self.weights.config().vocabulary());
        let tokenizer = tokenizer.name().into_owned();
        if ids > vocabulary { Err(WeightFileError::LargeTokenizer { tokenizer, ids, vocabulary }) } else { Ok(()) }
    }

    /// The tokenizer that the file names, or else the largest that is compiled into the program and that the vocabulary
    /// has room for. Its name can be stored in a checkpoint.
    pub fn named_tokenizer(&self) -> Result<Tokenizer, WeightFileError> {
        let vocabulary = self.weights.config().vocabulary();
        let named = self.tokenizer.as_deref().and_then(|name| Tokenizer::from_name(name).ok());
        let known = [Tokenizer::Gpt2, Tokenizer::Bytes];
        match self.weights.config().family() {
            _ if named.is_some() => Ok(named),
            Family::Gpt2 => Ok(known.into_iter().find(|known| known.vocabulary() <= vocabulary)),
            // Published ones have tokenizers of their own: of another one, every id would mean another text.
            Family::Llama => Err(WeightFileError::OtherTokenizer { vocabulary }),
        }?
        .ok_or(WeightFileError::NoTokenizer { vocabulary })
    }
}

/// Reads weights from a file of any format, which its content tells. `heads` is the number of attention heads, for
/// files under Hugging Face's names: see [`hugging_face::read`] for where it comes from otherwise. Weights that are not
/// finite are an error.
pub fn load(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let loaded = load_unchecked(path, heads)?;
    match NonFinite::among(loaded.weights.tensors()) {
        Some(found) => Err(WeightFileError::NonFinite { path: path.to_owned(), found }),
        None => Ok(loaded),
    }
}

/// As [`load`], whatever the values are.
pub fn load_unchecked(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    if path.is_dir() || path.to_string_lossy().ends_with(".index.json") {
        let read = decoder::hugging_face::load(path);
        let weights = read.map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source })?;
        return Ok(of_hugging_face(weights.into(), path));
    }
    let mut start = Vec::new();
    let opened = std::fs::File::open(path).and_then(|file| file.take(8).read_to_end(&mut start));
    opened.map_err(|source| WeightFileError::Read { path: path.to_owned(), source })?;
    match Kind::of(&start) {
        Some(Kind::Checkpoint) => {}
        Some(other) => {
            let (found, expected) = (other.words().into(), "weights of a model".into());
            return Err(WeightFileError::OtherKind { path: path.to_owned(), found, expected });
        }
        // The complaint is that of the format which the name promises.
        None if path.extension().is_some_and(|extension| extension == "bin") => {}
        None => return load_safetensors(path, heads),
    }
    let LlmcCheckpoint { version, weights, .. } = LlmcCheckpoint::load(path)?;
    let format = Format::Llmc(version);
    Ok(Loaded { weights: weights.into(), format, tokenizer: None, tokenizer_file: None })
}

/// Weights that were read from a file or folder under Hugging Face's names.
fn of_hugging_face(weights: Weights<ModelConfig>, path: &Path) -> Loaded {
    let beside =
        if path.is_dir() { path.join(tokenizer_file::FILE) } else { path.with_file_name(tokenizer_file::FILE) };
    let tokenizer_file = Some(beside).filter(|path| path.is_file());
    Loaded { weights, format: Format::HuggingFace, tokenizer: None, tokenizer_file }
}

fn load_safetensors(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let file = TensorFile::load(path)?;
    if !Checkpoint::is_one(&file) {
        if decoder::hugging_face::is_one(&file) {
            let weights = decoder::hugging_face::of_file(file, path)
                .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source })?;
            return Ok(of_hugging_face(weights.into(), path));
        }
        let weights = hugging_face::read(file, heads, path.parent());
        let weights = weights.map_err(|source| WeightFileError::HuggingFace { path: path.to_owned(), source })?;
        return Ok(of_hugging_face(weights.into(), path));
    }
    let read = Checkpoint::from_file(file).and_then(|checkpoint| {
        checkpoint.validate_tensors()?;
        Ok(checkpoint)
    });
    let Checkpoint { state, mut tensors } = read.map_err(|error| error.in_file(path))?;
    tensors.retain(|name, _| !name.starts_with(FIRST_MOMENT) && !name.starts_with(SECOND_MOMENT));
    let weights = Weights::new(state.model, tensors)
        .map_err(|source| WeightFileError::Weights { path: path.to_owned(), source })?;
    let tokenizer = Some(state.tokenizer);
    Ok(Loaded { weights, format: Format::Checkpoint, tokenizer, tokenizer_file: None })
}

/// Writes weights to a file of this format, whole or not at all, whatever their values are. `tokenizer` is what a
/// checkpoint gets; `names` is how a safetensors file calls its tensors.
pub fn save(
    weights: Weights<ModelConfig>,
    format: Format,
    tokenizer: &Tokenizer,
    names: Names,
    path: &Path,
) -> Result<(), WeightFileError> {
    if format == Format::Checkpoint {
        return Ok(checkpoint_of(weights, tokenizer).save_unchecked(path)?);
    }
    let family = weights.config().family();
    match (format, weights.by_family()) {
        (Format::Llmc(version), FamilyWeights::Gpt2(weights)) => Ok(LlmcCheckpoint::new(weights, version).save(path)?),
        (_, FamilyWeights::Gpt2(weights)) => hugging_face::save(&weights, names, path)
            .map_err(|source| WeightFileError::HuggingFace { path: path.to_owned(), source }),
        (Format::HuggingFace, FamilyWeights::Decoder(weights)) => decoder::hugging_face::save(&weights, path)
            .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source }),
        (_, FamilyWeights::Decoder(_)) => Err(WeightFileError::Family { path: path.to_owned(), format, family }),
    }
}

/// Writes a llama under Hugging Face's names in several files of at most `most` bytes of tensors each, with an index
/// beside them; `path` is the name that one file would have. Gives the path of the index and the number of files.
///
/// # Errors
/// A model of another family, and what cannot be written.
pub fn save_sharded(
    weights: Weights<ModelConfig>,
    most: u64,
    path: &Path,
) -> Result<(PathBuf, usize), WeightFileError> {
    match weights.by_family() {
        FamilyWeights::Decoder(weights) => decoder::hugging_face::save_sharded(&weights, path, most)
            .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source }),
        FamilyWeights::Gpt2(_) => Err(WeightFileError::Unsharded { path: path.to_owned() }),
    }
}

/// A checkpoint at step 0: moments of 0, settings that nothing was trained with, and a place in no data. It is there to
/// be sampled from and to start a run with; resuming it is refused, since no data has its fingerprint.
pub fn checkpoint_of(weights: Weights<ModelConfig>, tokenizer: &Tokenizer) -> Checkpoint {
    let (config, mut tensors) = weights.into_parts();
    let zeros: Vec<_> = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.zeros_like())).collect();
    for (name, zeros) in zeros {
        tensors.insert(format!("{FIRST_MOMENT}{name}"), zeros.clone());
        tensors.insert(format!("{SECOND_MOMENT}{name}"), zeros);
    }
    let state = TrainingState {
        step: 0,
        tokenizer: tokenizer.name().into_owned(),
        data: BatchPosition {
            seed: 0,
            order: Order::Shuffled,
            epoch: 0,
            batch: 0,
            rows: 1,
            context: config.context(),
            tokens: 0,
            fingerprint: fingerprint([]),
        },
        model: config,
        accumulation: 1,
        schedule: Schedule::constant(0.0),
        optimizer: OptimizerSettings::default(),
        seed: 0,
        random_offset: 0,
        notes: BTreeMap::from([("made".to_owned(), "from weights alone".to_owned())]),
    };
    Checkpoint { state, tensors }
}

#[cfg(test)]
#[path = "weight_files_tests.rs"]
mod tests;
