//! What can go wrong between text and tokens.

use std::path::PathBuf;

/// What can go wrong between text and tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// No tokenizer has this name.
    #[error("unknown tokenizer '{0}', expected 'gpt2' or 'bytes'")]
    UnknownName(String),
    /// Neither the name of a tokenizer nor a file.
    #[error("unknown tokenizer '{0}', expected 'gpt2', 'bytes', or the name of a tokenizer.json or of its folder")]
    UnknownFile(String),
    /// A file of a tokenizer, or one beside it, that cannot be used.
    #[error("'{}': {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A token id beyond the vocabulary.
    #[error("token {index} has id {id}, but the vocabulary of '{tokenizer}' has {vocabulary} ids")]
    UnknownToken {
        /// The tokenizer's name.
        tokenizer: String,
        /// Position in the sequence, counted from 0.
        index: usize,
        /// The id.
        id: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// The embedded vocabulary does not load: a fault of the build.
    #[error("the embedded GPT-2 vocabulary does not load: {0}")]
    Vocabulary(String),
}
