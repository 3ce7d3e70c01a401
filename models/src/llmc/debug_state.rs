//! Debug states: one batch with the logits, the loss and the gradients that PyTorch computed of it, which llm.c's tests
//! compare with. llm.c's `gpt2_124M_debug_state.bin`.

use std::io::{Read, Write};
use std::path::Path;

use super::error::{LlmcError, save};
use super::header::{HEADER_BYTES, Header, Kind, field};
use super::layout::{Precision, parameter_bytes, read_parameters, write_parameters};
use super::stream::{self, Stream};
use crate::config::GptConfig;
use crate::weights::Weights;

/// The version that is written; in it the gradient of the embedding has rows beyond the vocabulary.
const VERSION: i32 = 2;
/// The version without such rows, of the first llm.c.
const UNPADDED: i32 = 1;

/// One step of training on one batch. Everything is in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct DebugState {
    /// B, sequences.
    pub rows: usize,
    /// T, tokens a sequence.
    pub context: usize,
    /// Token ids [B, T].
    pub inputs: Vec<i32>,
    /// The token after each [B, T].
    pub targets: Vec<i32>,
    /// [B, T, V].
    pub logits: Vec<f32>,
    /// The mean cross entropy.
    pub loss: f32,
    /// The gradient of the loss for each parameter, under the parameter's name and in its shape.
    pub gradients: Weights,
}

impl DebugState {
    /// Reads a debug state held in memory, of a model of this shape whose embedding llm.c stores with
    /// `padded_vocabulary` rows: the file does not say. (Version 1 has no rows beyond the vocabulary.) Never panics,
    /// whatever the bytes.
    pub fn parse(bytes: &[u8], config: &GptConfig, padded_vocabulary: usize) -> Result<Self, LlmcError> {
        DebugState::read(Stream::of(bytes), config, padded_vocabulary)
    }

    /// As [`parse`](DebugState::parse), from a file; every error names the file and the place in it.
    pub fn load(path: &Path, config: &GptConfig, padded_vocabulary: usize) -> Result<Self, LlmcError> {
        stream::load(path, |stream| DebugState::read(stream, config, padded_vocabulary))
    }

    fn read<R: Read>(mut stream: Stream<R>, config: &GptConfig, rows: usize) -> Result<Self, LlmcError> {
        check_model(config, rows)?;
        let header = Header::read(&mut stream, Kind::DebugState)?;
        let rows = if header.version(&[UNPADDED, VERSION])? == UNPADDED { config.vocabulary } else { rows };
        let batch = header.size(2, "batch_size", 1..=i32::MAX as usize)?;
        let context = header.size(3, "seq_len", 1..=config.context)?;
        // Two factors of an i32 and one of 2^24 do not overflow 128 bits.
        let positions = batch as u128 * context as u128;
        let logits = positions * config.vocabulary as u128 * 4;
        let described =
            u128::from(HEADER_BYTES) + 8 * positions + logits + 4 + parameter_bytes(config, rows, Precision::F32);
        stream.expect_length(u64::try_from(described).unwrap_or(u64::MAX))?;
        let bytes = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        let inputs = read_ids(&mut stream, bytes(4 * positions), "input", config)?;
        let targets = read_ids(&mut stream, bytes(4 * positions), "target", config)?;
        let logits = floats(&stream.take(bytes(logits), || "the logits".into())?);
        let loss = floats(&stream.take(4, || "the loss".into())?)[0];
        let gradients = read_parameters(&mut stream, config, rows, Precision::F32)?;
        stream.finish()?;
        Ok(DebugState { rows: batch, context, inputs, targets, logits, loss, gradients })
    }

    /// Writes the state in place of the file at `path`, the gradient of the embedding with `padded_vocabulary` rows.
    pub fn save(&self, path: &Path, padded_vocabulary: usize) -> Result<(), LlmcError> {
        let fields = self.fields(VERSION, padded_vocabulary).map_err(|error| error.in_file(path))?;
        save(path, |writer| self.write(&fields, padded_vocabulary, writer))
    }

