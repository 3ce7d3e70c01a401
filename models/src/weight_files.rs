//! The files that weights come in: checkpoints of ours, checkpoints of llm.c, files under Hugging Face's and LitGPT's
//! names.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::batches::{BatchPosition, Order};
use crate::checkpoint::{Checkpoint, TrainingState};
use crate::checkpoint_parts::checkpoint_of_part;
use crate::decoder::files::{self, names_several};
pub use crate::decoder::hugging_face::Shards;
use crate::decoder::{self, DecoderFilesError};
use crate::foreign_file;
use crate::gguf_file::MAGIC;
use crate::gguf_tokenizer::Own;
use crate::hugging_face::{self, Names};
use crate::kept;
use crate::llmc::{Kind, LlmcCheckpoint, Version};
use crate::model::Model;
use crate::model_config::{Family, ModelConfig};
use crate::nonfinite::NonFinite;
use crate::optimizer::{FIRST_MOMENT, OptimizerSettings, SECOND_MOMENT};
use crate::random::fingerprint;
use crate::schedule::Schedule;
use crate::tensor_file::TensorFile;
use crate::tokenizer::Tokenizer;
use crate::tokenizer_file::TokenizerFile;
use crate::tokenizer_vocabulary;
use crate::torch;
use crate::weights::{FamilyWeights, Weights};
use fulgurite_kernels::buffer::OutOfMemory;

pub use crate::weight_file_error::WeightFileError;
pub use crate::weight_format::Format;

impl Format {
    /// The default format of a file of this name: llm.c's in f32 for `.bin`, Hugging Face's for `.safetensors`,
    /// LitGPT's for `.pth`.
    pub fn of_name(path: &Path) -> Result<Format, WeightFileError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin") => Ok(Format::Llmc(Version::F32)),
            Some("safetensors") => Ok(Format::HuggingFace),
            Some("pth") => Ok(Format::LitGpt),
            _ => Err(WeightFileError::UnknownExtension { path: path.to_owned() }),
        }
    }
}

impl FromStr for Format {
    type Err = WeightFileError;

    fn from_str(name: &str) -> Result<Self, WeightFileError> {
        let found = Format::ALL.into_iter().chain([Format::Gguf]).find(|format| format.name() == name);
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
    /// The file of the model's tokenizer, of weights under the names of others: what is beside them, or a GGUF itself.
    pub tokenizer_file: Option<PathBuf>,
}

impl Loaded {
    /// Fails if a weight is infinite or no number. `path` is the file, for the error.
    pub fn check_finite(&self, path: &Path) -> Result<(), WeightFileError> {
        match NonFinite::among(self.weights.tensors()) {
            Some(found) => Err(WeightFileError::NonFinite { path: path.to_owned(), found }),
            None => Ok(()),
        }
    }

    /// The folder for the files of the model's tokenizer: that of weights under the names of others, or that of the
    /// file which a checkpoint names. `path` was loaded; a GGUF that has its tokenizer has no such folder.
    pub fn tokenizer_folder(&self, path: &Path) -> Option<PathBuf> {
        match self.format {
            Format::Gguf if self.tokenizer_file.as_deref() == Some(path) => None,
            Format::HuggingFace | Format::LitGpt | Format::Gguf => Some(files::folder_of(path).to_owned()),
            Format::Checkpoint => {
                let file = self.tokenizer.as_deref().filter(|name| Tokenizer::names_file(name))?;
                Path::new(file).parent().map(Path::to_owned)
            }
            Format::Llmc(_) => None,
        }
    }

    /// The model's own tokenizer: that in the file or beside it, or else the [named](Self::named_tokenizer)
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

