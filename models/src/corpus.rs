//! Text to train on: tinyshakespeare, compiled into the program, or a file of UTF-8.

use std::path::{Path, PathBuf};

use crate::foreign_file;

/// Karpathy's tinyshakespeare: 1 115 394 bytes of Shakespeare's plays, in the public domain.
pub const TINY_SHAKESPEARE: &str = include_str!("../data/tinyshakespeare.txt");

/// A text file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// Not UTF-8.
    #[error("'{}' is not UTF-8 text: invalid byte at offset {offset}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// A file that only names another one, or is of another program.
    #[error("'{}' {told}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        told: &'static str,
    },
    /// A list of objects that are no stories.
    #[error("'{}' is no list of stories, each with its text in \"story\": {message}", path.display())]
    Stories {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Nothing in it.
    #[error("'{}' is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The text of a file.
pub fn read_text(path: &Path) -> Result<String, CorpusError> {
    let bytes = std::fs::read(path).map_err(|source| CorpusError::Read { path: path.to_owned(), source })?;
    if let Some(told) = foreign_file::told(&bytes) {
        return Err(CorpusError::Foreign { path: path.to_owned(), told });
    }
    if bytes.is_empty() {
        return Err(CorpusError::Empty { path: path.to_owned() });
    }
    String::from_utf8(bytes)
        .map_err(|error| CorpusError::NotText { path: path.to_owned(), offset: error.utf8_error().valid_up_to() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_file_and_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        assert!(matches!(read_text(&path), Err(CorpusError::Read { .. })));
        std::fs::write(&path, b"abc\xFFd").unwrap();
        let message = read_text(&path).unwrap_err().to_string();
        assert!(message.contains("text.txt") && message.contains("offset 3"), "{message}");
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(read_text(&path), Err(CorpusError::Empty { .. })));
        std::fs::write(&path, "füß").unwrap();
        assert_eq!(read_text(&path).unwrap(), "füß");
    }
}
