//! What a run trains on and validates with: texts or shards of tokens, named by their files.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::batches::split;
use crate::corpus::{CorpusError, TINY_SHAKESPEARE, read_text};
use crate::llmc::Kind;
use crate::stories;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::tokens::{Tokens, TokensError};

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A faulty text.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A text that does not encode.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A faulty shard.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// Texts and shards at once.
    #[error("'{}' is a shard of tokens and '{}' is text: give files of one kind", shard.display(), text.display())]
    Mixed {
        /// The first shard.
        shard: PathBuf,
        /// The first text.
        text: PathBuf,
    },
}

/// The tokens to train on, and those to validate with.
///
/// `data` names texts or shards, tinyshakespeare if it is empty; so does `validation`, which if empty leaves the last
/// tenth of the data to validate with. Several shards are one stream. Several texts are, too, with the tokenizer's end
/// of text between them, if it has one. A file of TinyStories is one text a story, each of which begins with the tokens
/// that a prompt begins with, or else with the end of text.
pub fn open(data: &[PathBuf], validation: &[PathBuf], tokenizer: &Tokenizer) -> Result<(Tokens, Tokens), DataError> {
    let tokens = match data {
        [] => Tokens::from(tokenizer.encode(TINY_SHAKESPEARE)?),
        files => tokens_of(files, tokenizer)?,
    };
    match validation {
        [] => Ok(split(&tokens)),
        files => Ok((tokens, tokens_of(files, tokenizer)?)),
    }
}

fn tokens_of(files: &[PathBuf], tokenizer: &Tokenizer) -> Result<Tokens, DataError> {
    let (mut shard, mut text) = (None, None);
    for path in files {
        let kind = if is_shard(path)? { &mut shard } else { &mut text };
        kind.get_or_insert(path);
    }
    match (shard, text) {
        (Some(shard), Some(text)) => Err(DataError::Mixed { shard: shard.clone(), text: text.clone() }),
        (Some(_), None) => Ok(Tokens::open_shards(files, tokenizer.clone())?),
        _ => {
            let mut tokens = Vec::new();
            for (index, path) in files.iter().enumerate() {
                if let Some(stories) = stories::read(path)? {
                    let end: Vec<u32> = tokenizer.end_of_text().into_iter().collect();
                    let start = if tokenizer.begin().is_empty() { &end[..] } else { tokenizer.begin() };
                    for story in stories {
                        tokens.extend_from_slice(start);
                        tokens.extend(tokenizer.encode(&story)?);
                    }
                    continue;
                }
                tokens.extend(tokenizer.end_of_text().filter(|_| index > 0));
                tokens.extend(tokenizer.encode(&read_text(path)?)?);
            }
            Ok(Tokens::from(tokens))
        }
    }
}

/// Whether a file says that it is a shard, by its first bytes or by its name: one that is damaged should not pass for
/// text.
fn is_shard(path: &Path) -> Result<bool, CorpusError> {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(4).read_to_end(&mut start));
    read.map_err(|source| CorpusError::Read { path: path.to_owned(), source })?;
    Ok(Kind::of(&start) == Some(Kind::Shard) || path.extension().is_some_and(|extension| extension == "bin"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llmc::Shard;

    #[test]
    fn texts_and_shards_of_the_same_tokens_are_the_same_stream() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let gpt2 = Tokenizer::gpt2();
        let texts = [file("a.txt", b"Hello, world!"), file("b.txt", b"Good bye.")];
        let (tokens, validation) = open(&texts, &texts[1..], &gpt2).unwrap();
        let expected =
            [gpt2.encode("Hello, world!").unwrap(), vec![50_256], gpt2.encode("Good bye.").unwrap()].concat();
        assert_eq!(tokens.read(0, tokens.len()).unwrap(), expected);
        assert_eq!(validation.len(), 3);
        let narrow: Vec<u16> = expected.iter().map(|&id| id as u16).collect();
        let shards = [file("a.bin", &Shard::to_bytes(&narrow[..2]).unwrap()), folder.path().join("without_extension")];
        Shard::save(&shards[1], &narrow[2..]).unwrap();
        let (same, _) = open(&shards, &texts, &gpt2).unwrap();
        assert_eq!(same.fingerprint().unwrap(), tokens.fingerprint().unwrap());
        let (train, validation) = open(&shards, &[], &gpt2).unwrap();
        assert_eq!((train.len(), validation.len()), (expected.len(), 0));
        let message = |files: &[PathBuf]| open(files, &[], &gpt2).unwrap_err().to_string();
        assert!(message(&[texts[0].clone(), shards[0].clone()]).contains("a.bin' is a shard of tokens and"));
        let damaged = message(&[file("c.bin", &[0; 2000])]);
        assert!(damaged.contains("c.bin': field 'magic' at offset 0 is 0, expected 20240520"), "{damaged}");
        assert!(message(&[folder.path().join("absent")]).contains("absent"));
    }
}
