//! Checkpoints: a training run at a step, in one safetensors file that other programs can read too.
//!
//! Weights have their own names (`h.0.attn.c_attn.weight`), the optimizer's states have those with
//! [`FIRST_MOMENT`](crate::optimizer::FIRST_MOMENT) and [`SECOND_MOMENT`](crate::optimizer::SECOND_MOMENT) before them;
//! some optimizers lack one of them or both. The metadata holds the [`TrainingState`] as JSON and a CRC-32 of every
//! tensor and of the JSON itself, so that a damaged byte anywhere is an error that says where, not a run that goes on
//! with wrong numbers.
//!
//! A sharded checkpoint has no tensors of its own, and names the files that have them in [parts](Part).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::durable;
use serde::{Deserialize, Serialize};

use crate::batches::BatchPosition;
use crate::checkpoint_parts::{Part, PartError, checksum, tensor_checksum, whole};
use crate::config::ConfigError;
use crate::host_tensor::HostTensor;
use crate::kept;
use crate::model::Model;
use crate::model_config::ModelConfig;
use crate::nonfinite::NonFinite;
use crate::optimizer::OptimizerSettings;
use crate::schedule::{Schedule, ScheduleError};
use crate::tensor_file::{TensorFile, TensorFileError};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// The format written; others are refused.
const FORMAT: u64 = 1;
/// That of sharded checkpoints.
const SHARDED: u64 = 2;
const STATE_KEY: &str = "fulgurite";
const CHECKSUM_KEY: &str = "fulgurite_crc32";

/// Everything of a training run but its tensors: what is needed to continue bit for bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Optimizer steps done; the next step has this number.
    pub step: u64,
    /// The model.
    pub model: ModelConfig,
    /// The tokenizer's name; empty for a model of images.
    pub tokenizer: String,
    /// The position in the training data.
    pub data: BatchPosition,
    /// Batches whose gradients are added up for one step, at least 1.
    pub accumulation: u64,
    /// The learning rate of each step.
    pub schedule: Schedule,
    /// The optimizer's settings.
    pub optimizer: OptimizerSettings,
    /// Seed of initial weights and dropout.
    pub seed: u64,
    /// Random numbers that dropout has used so far.
    pub random_offset: u64,
    /// What the program that trains wants to keep besides, such as the name of the text.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
}

impl TrainingState {
    /// The state in a checkpoint's file, whose tensors are not looked at. Every error names the file.
    pub fn of_file(path: &Path) -> Result<Self, CheckpointError> {
        let file = TensorFile::map(path).map_err(CheckpointError::Tensors);
        let state = file.and_then(|file| described(&file)).map(|metadata| metadata.state);
        state.map_err(|error| error.in_file(path))
    }

    /// The state in the newest checkpoint of a run's folder that can be read.
    pub fn newest(folder: &Path) -> Option<Self> {
        let newest = folder.join(kept::NEWEST);
        let earlier = kept::earlier(&newest).into_iter().map(|(_, path)| path);
        std::iter::once(newest.clone()).chain(earlier).find_map(|path| Self::of_file(&path).ok())
    }

    /// Checks what the types do not: that the settings describe a run that can go on.
    pub fn validate(&self) -> Result<(), CheckpointError> {
        self.model.validate().map_err(CheckpointError::Config)?;
        self.schedule.validate().map_err(CheckpointError::Schedule)?;
        // A file's vocabulary is compared where it is opened; a model of images has no tokenizer.
        let ids = match Tokenizer::from_name(&self.tokenizer) {
            _ if self.model.family().images().is_some() => 0,
            Ok(tokenizer) => tokenizer.vocabulary(),
            Err(_) if Tokenizer::names_file(&self.tokenizer) => 0,
            Err(error) => return Err(CheckpointError::Tokenizer(error)),
        };
        let setting = |field, value, valid| if valid { Ok(()) } else { Err(CheckpointError::Setting { field, value }) };
        self.optimizer.validate().map_err(|(field, value, _)| CheckpointError::Setting { field, value })?;
        setting("accumulation", self.accumulation as f64, self.accumulation > 0)?;
        setting("data.context", self.data.context as f64, (1..=self.model.context()).contains(&self.data.context))?;
        setting("data.rows", self.data.rows as f64, self.data.rows > 0)?;
        setting("model.vocabulary", self.model.vocabulary() as f64, self.model.vocabulary() >= ids)
    }
}