    /// The tokenizer that the file names, which may be a `tokenizer.json`, or else the largest that is compiled into
    /// the program and that the vocabulary has room for. Its name can be stored in a checkpoint.
    pub fn named_tokenizer(&self) -> Result<Tokenizer, WeightFileError> {
        let vocabulary = self.weights.config().vocabulary();
        if let Some(file) = self.tokenizer.as_deref().filter(|name| Tokenizer::names_file(name)) {
            let tokenizer = Tokenizer::open(file)?;
            self.check_vocabulary(&tokenizer)?;
            return Ok(tokenizer);
        }
        let named = self.tokenizer.as_deref().and_then(|name| Tokenizer::from_name(name).ok());
        let known = [Tokenizer::Gpt2, Tokenizer::Bytes];
        match self.weights.config().family() {
            _ if named.is_some() => Ok(named),
            Family::Gpt2 => Ok(known.into_iter().find(|known| known.vocabulary() <= vocabulary)),
            // Published ones have tokenizers of their own: of another one, every id would mean another text.
            Family::Llama | Family::Images(_) => Err(WeightFileError::OtherTokenizer { vocabulary }),
        }?
        .ok_or(WeightFileError::NoTokenizer { vocabulary })
    }
}

/// Reads weights in f32 from a file of any format, which its content tells. `heads` is the number of attention heads,
/// for files under Hugging Face's names: see [`hugging_face::read`] for where it comes from otherwise. Weights that are
/// not finite are an error.
pub fn load(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let loaded = open(path, heads)?;
    loaded.check_finite(path)?;
    let weights =
        loaded.weights.widened().map_err(|source| WeightFileError::Memory { path: path.to_owned(), source })?;
    Ok(Loaded { weights, ..loaded })
}

/// As [`load`], whatever the values are.
pub fn load_unchecked(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let loaded = open(path, heads)?;
    let weights =
        loaded.weights.widened().map_err(|source| WeightFileError::Memory { path: path.to_owned(), source })?;
    Ok(Loaded { weights, ..loaded })
}

/// As [`load`], whatever the values are, and in the element types that the file has them in. A safetensors file is
/// mapped into memory: its values are read when they are used, and the file must not be changed in place until then.
/// The folder of a training run stands for its newest checkpoint.
pub fn open(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let path = &*kept::of_run(path);
    if names_several(path) {
        return gathered(path, heads);
    }
    if let Some(checkpoint) = checkpoint_of_part(path) {
        return Err(WeightFileError::Part { path: path.to_owned(), checkpoint });
    }
    let mut start = Vec::new();
    let opened =
        std::fs::File::open(path).and_then(|file| file.take(foreign_file::START as u64).read_to_end(&mut start));
    opened.map_err(|source| WeightFileError::Read { path: path.to_owned(), source })?;
    if start.starts_with(MAGIC) {
        let of_file = |source| WeightFileError::Decoder { path: path.to_owned(), source };
        let (weights, tokenizer) = decoder::gguf::read(path).map_err(of_file)?;
        // The reason why the file's own is refused is told where there is no other one.
        let of = |wanted: Own| (tokenizer == wanted).then(|| path.to_owned());
        let beside = || tokenizer_vocabulary::in_folder(files::folder_of(path));
        let tokenizer_file = of(Own::Read).or_else(beside).or_else(|| of(Own::Refused));
        return Ok(Loaded { weights: weights.into(), format: Format::Gguf, tokenizer: None, tokenizer_file });
    }
    if let Some(told) = foreign_file::told(&start) {
        return Err(WeightFileError::Foreign { path: path.to_owned(), told });
    }
    match Kind::of(&start) {
        Some(Kind::Checkpoint) => {}
        Some(other) => {
            let (found, expected) = (other.words().into(), "weights of a model".into());
            return Err(WeightFileError::OtherKind { path: path.to_owned(), found, expected });
        }
        None if torch::is_archive(&start) || torch::is_old(&start) => return gathered(path, heads),
        None if path.extension().is_some_and(|extension| extension == "pth" || extension == "pt") => {
            return gathered(path, heads);
        }
        // The complaint is that of the format which the name promises.
        None if path.extension().is_some_and(|extension| extension == "bin") => {}
        None => return load_safetensors(path, heads),
    }
    let LlmcCheckpoint { version, weights, .. } = LlmcCheckpoint::load(path)?;
    let format = Format::Llmc(version);
    Ok(Loaded { weights: weights.into(), format, tokenizer: None, tokenizer_file: None })
}

/// The weights of a folder, an index, or a file of other programs.
fn gathered(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let read = files::gather(path);
    let file = read.map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source })?;
    of_others(file, heads, path)
}

/// The weights of tensors under the names of others, which tell whose they are.
fn of_others(file: TensorFile, heads: Option<usize>, path: &Path) -> Result<Loaded, WeightFileError> {
    let folder = files::folder_of(path);
    let decoder = |source| WeightFileError::Decoder { path: path.to_owned(), source };
    if file.tensors.is_empty() {
        let (path, message) = (path.to_owned(), "has no tensors".to_owned());
        return Err(decoder(DecoderFilesError::File { path, message }));
    }
    let (weights, format) = if decoder::litgpt::is_one(&file.tensors) {
        let weights = decoder::litgpt::from_tensors(file.tensors, folder).map_err(decoder)?;
        (weights.into(), Format::LitGpt)
    } else if decoder::hugging_face::is_one(&file.tensors) {
        let weights = decoder::hugging_face::from_tensors(file.tensors, folder).map_err(decoder)?;
        (weights.into(), Format::HuggingFace)
    } else if let Some(error) = decoder::hugging_face::other_type(folder) {
        return Err(decoder(error));
    } else {
        let weights = hugging_face::read(file, heads, Some(folder));
        let weights = weights.map_err(|source| WeightFileError::HuggingFace { path: path.to_owned(), source })?;
        (weights.into(), Format::HuggingFace)
    };
    let tokenizer_file = tokenizer_vocabulary::in_folder(folder);
    Ok(Loaded { weights, format, tokenizer: None, tokenizer_file })
}

