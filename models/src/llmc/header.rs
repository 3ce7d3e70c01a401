//! The header that all files of llm.c start with: 256 little-endian i32.

use std::io::{self, Read, Write};
use std::ops::RangeInclusive;

use super::error::LlmcError;
use super::stream::Stream;

/// Bytes of a header.
pub const HEADER_BYTES: u64 = 1024;

/// The kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Weights of a GPT-2.
    Checkpoint,
    /// Inputs, logits, loss and gradients of one step.
    DebugState,
    /// A vocabulary.
    Tokenizer,
    /// Tokens to train on.
    Shard,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Checkpoint, Kind::DebugState, Kind::Tokenizer, Kind::Shard];

    /// The number that the file starts with.
    pub const fn magic(self) -> i32 {
        match self {
            Kind::Checkpoint => 20_240_326,
            Kind::DebugState => 20_240_327,
            Kind::Tokenizer => 20_240_328,
            Kind::Shard => 20_240_520,
        }
    }

    /// In words, with an article.
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Checkpoint => "a checkpoint of llm.c",
            Kind::DebugState => "a debug state of llm.c",
            Kind::Tokenizer => "a tokenizer of llm.c",
            Kind::Shard => "a token shard of llm.c",
        }
    }

    /// The kind of the file that starts with these bytes.
    pub fn of(start: &[u8]) -> Option<Kind> {
        let magic = i32::from_le_bytes(*start.first_chunk()?);
        Kind::ALL.into_iter().find(|kind| kind.magic() == magic)
    }
}

/// A header whose kind has been checked.
pub(crate) struct Header([i32; 256]);

/// Offset of a field, in bytes.
fn offset_of(index: usize) -> u64 {
    4 * index as u64
}

impl Header {
    /// Reads the header of a file of this kind.
    pub(crate) fn read<R: Read>(stream: &mut Stream<R>, kind: Kind) -> Result<Self, LlmcError> {
        if stream.length() < HEADER_BYTES {
            return Err(LlmcError::TooShort { kind: kind.words(), length: stream.length() });
        }
        let bytes = stream.take(HEADER_BYTES, || "the header".into())?;
        let mut values = [0; 256];
        let (fields, _) = bytes.as_chunks();
        values.iter_mut().zip(fields).for_each(|(value, &bytes)| *value = i32::from_le_bytes(bytes));
        if values[0] != kind.magic() {
            let expected = format!("{}, the mark of {}", kind.magic(), kind.words());
            let expected = match Kind::ALL.into_iter().find(|other| other.magic() == values[0]) {
                Some(other) => format!("{expected} (this is {})", other.words()),
                None => expected,
            };
            return Err(LlmcError::Field { field: "magic", offset: 0, found: values[0].into(), expected });
        }
        Ok(Header(values))
    }

    /// The version; only these are known.
    pub(crate) fn version(&self, known: &[i32]) -> Result<i32, LlmcError> {
        let version = self.0[1];
        if known.contains(&version) {
            return Ok(version);
        }
        let known: Vec<String> = known.iter().map(i32::to_string).collect();
        Err(self.wrong(1, "version", known.join(" or ")))
    }

    /// A size within `range`.
    pub(crate) fn size(
        &self,
        index: usize,
        field: &'static str,
        range: RangeInclusive<usize>,
    ) -> Result<usize, LlmcError> {
        let outside = || self.wrong(index, field, format!("{} to {}", range.start(), range.end()));
        usize::try_from(self.0[index]).ok().filter(|value| range.contains(value)).ok_or_else(outside)
    }

    /// The error of a field with a value that it cannot have.
    pub(crate) fn wrong(&self, index: usize, field: &'static str, expected: String) -> LlmcError {
        LlmcError::Field { field, offset: offset_of(index), found: self.0[index].into(), expected }
    }

    /// Writes a header of these first fields, the kind's number before them.
    pub(crate) fn write(kind: Kind, fields: &[i32], writer: &mut dyn Write) -> io::Result<()> {
        let mut values = [0; 256];
        values[0] = kind.magic();
        values[1..].iter_mut().zip(fields).for_each(|(value, field)| *value = *field);
        writer.write_all(&values.map(i32::to_le_bytes).concat())
    }
}

/// A size as a field of a header.
pub(crate) fn field(what: &str, value: usize) -> Result<i32, LlmcError> {
    i32::try_from(value).map_err(|_| LlmcError::Unwritable {
        what: what.into(),
        found: value.to_string(),
        expected: format!("at most {}", i32::MAX),
    })
}
