//! Shards: tokens to train on, two bytes each. llm.c's `tiny_shakespeare_train.bin` and `fineweb_train_000001.bin`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::error::{LlmcError, save};
use super::header::{HEADER_BYTES, Header, Kind, field};
use super::stream::{self, Stream};

/// The only version known: 16 bits a token.
const VERSION: i32 = 1;
const TOKEN_BYTES: u64 = 2;
/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 1 << 14;

/// An open shard, whose tokens are read on demand, so that data larger than memory can be trained on. (A mapping would
/// end the process if another one shortened the file; reading gives an error.)
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    file: Mutex<File>,
    tokens: u64,
}

impl Shard {
    /// Opens a shard and checks its header and length; every error names the file.
    pub fn open(path: &Path) -> Result<Self, LlmcError> {
        let tokens = stream::load(path, |mut stream| read_header(&mut stream))?;
        let file = File::open(path)
            .map_err(|source| LlmcError::Read { place: "the file".into(), offset: 0, source }.in_file(path))?;
        Ok(Shard { path: path.to_owned(), file: Mutex::new(file), tokens })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of tokens, at least 1.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The offset of a token in the file.
    pub fn offset_of(token: u64) -> u64 {
        HEADER_BYTES + TOKEN_BYTES * token
    }

    /// The `count` tokens from `first` on.
    pub fn read(&self, first: u64, count: usize) -> Result<Vec<u16>, LlmcError> {
        let place = || format!("tokens {first} to {}", first.saturating_add(count as u64).saturating_sub(1));
        let wanted = first.checked_add(count as u64).filter(|&end| end <= self.tokens);
        let offset = Shard::offset_of(first.min(self.tokens));
        let failed = |source| LlmcError::Read { place: place(), offset, source }.in_file(&self.path);
        if wanted.is_none() {
            let message = format!("the shard has {} tokens", self.tokens);
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        let mut tokens: Vec<u16> = room(count, place).map_err(|error| error.in_file(&self.path))?;
        let mut block = [0; BLOCK_BYTES];
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        while tokens.len() < count {
            let bytes = &mut block[..BLOCK_BYTES.min((count - tokens.len()) * TOKEN_BYTES as usize)];
            file.read_exact(bytes).map_err(failed)?;
            tokens.extend(ids(bytes));
        }
        Ok(tokens)
    }

    /// The tokens of a shard held in memory. Never panics, whatever the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Vec<u16>, LlmcError> {
        let mut stream = Stream::of(bytes);
        let tokens = read_header(&mut stream)?;
        let bytes = stream.take(TOKEN_BYTES * tokens, || "the tokens".into())?;
        stream.finish()?;
        let mut all = room(bytes.len() / TOKEN_BYTES as usize, || "the tokens".into())?;
        all.extend(ids(&bytes));
        Ok(all)
    }

    /// The tokens of a file without a header, 32 bits each, as the first llm.c had them. Nothing in such a file says
    /// what it is, so that no other reader takes it for a shard.
    ///
    /// # Errors
    /// A file that cannot be read, one with no token or a part of one, and a token that 16 bits cannot hold.
    pub fn read_headerless(path: &Path) -> Result<Vec<u16>, LlmcError> {
        let read = || -> Result<Vec<u16>, LlmcError> {
            let failed = |source| LlmcError::Read { place: "the file".into(), offset: 0, source };
            let bytes = std::fs::read(path).map_err(failed)?;
            let (tokens, rest) = bytes.as_chunks();
            let length = bytes.len() as u64;
            if tokens.is_empty() || !rest.is_empty() {
                let place = format!("token {}", tokens.len());
                return Err(LlmcError::CutShort {
                    place,
                    offset: 4 * tokens.len() as u64,
                    needed: 4,
                    length,
                    described: None,
                });
            }
            let narrow = |(at, bytes): (usize, &[u8; 4])| {
                let id = i32::from_le_bytes(*bytes);
                u16::try_from(id).map_err(|_| LlmcError::Value {
                    place: format!("token {at}"),
                    offset: 4 * at as u64,
                    found: id.to_string(),
                    expected: "an id from 0 to 65535; is it a shard without a header?".into(),
                })
            };
            let mut all = room(tokens.len(), || "the tokens".into())?;
            for token in tokens.iter().enumerate().map(narrow) {
                all.push(token?);
            }
            Ok(all)
        };
        read().map_err(|error| error.in_file(path))
    }

    /// Writes a shard of at least one token in place of the file at `path`.
    pub fn save(path: &Path, tokens: &[u16]) -> Result<(), LlmcError> {
        let fields = fields(tokens).map_err(|error| error.in_file(path))?;
        save(path, |writer| {
            Header::write(Kind::Shard, &fields, writer)?;
            tokens.iter().try_for_each(|token| writer.write_all(&token.to_le_bytes()))
        })
    }

    /// The bytes that [`save`](Shard::save) writes.
    pub fn to_bytes(tokens: &[u16]) -> Result<Vec<u8>, LlmcError> {
        let fields = fields(tokens)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + 2 * tokens.len());
        let written = Header::write(Kind::Shard, &fields, &mut bytes);
        written.map_err(|source| LlmcError::Write { doing: "laying the header down", source })?;
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        Ok(bytes)
    }
}

fn fields(tokens: &[u16]) -> Result<[i32; 2], LlmcError> {
    if tokens.is_empty() {
        let (what, found) = ("the number of tokens".into(), "0".into());
        return Err(LlmcError::Unwritable { what, found, expected: "at least one".into() });
    }
    Ok([VERSION, field("the number of tokens", tokens.len())?])
}

/// Checks a shard's header and its length, and gives the number of its tokens.
fn read_header<R: Read>(stream: &mut Stream<R>) -> Result<u64, LlmcError> {
    let header = Header::read(stream, Kind::Shard)?;
    header.version(&[VERSION])?;
    let tokens = header.size(2, "num_tokens", 1..=i32::MAX as usize)? as u64;
    let (described, length) = (Shard::offset_of(tokens), stream.length());
    stream.expect_length(described)?;
    if length < described {
        let token = (length - HEADER_BYTES) / TOKEN_BYTES;
        return Err(LlmcError::CutShort {
            place: format!("token {token} of {tokens}"),
            offset: Shard::offset_of(token),
            needed: TOKEN_BYTES,
            length,
            described: Some(described),
        });
    }
    Ok(tokens)
}

fn ids(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes))
}

/// Room for the tokens of `place`; their number is a file's.
fn room(tokens: usize, place: impl FnOnce() -> String) -> Result<Vec<u16>, LlmcError> {
    let mut all = Vec::new();
    let bytes = TOKEN_BYTES * tokens as u64;
    all.try_reserve_exact(tokens).map_err(|_| LlmcError::Memory { place: place(), bytes })?;
    Ok(all)
}