    /// As [`save`](DebugState::save), in version 1.
    pub fn save_version_1(&self, path: &Path) -> Result<(), LlmcError> {
        let rows = self.gradients.config().vocabulary;
        let fields = self.fields(UNPADDED, rows).map_err(|error| error.in_file(path))?;
        save(path, |writer| self.write(&fields, rows, writer))
    }

    /// The bytes that [`save`](DebugState::save) writes.
    pub fn to_bytes(&self, padded_vocabulary: usize) -> Result<Vec<u8>, LlmcError> {
        let fields = self.fields(VERSION, padded_vocabulary)?;
        let mut bytes = Vec::new();
        let written = self.write(&fields, padded_vocabulary, &mut bytes);
        written.map_err(|source| LlmcError::Write { doing: "laying the values down", source })?;
        Ok(bytes)
    }

    fn fields(&self, version: i32, rows: usize) -> Result<[i32; 3], LlmcError> {
        let config = self.gradients.config();
        check_model(config, rows)?;
        let positions = self.rows.checked_mul(self.context);
        let values = positions.and_then(|positions| positions.checked_mul(config.vocabulary));
        for (what, found, expected) in [
            ("the number of inputs", self.inputs.len(), positions),
            ("the number of targets", self.targets.len(), positions),
            ("the number of logits", self.logits.len(), values),
        ] {
            if Some(found) != expected {
                let (rows, context) = (self.rows, self.context);
                let expected = format!("those of {rows} sequences of {context} tokens, {}", expected.unwrap_or(0));
                return Err(LlmcError::Unwritable { what: what.into(), found: found.to_string(), expected });
            }
        }
        if let Some(id) = self.inputs.iter().chain(&self.targets).find(|id| !known(**id, config)) {
            let expected = format!("ids from 0 to {}", config.vocabulary - 1);
            return Err(LlmcError::Unwritable { what: "a token id".into(), found: id.to_string(), expected });
        }
        Ok([version, field("rows", self.rows)?, field("context", self.context)?])
    }

    fn write(&self, fields: &[i32], rows: usize, writer: &mut dyn Write) -> std::io::Result<()> {
        Header::write(Kind::DebugState, fields, writer)?;
        for id in self.inputs.iter().chain(&self.targets) {
            writer.write_all(&id.to_le_bytes())?;
        }
        for value in self.logits.iter().chain([&self.loss]) {
            writer.write_all(&value.to_le_bytes())?;
        }
        write_parameters(&self.gradients, rows, Precision::F32, writer)
    }
}

/// The model is the caller's, but a wrong one must not end in a panic.
fn check_model(config: &GptConfig, rows: usize) -> Result<(), LlmcError> {
    let unusable = |found: String, expected: &str| {
        Err(LlmcError::Unwritable { what: "the model".into(), found, expected: expected.into() })
    };
    if let Err(error) = config.validate() {
        return unusable(format!("{config:?} ({error})"), "the step of a possible GPT-2");
    }
    match (config.vocabulary..=1 << 25).contains(&rows) {
        true => Ok(()),
        false => unusable(format!("padded to {rows} rows"), "an embedding padded to at least the vocabulary's rows"),
    }
}

fn known(id: i32, config: &GptConfig) -> bool {
    usize::try_from(id).is_ok_and(|id| id < config.vocabulary)
}

fn read_ids<R: Read>(
    stream: &mut Stream<R>,
    bytes: u64,
    what: &str,
    config: &GptConfig,
) -> Result<Vec<i32>, LlmcError> {
    let offset = stream.offset();
    let bytes = stream.take(bytes, || format!("the {what}s"))?;
    let ids: Vec<i32> = bytes.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect();
    match ids.iter().position(|&id| !known(id, config)) {
        None => Ok(ids),
        Some(index) => Err(LlmcError::Value {
            place: format!("{what} {index}"),
            offset: offset + 4 * index as u64,
            found: ids[index].to_string(),
            expected: format!("a token id from 0 to {}", config.vocabulary - 1),
        }),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}
