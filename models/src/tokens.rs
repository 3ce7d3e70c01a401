//! A stream of tokens to make batches of: tokens in memory, or shards of llm.c read as they are needed.
//!
//! Shards in a row are one stream, in which a sequence may go from one shard into the next. What the stream is cut into
//! files by makes no difference to a run: it has one length and one fingerprint, which a checkpoint stores.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::llmc::{LlmcError, Shard};
use crate::random::fingerprint_from;
use crate::tokenizer::Tokenizer;

/// Tokens read at once where all are looked at.
const PART: usize = 1 << 20;

/// Consecutive tokens of a stream. Clones share the data.
#[derive(Debug, Clone)]
pub struct Tokens {
    source: Source,
    first: usize,
    length: usize,
}

#[derive(Debug, Clone)]
enum Source {
    Memory(Arc<[u32]>),
    Shards(Arc<Shards>),
}

#[derive(Debug)]
struct Shards {
    shards: Vec<Shard>,
    /// Where each shard ends in the stream.
    ends: Vec<usize>,
    tokenizer: Tokenizer,
}

/// Tokens that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A faulty shard.
    #[error(transparent)]
    Shard(#[from] LlmcError),
    /// A token id that the tokenizer does not have.
    #[error(
        "'{}': token {token} at offset {offset} is {id}, but the vocabulary of '{tokenizer}' has {vocabulary} ids: \
         the shard is damaged, or of another tokenizer",
        path.display()
    )]
    UnknownToken {
        /// The shard.
        path: PathBuf,
        /// Its position in the shard.
        token: u64,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// The id.
        id: u16,
        /// The tokenizer's name.
        tokenizer: String,
        /// Number of ids.
        vocabulary: usize,
    },
    /// More tokens than there are.
    #[error("tokens {first} to {end} are out of range, the stream has {length}")]
    BeyondEnd {
        /// Position of the first requested token.
        first: usize,
        /// Position after the last requested token.
        end: usize,
        /// Number of tokens of the stream.
        length: usize,
    },
    /// Shards whose tokens cannot be counted on this machine.
    #[error("the shards have more tokens than this machine can address")]
    TooMany,
}

impl From<Arc<[u32]>> for Tokens {
    fn from(tokens: Arc<[u32]>) -> Self {
        Tokens { first: 0, length: tokens.len(), source: Source::Memory(tokens) }
    }
}

impl From<Vec<u32>> for Tokens {
    fn from(tokens: Vec<u32>) -> Self {
        Tokens::from(Arc::from(tokens))
    }
}

impl Tokens {
    /// The stream of these shards, one after another. Opening checks headers and lengths; token ids are compared with
    /// the tokenizer's vocabulary whenever tokens are read, and all of them by [`fingerprint`](Tokens::fingerprint).
    pub fn open_shards(paths: &[impl AsRef<Path>], tokenizer: Tokenizer) -> Result<Self, TokensError> {
        let shards: Vec<Shard> = paths.iter().map(|path| Shard::open(path.as_ref())).collect::<Result<_, _>>()?;
        let mut length = 0_usize;
        let mut ends = Vec::with_capacity(shards.len());
        for shard in &shards {
            let tokens = usize::try_from(shard.tokens()).ok();
            length = tokens.and_then(|tokens| length.checked_add(tokens)).ok_or(TokensError::TooMany)?;
            ends.push(length);
        }
        Ok(Tokens { source: Source::Shards(Arc::new(Shards { shards, ends, tokenizer })), first: 0, length })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The tokens before `middle` (or all, if there are fewer) and those from there on.
    pub fn split_at(&self, middle: usize) -> (Tokens, Tokens) {
        let middle = middle.min(self.length);
        let before = Tokens { length: middle, ..self.clone() };
        (before, Tokens { first: self.first + middle, length: self.length - middle, ..self.clone() })
    }

    /// The `count` tokens from `first` on.
    pub fn read(&self, first: usize, count: usize) -> Result<Cow<'_, [u32]>, TokensError> {
        let end = first.saturating_add(count);
        if end > self.length {
            return Err(TokensError::BeyondEnd { first, end, length: self.length });
        }
        let range = self.first + first..self.first + end;
        match &self.source {
            Source::Memory(tokens) => Ok(Cow::Borrowed(&tokens[range])),
            Source::Shards(shards) => shards.read(range.start, count).map(Cow::Owned),
        }
    }

    /// A hash of all tokens. It does not depend on where they come from.
    pub fn fingerprint(&self) -> Result<u64, TokensError> {
        let mut hash = None;
        for first in (0..self.length).step_by(PART) {
            let tokens = self.read(first, PART.min(self.length - first))?;
            hash = Some(fingerprint_from(hash, tokens.iter().map(|&token| u64::from(token))));
        }
        Ok(hash.unwrap_or_else(|| fingerprint_from(None, [])))
    }
}

