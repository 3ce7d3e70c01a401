//! Checkpoints: the weights of a GPT-2, in f32 or bf16. llm.c's `gpt2_124M.bin`.

use std::io::Read;
use std::path::Path;

use super::error::{LlmcError, save};
use super::header::{HEADER_BYTES, Header, Kind, field};
use super::layout::{Precision, padded_vocabulary, parameter_bytes, read_parameters, write_parameters};
use super::stream::{self, Stream};
use crate::config::{GptConfig, Variant};
use crate::weights::Weights;
use fulgurite_kernels::buffer::OutOfMemory;

/// The versions of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 1: f32, an embedding row for each token id and no more.
    F32Unpadded,
    /// 3: f32, the embedding padded with rows of 0.
    F32,
    /// 5: bf16, padded likewise.
    Bf16,
}

impl Version {
    /// The number in the header.
    pub const fn number(self) -> i32 {
        match self {
            Version::F32Unpadded => 1,
            Version::F32 => 3,
            Version::Bf16 => 5,
        }
    }

    fn precision(self) -> Precision {
        match self {
            Version::F32Unpadded | Version::F32 => Precision::F32,
            Version::Bf16 => Precision::Bf16,
        }
    }
}

/// A checkpoint of llm.c.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmcCheckpoint {
    /// How it is stored.
    pub version: Version,
    /// Vp, rows of the stored embedding; V in version 1.
    pub padded_vocabulary: usize,
    /// The weights in f32, which holds every bf16 exactly. The rows beyond the vocabulary are left out: llm.c takes the
    /// softmax over the V token ids alone, and so does a model with V rows.
    pub weights: Weights,
}

impl LlmcCheckpoint {
    /// A checkpoint of this version, padded as llm.c does it. Writing version 5 rounds to the nearest bf16, of two the
    /// even one.
    ///
    /// # Errors
    /// If there is no memory for the weights in f32.
    pub fn new(weights: Weights, version: Version) -> Result<Self, OutOfMemory> {
        let vocabulary = weights.config().vocabulary;
        let padded_vocabulary = match version {
            Version::F32Unpadded => vocabulary,
            Version::F32 | Version::Bf16 => padded_vocabulary(vocabulary),
        };
        Ok(LlmcCheckpoint { version, padded_vocabulary, weights: weights.widened()? })
    }

    /// Reads a checkpoint held in memory. Never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, LlmcError> {
        LlmcCheckpoint::read(Stream::of(bytes))
    }

    /// Reads a checkpoint; every error names the file and the place in it.
    pub fn load(path: &Path) -> Result<Self, LlmcError> {
        stream::load(path, LlmcCheckpoint::read)
    }

    fn read<R: Read>(mut stream: Stream<R>) -> Result<Self, LlmcError> {
        let header = Header::read(&mut stream, Kind::Checkpoint)?;
        let version = match header.version(&[1, 3, 5])? {
            1 => Version::F32Unpadded,
            3 => Version::F32,
            _ => Version::Bf16,
        };
        // The limits are those of `GptConfig`.
        let config = GptConfig {
            context: header.size(2, "max_seq_len", 1..=1 << 24)?,
            vocabulary: header.size(3, "vocab_size", 1..=1 << 24)?,
            layers: header.size(4, "num_layers", 1..=1 << 10)?,
            heads: header.size(5, "num_heads", 1..=1 << 10)?,
            channels: header.size(6, "channels", 1..=1 << 16)?,
            ..GptConfig::GPT2
        };
        if !config.channels.is_multiple_of(config.heads) {
            return Err(header.wrong(5, "num_heads", format!("a divisor of the {} channels", config.channels)));
        }
        let padded_vocabulary = match version {
            Version::F32Unpadded => config.vocabulary,
            _ => header.size(7, "padded_vocab_size", config.vocabulary..=1 << 25)?,
        };
        let precision = version.precision();
        let described = u128::from(HEADER_BYTES) + parameter_bytes(&config, padded_vocabulary, precision);
        stream.expect_length(u64::try_from(described).unwrap_or(u64::MAX))?;
        let weights = read_parameters(&mut stream, &config, padded_vocabulary, precision)?;
        stream.finish()?;
        Ok(LlmcCheckpoint { version, padded_vocabulary, weights })
    }

    /// Writes the checkpoint in place of the file at `path`, which whatever happens holds either what it held or this,
    /// whole.
    pub fn save(&self, path: &Path) -> Result<(), LlmcError> {
        let fields = self.fields().map_err(|error| error.in_file(path))?;
        save(path, |writer| self.write(&fields, writer))
    }

    /// The bytes that [`save`](LlmcCheckpoint::save) writes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, LlmcError> {
        let fields = self.fields()?;
        let mut bytes = Vec::new();
        let written = self.write(&fields, &mut bytes);
        written.map_err(|source| LlmcError::Write { doing: "laying the parameters down", source })?;
        Ok(bytes)
    }

    fn fields(&self) -> Result<Vec<i32>, LlmcError> {
        let GptConfig { vocabulary, context, layers, heads, channels, variant, .. } = *self.weights.config();
        if variant != Variant::OPENAI {
            // llm.c's programs compute one function, whatever the weights.
            let (what, expected) = ("what the model computes".into(), format!("{:?}", Variant::OPENAI));
            return Err(LlmcError::Unwritable { what, found: format!("{variant:?}"), expected });
        }
        let expected = match self.version {
            Version::F32Unpadded => (vocabulary..=vocabulary, format!("{vocabulary}, the vocabulary")),
            _ => (vocabulary..=1 << 25, format!("{vocabulary} to {}", 1 << 25)),
        };
        if !expected.0.contains(&self.padded_vocabulary) {
            let (what, found) = ("padded_vocabulary".into(), self.padded_vocabulary.to_string());
            return Err(LlmcError::Unwritable { what, found, expected: expected.1 });
        }
        let sizes = [
            ("context", context),
            ("vocabulary", vocabulary),
            ("layers", layers),
            ("heads", heads),
            ("channels", channels),
            ("padded_vocabulary", self.padded_vocabulary),
        ];
        // Version 1 has no field for the last.
        let count = if self.version == Version::F32Unpadded { 5 } else { 6 };
        let mut fields = vec![self.version.number()];
        for (what, size) in &sizes[..count] {
            fields.push(field(what, *size)?);
        }
        Ok(fields)
    }

    fn write(&self, fields: &[i32], writer: &mut dyn std::io::Write) -> std::io::Result<()> {
        Header::write(Kind::Checkpoint, fields, writer)?;
        write_parameters(&self.weights, self.padded_vocabulary, self.version.precision(), writer)
    }
}