fn load_safetensors(path: &Path, heads: Option<usize>) -> Result<Loaded, WeightFileError> {
    let file = TensorFile::map(path)?;
    if !Checkpoint::is_one(&file) {
        return of_others(file, heads, path);
    }
    let read = Checkpoint::from_file(file, Some(path)).and_then(|checkpoint| {
        checkpoint.validate_tensors()?;
        Ok(checkpoint)
    });
    let Checkpoint { state, mut tensors } = read.map_err(|error| error.in_file(path))?;
    let family = state.model.family();
    if family.images().is_some() {
        return Err(WeightFileError::Images { path: path.to_owned(), family });
    }
    tensors.retain(|name, _| !name.starts_with(FIRST_MOMENT) && !name.starts_with(SECOND_MOMENT));
    let weights = Weights::new(state.model, tensors)
        .map_err(|source| WeightFileError::Weights { path: path.to_owned(), source })?;
    let tokenizer = Some(Tokenizer::found(state.tokenizer, path));
    Ok(Loaded { weights, format: Format::Checkpoint, tokenizer, tokenizer_file: None })
}

/// Writes weights in f32 to a file of this format, whole or not at all, whatever their values are. `tokenizer` is what
/// a checkpoint gets; `names` is how a safetensors file calls its tensors.
pub fn save(
    weights: Weights<ModelConfig>,
    format: Format,
    tokenizer: &Tokenizer,
    names: Names,
    path: &Path,
) -> Result<(), WeightFileError> {
    let lacking = |source| WeightFileError::Memory { path: path.to_owned(), source };
    let weights = weights.widened().map_err(lacking)?;
    if format == Format::Checkpoint {
        return Ok(checkpoint_of(weights, tokenizer).map_err(lacking)?.save_unchecked(path)?);
    }
    let family = weights.config().family();
    match (format, weights.by_family()) {
        (Format::Llmc(version), FamilyWeights::Gpt2(weights)) => {
            Ok(LlmcCheckpoint::new(weights, version).map_err(lacking)?.save(path)?)
        }
        (Format::HuggingFace, FamilyWeights::Gpt2(weights)) => hugging_face::save(&weights, names, path)
            .map_err(|source| WeightFileError::HuggingFace { path: path.to_owned(), source }),
        (Format::HuggingFace, FamilyWeights::Decoder(weights)) => decoder::hugging_face::save(&weights, path)
            .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source }),
        (Format::LitGpt, FamilyWeights::Decoder(weights)) => decoder::litgpt::save(&weights, path)
            .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source }),
        _ => Err(WeightFileError::Family { path: path.to_owned(), format, family }),
    }
}

/// Writes a llama under Hugging Face's names in several files of at most `most` bytes of tensors each, with an index
/// beside them; `path` is the name that one file would have. A larger tensor has a file of its own.
///
/// # Errors
/// A model of another family, and what cannot be written.
pub fn save_sharded(weights: Weights<ModelConfig>, most: u64, path: &Path) -> Result<Shards, WeightFileError> {
    let lacking = |source| WeightFileError::Memory { path: path.to_owned(), source };
    match weights.widened().map_err(lacking)?.by_family() {
        FamilyWeights::Decoder(weights) => decoder::hugging_face::save_sharded(&weights, path, most)
            .map_err(|source| WeightFileError::Decoder { path: path.to_owned(), source }),
        FamilyWeights::Gpt2(_) | FamilyWeights::Images(_) => Err(WeightFileError::Unsharded { path: path.to_owned() }),
    }
}

/// A checkpoint at step 0: moments of 0, settings that nothing was trained with, and a place in no data. It is there to
/// be sampled from and to start a run with; resuming it is refused, since no data has its fingerprint.
pub fn checkpoint_of(weights: Weights<ModelConfig>, tokenizer: &Tokenizer) -> Result<Checkpoint, OutOfMemory> {
    let (config, mut tensors) = weights.into_parts();
    let zeros = tensors.iter().map(|(name, tensor)| Ok((name.clone(), tensor.zeros_like()?)));
    let zeros: Vec<_> = zeros.collect::<Result<_, OutOfMemory>>()?;
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
    Ok(Checkpoint { state, tensors })
}

#[cfg(test)]
#[path = "weight_files_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "config_keys_tests.rs"]
mod keys_tests;