impl Shards {
    fn read(&self, mut first: usize, count: usize) -> Result<Vec<u32>, TokensError> {
        let mut tokens: Vec<u32> = Vec::new();
        tokens.try_reserve_exact(count).map_err(|_| LlmcError::Memory {
            place: format!("tokens {first} to {}", first + count),
            bytes: 4 * count as u64,
        })?;
        let mut index = self.ends.partition_point(|&end| end <= first);
        while tokens.len() < count {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            let part = (count - tokens.len()).min(self.ends[index] - first);
            tokens.extend(self.read_shard(&self.shards[index], (first - start) as u64, part)?);
            first += part;
            index += 1;
        }
        Ok(tokens)
    }

    fn read_shard(&self, shard: &Shard, first: u64, count: usize) -> Result<impl Iterator<Item = u32>, TokensError> {
        let ids = shard.read(first, count)?;
        let vocabulary = self.tokenizer.vocabulary();
        if let Some(index) = ids.iter().position(|&id| usize::from(id) >= vocabulary) {
            let token = first + index as u64;
            return Err(TokensError::UnknownToken {
                path: shard.path().to_owned(),
                token,
                offset: Shard::offset_of(token),
                id: ids[index],
                tokenizer: self.tokenizer.name().into_owned(),
                vocabulary,
            });
        }
        Ok(ids.into_iter().map(u32::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers from 0 on in shards of these lengths.
    fn shards(folder: &Path, lengths: &[u16]) -> Vec<PathBuf> {
        let mut first = 0;
        let write = |(index, length): (usize, &u16)| {
            let path = folder.join(format!("part_{index:06}.bin"));
            let tokens: Vec<u16> = (first..first + length).collect();
            first += length;
            Shard::save(&path, &tokens).unwrap();
            path
        };
        lengths.iter().enumerate().map(write).collect()
    }

    #[test]
    fn shards_read_as_one_stream() {
        let folder = tempfile::tempdir().unwrap();
        let paths = shards(folder.path(), &[3, 1, 10, 6]);
        let tokens = Tokens::open_shards(&paths, Tokenizer::gpt2()).unwrap();
        let same = Tokens::from((0..20).collect::<Vec<u32>>());
        assert_eq!((tokens.len(), tokens.fingerprint().unwrap()), (20, same.fingerprint().unwrap()));
        for first in 0..=20 {
            for count in 0..=20 - first {
                assert_eq!(tokens.read(first, count).unwrap(), same.read(first, count).unwrap(), "{first} {count}");
            }
            assert!(matches!(tokens.read(first, 21 - first), Err(TokensError::BeyondEnd { length: 20, .. })));
            let ((left, right), (same_left, same_right)) = (tokens.split_at(first), same.split_at(first));
            assert_eq!(left.fingerprint().unwrap(), same_left.fingerprint().unwrap());
            assert_eq!(right.fingerprint().unwrap(), same_right.fingerprint().unwrap());
            assert_eq!(right.read(0, 20 - first).unwrap(), same_right.read(0, 20 - first).unwrap());
        }
        assert!(tokens.read(usize::MAX, 2).is_err());
        assert_ne!(tokens.split_at(19).0.fingerprint().unwrap(), same.fingerprint().unwrap());
    }

    #[test]
    fn unknown_tokens_and_shards_that_shrink_are_errors_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let paths = shards(folder.path(), &[200, 100]);
        let tokens = Tokens::open_shards(&paths, Tokenizer::bytes()).unwrap();
        let message = tokens.fingerprint().unwrap_err().to_string();
        let expected = "part_000001.bin': token 56 at offset 1136 is 256, but the vocabulary of 'bytes' has 256 ids";
        assert!(message.contains(expected), "{message}");
        let whole = std::fs::read(&paths[1]).unwrap();
        let tokens = Tokens::open_shards(&paths, Tokenizer::gpt2()).unwrap();
        std::fs::write(&paths[1], &whole[..whole.len() - 1]).unwrap();
        assert!(tokens.read(0, 299).is_ok());
        let message = tokens.read(298, 2).unwrap_err().to_string();
        assert!(message.contains("part_000001.bin': cannot read tokens 98 to 99 at offset 1220"), "{message}");
        let message = Tokens::open_shards(&paths, Tokenizer::gpt2()).unwrap_err().to_string();
        assert!(message.contains("cut short: token 99 of 100 begins at offset 1222 and takes 2 bytes"), "{message}");
    }
}