/// A training run at a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Everything but the tensors.
    pub state: TrainingState,
    /// Weights and optimizer state by name.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// A checkpoint that cannot be used, or could not be written. In the latter case the file of that name is as it was,
/// unless the message says that the new one is in place.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Another error, in a file.
    #[error("checkpoint '{}': {fault}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<CheckpointError>,
    },
    /// No safetensors file, or a damaged one.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A part is missing or damaged.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A sharded checkpoint without a folder that its parts are in.
    #[error("the tensors are in {0} other files: load the checkpoint from its folder")]
    NoFolder(usize),
    /// A safetensors file of another program.
    #[error("the header's metadata has no key {0:?}: a file of tensors, but not a checkpoint of a training run")]
    MissingMetadata(&'static str),
    /// Metadata that is not the JSON expected.
    #[error("metadata {STATE_KEY:?}: {0}")]
    Metadata(#[source] serde_json::Error),
    /// Written by a program that is older or newer.
    #[error("metadata {STATE_KEY:?}: the format is {found}, this program reads {FORMAT} and {SHARDED}")]
    Format {
        /// The format found.
        found: u64,
    },
    /// Bytes that changed since they were written.
    #[error("{place} is damaged: its CRC-32 is {found}, but {expected} was written")]
    Checksum {
        /// `metadata` or the tensor.
        place: String,
        /// The checksum stored.
        expected: String,
        /// That of what is there.
        found: String,
    },
    /// A tensor that was not there when the file was written.
    #[error("tensor {0:?} has no checksum in the metadata")]
    NoChecksum(String),
    /// A tensor that the file should have.
    #[error("tensor {0:?} is missing")]
    MissingTensor(String),
    /// A tensor that the model does not have.
    #[error("tensor {0:?} belongs to no parameter of the model")]
    SurplusTensor(String),
    /// A tensor of another shape or type than the model's.
    #[error("tensor {name:?} is {found_dtype} {found:?}, but the model has {expected_dtype} {expected:?}")]
    WrongTensor {
        /// The tensor.
        name: String,
        /// The model's dtype.
        expected_dtype: DType,
        /// The model's shape.
        expected: Vec<usize>,
        /// The dtype found.
        found_dtype: DType,
        /// The shape found.
        found: Vec<usize>,
    },
    /// A weight or a moment that is infinite or no number.
    #[error("{0}: a run that diverged; nothing can be computed with it")]
    NonFinite(NonFinite),
    /// A setting outside its range.
    #[error("metadata {STATE_KEY:?}: {field} is {value}, which is out of range")]
    Setting {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A model that cannot be.
    #[error("metadata {STATE_KEY:?}: model: {0}")]
    Config(#[source] ConfigError),
    /// A schedule that cannot be.
    #[error("metadata {STATE_KEY:?}: schedule: {0}")]
    Schedule(#[source] ScheduleError),
    /// A tokenizer that is not known.
    #[error("metadata {STATE_KEY:?}: tokenizer: {0}")]
    Tokenizer(#[source] TokenizerError),
    /// Writing failed; the file of this name is as it was.
    #[error("cannot write the checkpoint, the previous one is untouched: {doing}: {source}")]
    Write {
        /// What was being done.
        doing: &'static str,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The new file is in place and whole, but may not survive a power failure.
    #[error("the checkpoint is written, but the folder's entry could not be brought to the disk: {0}")]
    NotDurable(#[source] std::io::Error),
}

impl CheckpointError {
    /// That of a file that could not be replaced.
    pub(crate) fn written((stage, source): (durable::Stage, std::io::Error)) -> Self {
        match stage {
            durable::Stage::SyncFolder => CheckpointError::NotDurable(source),
            stage => CheckpointError::Write { doing: stage.describe(), source },
        }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            // It names the file itself.
            CheckpointError::Tensors(TensorFileError::InFile { path, fault }) => {
                CheckpointError::InFile { path, fault: Box::new(CheckpointError::Tensors(*fault)) }
            }
            other => CheckpointError::InFile { path: path.to_owned(), fault: Box::new(other) },
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata<State> {
    format: u64,
    state: State,
    /// CRC-32 of each tensor, eight hexadecimal digits.
    crc32: BTreeMap<String, String>,
    /// Of a sharded checkpoint: the shape of each tensor, and the parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    shapes: BTreeMap<String, Vec<usize>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

impl<State: Serialize> Metadata<State> {
    fn texts(&self) -> Result<BTreeMap<String, String>, CheckpointError> {
        let text = serde_json::to_string(self).map_err(CheckpointError::Metadata)?;
        let checksum = checksum([text.as_bytes()]);
        Ok(BTreeMap::from([(STATE_KEY.to_owned(), text), (CHECKSUM_KEY.to_owned(), checksum)]))
    }
}

fn replace(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: &BTreeMap<String, HostTensor>,
) -> Result<(), CheckpointError> {
    durable::replace(path, |writer| TensorFile::write(metadata, tensors, writer)).map_err(CheckpointError::written)
}

/// Read before the rest, so that another format is called that and not a missing field.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

impl Checkpoint {
    /// Reads a checkpoint held in memory. Never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, CheckpointError> {
        Checkpoint::from_file(TensorFile::parse(bytes)?, None)
    }

    /// Reads a checkpoint; every error names the file and the place in it.
    pub fn load(path: &Path) -> Result<Self, CheckpointError> {
        TensorFile::load(path)
            .map_err(CheckpointError::Tensors)
            .and_then(|file| Checkpoint::from_file(file, Some(path)))
            .map_err(|error| error.in_file(path))
    }

    /// Writes a checkpoint in place of the one at `path`. Whatever happens on the way, a kill included, `path` holds
    /// either the previous checkpoint or this one, whole. Values that are not finite are an error: nothing could use
    /// what replaced a good checkpoint.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        self.validate_finite().and_then(|()| self.save_parts(path)).map_err(|error| error.in_file(path))
    }

    /// As [`save`](Checkpoint::save), whatever the values are.
    pub fn save_unchecked(&self, path: &Path) -> Result<(), CheckpointError> {
        self.save_parts(path).map_err(|error| error.in_file(path))
    }

    /// Checks that no value of any tensor is infinite or no number.
    pub fn validate_finite(&self) -> Result<(), CheckpointError> {
        NonFinite::among(&self.tensors).map_or(Ok(()), |found| Err(CheckpointError::NonFinite(found)))
    }

    fn save_parts(&self, path: &Path) -> Result<(), CheckpointError> {
        self.state.validate()?;
        replace(path, &self.metadata()?, &self.tensors)
    }

    /// Writes a checkpoint whose tensors, of these shapes, are in parts that are on the disk, as [`Checkpoint::save`]
    /// does.
    pub fn save_sharded(
        path: &Path,
        state: &TrainingState,
        shapes: BTreeMap<String, Vec<usize>>,
        parts: Vec<Part>,
    ) -> Result<(), CheckpointError> {
        let written = || {
            state.validate()?;
            let metadata = Metadata { format: SHARDED, state, crc32: BTreeMap::new(), shapes, parts };
            replace(path, &metadata.texts()?, &BTreeMap::new())
        };
        written().map_err(|error| error.in_file(path))
    }

    /// The files of the parts that the checkpoint at `path` has.
    pub fn parts(path: &Path) -> Result<Vec<String>, CheckpointError> {
        let file = TensorFile::map(path).map_err(CheckpointError::Tensors);
        let metadata = file.and_then(|file| described(&file)).map_err(|error| error.in_file(path))?;
        Ok(metadata.parts.into_iter().map(|part| part.file).collect())
    }

    /// The bytes that [`save`](Checkpoint::save) writes; the same checkpoint gives the same bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CheckpointError> {
        self.state.validate()?;
        let mut bytes = Vec::new();
        TensorFile::write(&self.metadata()?, &self.tensors, &mut bytes)
            .map_err(|source| CheckpointError::Write { doing: durable::Stage::Write.describe(), source })?;
        Ok(bytes)
    }

    /// The tensor of this name, if it has this type and shape.
    pub fn tensor(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<&HostTensor, CheckpointError> {
        let tensor = self.tensors.get(name).ok_or_else(|| CheckpointError::MissingTensor(name.to_owned()))?;
        if (tensor.dtype(), tensor.shape()) != (dtype, shape) {
            return Err(CheckpointError::WrongTensor {
                name: name.to_owned(),
                expected_dtype: dtype,
                expected: shape.to_vec(),
                found_dtype: tensor.dtype(),
                found: tensor.shape().to_vec(),
            });
        }
        Ok(tensor)
    }

    /// Checks that the tensors are exactly the model's weights and the optimizer's states of each, of the right shapes,
    /// and all in bf16 (of a run in `bf16-true`) or all in f32, and the model's buffers in f32.
    pub fn validate_tensors(&self) -> Result<(), CheckpointError> {
        let parameters = self.state.model.parameters();
        let first = parameters.first().and_then(|parameter| self.tensors.get(&parameter.name));
        let dtype = first.map(HostTensor::dtype).filter(|dtype| *dtype == DType::BF16).unwrap_or(DType::F32);
        let prefixes = self.state.optimizer.prefixes();
        for parameter in &parameters {
            for prefix in &prefixes {
                self.tensor(&format!("{prefix}{}", parameter.name), dtype, &parameter.shape)?;
            }
        }
        let buffers = self.state.model.buffers();
        for buffer in &buffers {
            self.tensor(&buffer.name, DType::F32, &buffer.shape)?;
        }
        // All of the expected names are there, so more tensors than those means one that is not expected.
        if self.tensors.len() > prefixes.len() * parameters.len() + buffers.len() {
            let known = |name: &str| {
                let named = |weight: &str| parameters.iter().any(|parameter| parameter.name == weight);
                let kept = buffers.iter().any(|buffer| buffer.name == name);
                kept || prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(named)
            };
            if let Some(name) = self.tensors.keys().find(|name| !known(name)) {
                return Err(CheckpointError::SurplusTensor(name.clone()));
            }
        }
        Ok(())
    }

    fn metadata(&self) -> Result<BTreeMap<String, String>, CheckpointError> {
        let crc32 = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor_checksum(name, tensor))).collect();
        Metadata { format: FORMAT, state: &self.state, crc32, shapes: BTreeMap::new(), parts: Vec::new() }.texts()
    }

    /// Whether a file says that it is a checkpoint of a training run.
    pub(crate) fn is_one(file: &TensorFile) -> bool {
        file.metadata.contains_key(STATE_KEY)
    }

    /// `path` is that of the file.
    pub(crate) fn from_file(file: TensorFile, path: Option<&Path>) -> Result<Self, CheckpointError> {
        let Metadata { state, crc32, shapes, parts, .. } = described(&file)?;
        if !parts.is_empty() {
            let path = path.ok_or(CheckpointError::NoFolder(parts.len()))?;
            return Ok(Checkpoint { state, tensors: whole(path, &parts, shapes)? });
        }
        for (name, tensor) in &file.tensors {
            let expected = crc32.get(name).ok_or_else(|| CheckpointError::NoChecksum(name.clone()))?;
            compare(&format!("tensor {name:?}"), expected, tensor_checksum(name, tensor))?;
        }
        if let Some(name) = crc32.into_keys().find(|name| !file.tensors.contains_key(name)) {
            return Err(CheckpointError::MissingTensor(name));
        }
        Ok(Checkpoint { state, tensors: file.tensors })
    }
}

/// What the metadata of a file says, checked.
fn described(file: &TensorFile) -> Result<Metadata<TrainingState>, CheckpointError> {
    let value = |key| file.metadata.get(key).ok_or(CheckpointError::MissingMetadata(key));
    let (text, expected) = (value(STATE_KEY)?, value(CHECKSUM_KEY)?);
    compare("the metadata", expected, checksum([text.as_bytes()]))?;
    let Format { format: found } = serde_json::from_str(text).map_err(CheckpointError::Metadata)?;
    if found != FORMAT && found != SHARDED {
        return Err(CheckpointError::Format { found });
    }
    let metadata: Metadata<TrainingState> = serde_json::from_str(text).map_err(CheckpointError::Metadata)?;
    metadata.state.validate()?;
    Ok(metadata)
}

fn compare(place: &str, expected: &str, found: String) -> Result<(), CheckpointError> {
    if expected == found {
        return Ok(());
    }
    Err(CheckpointError::Checksum { place: place.to_owned(), expected: expected.to_owned(), found })
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
