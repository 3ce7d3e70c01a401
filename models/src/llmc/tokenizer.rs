//! Tokenizer files: the bytes of each token id, enough to turn tokens into text. llm.c's `gpt2_tokenizer.bin`.

use std::io::Read;
use std::path::Path;

use super::error::{LlmcError, save};
use super::header::{Header, Kind, field};
use super::stream::{self, Stream};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Version 1 has no field for the end of text: it is GPT-2's, and so is the size of the vocabulary.
const VERSION_1_VOCABULARY: usize = 50_257;
const VERSION_1_END_OF_TEXT: u32 = 50_256;

/// A vocabulary that decodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmcTokenizer {
    /// All tokens' bytes, one after another.
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
    end_of_text: u32,
}

impl LlmcTokenizer {
    /// The vocabulary of these tokens, of 1 to 255 bytes each; `end_of_text` is one of their ids.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a [u8]>, end_of_text: u32) -> Result<Self, LlmcError> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for token in tokens {
            if !(1..=255).contains(&token.len()) {
                let what = format!("the length of token {}", ends.len());
                let (found, expected) = (token.len().to_string(), "tokens of 1 to 255 bytes".into());
                return Err(LlmcError::Unwritable { what, found, expected });
            }
            bytes.extend_from_slice(token);
            ends.push(bytes.len());
        }
        if end_of_text as usize >= ends.len() {
            let expected = format!("one of its {} ids", ends.len());
            return Err(LlmcError::Unwritable {
                what: "the end of text".into(),
                found: end_of_text.to_string(),
                expected,
            });
        }
        Ok(LlmcTokenizer { bytes, ends, end_of_text })
    }

    /// The vocabulary of `gpt2`. `bytes` has no end of text, and tokens of a `tokenizer.json` have a text, which
    /// depends on those before them, but no bytes: both are errors.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, LlmcError> {
        let what = || format!("the tokenizer '{}'", tokenizer.name());
        let unusable =
            |found: String, expected: &str| LlmcError::Unwritable { what: what(), found, expected: expected.into() };
        if let Tokenizer::File(_) = tokenizer {
            return Err(unusable("of a file, which has no bytes for each token".into(), "gpt2"));
        }
        let end_of_text = tokenizer
            .end_of_text()
            .ok_or_else(|| unusable("without an end of text".into(), "a vocabulary with an end of text"))?;
        let decode = |id: u32| tokenizer.decode_bytes(&[id]).map_err(|error| unusable(error.to_string(), "every id"));
        let tokens: Vec<Vec<u8>> = (0..tokenizer.vocabulary() as u32).map(decode).collect::<Result<_, _>>()?;
        LlmcTokenizer::new(tokens.iter().map(Vec::as_slice), end_of_text)
    }

    /// Number of ids.
    pub fn vocabulary(&self) -> usize {
        self.ends.len()
    }

    /// The id between documents.
    pub fn end_of_text(&self) -> u32 {
        self.end_of_text
    }

    /// The bytes of an id.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)?;
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// The bytes of token ids.
    pub fn decode_bytes(&self, tokens: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::new();
        for (index, &id) in tokens.iter().enumerate() {
            let unknown = || TokenizerError::UnknownToken {
                tokenizer: "the file".into(),
                index,
                id,
                vocabulary: self.vocabulary(),
            };
            bytes.extend_from_slice(self.token(id).ok_or_else(unknown)?);
        }
        Ok(bytes)
    }

    /// The text of token ids. Tokens may split a character, so incomplete UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        Ok(String::from_utf8_lossy(&self.decode_bytes(tokens)?).into_owned())
    }

    /// Reads a tokenizer held in memory. Never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, LlmcError> {
        LlmcTokenizer::read(Stream::of(bytes))
    }

    /// Reads a tokenizer; every error names the file and the place in it.
    pub fn load(path: &Path) -> Result<Self, LlmcError> {
        stream::load(path, LlmcTokenizer::read)
    }

    fn read<R: Read>(mut stream: Stream<R>) -> Result<Self, LlmcError> {
        let header = Header::read(&mut stream, Kind::Tokenizer)?;
        let (vocabulary, end_of_text) = match header.version(&[1, 2])? {
            1 => (header.size(2, "vocab_size", VERSION_1_VOCABULARY..=VERSION_1_VOCABULARY)?, VERSION_1_END_OF_TEXT),
            _ => {
                let vocabulary = header.size(2, "vocab_size", 1..=1 << 24)?;
                (vocabulary, header.size(3, "eot_token", 0..=vocabulary - 1)? as u32)
            }
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for id in 0..vocabulary {
            let offset = stream.offset();
            let length = stream.take(1, || format!("the length of token {id} of {vocabulary}"))?[0];
            if length == 0 {
                return Err(LlmcError::Value {
                    place: format!("the length of token {id}"),
                    offset,
                    found: "0".into(),
                    expected: "1 to 255".into(),
                });
            }
            bytes.extend(stream.take(length.into(), || format!("token {id} of {vocabulary}"))?);
            ends.push(bytes.len());
        }
        stream.finish()?;
        Ok(LlmcTokenizer { bytes, ends, end_of_text })
    }

    /// Writes the tokenizer, in version 2, in place of the file at `path`.
    pub fn save(&self, path: &Path) -> Result<(), LlmcError> {
        let bytes = self.to_bytes().map_err(|error| error.in_file(path))?;
        save(path, |writer| writer.write_all(&bytes))
    }

    /// The bytes that [`save`](LlmcTokenizer::save) writes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, LlmcError> {
        let end_of_text = field("the end of text", self.end_of_text as usize)?;
        self.bytes_of(&[2, field("the vocabulary", self.vocabulary())?, end_of_text])
    }

    /// The bytes of version 1, which only GPT-2's vocabulary can have.
    pub fn to_version_1(&self) -> Result<Vec<u8>, LlmcError> {
        if (self.vocabulary(), self.end_of_text) != (VERSION_1_VOCABULARY, VERSION_1_END_OF_TEXT) {
            return Err(LlmcError::Unwritable {
                what: "the vocabulary".into(),
                found: format!("one of {} ids that ends text with {}", self.vocabulary(), self.end_of_text),
                expected: format!(
                    "{VERSION_1_VOCABULARY} ids in version 1, and ends text with {VERSION_1_END_OF_TEXT}"
                ),
            });
        }
        self.bytes_of(&[1, field("the vocabulary", self.vocabulary())?])
    }

    fn bytes_of(&self, fields: &[i32]) -> Result<Vec<u8>, LlmcError> {
        let mut bytes = Vec::with_capacity(1024 + self.bytes.len() + self.ends.len());
        let written = Header::write(Kind::Tokenizer, fields, &mut bytes);
        written.map_err(|source| LlmcError::Write { doing: "laying the header down", source })?;
        for id in 0..self.vocabulary() as u32 {
            if let Some(token) = self.token(id) {
                bytes.push(token.len() as u8);
                bytes.extend_from_slice(token);
            }
        }
        Ok(bytes)
    }
}
