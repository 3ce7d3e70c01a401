//! What is wrong with a file of `torch.save`.

use std::io;
use std::path::{Path, PathBuf};

/// A file of `torch.save` that cannot be used. Offsets count bytes from the start of the file, or of the pickle where
/// that is said.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// Another error, in a file.
    #[error("'{}': {fault}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<TorchError>,
    },
    /// Reading failed.
    #[error("cannot read the file: {0}")]
    Read(#[source] io::Error),
    /// No archive, or one cut short or damaged.
    #[error("is no whole archive of torch.save: {0}")]
    Archive(String),
    /// The format of PyTorch before 1.6.
    #[error("is a file of PyTorch before 1.6, which is not read: load it with a newer PyTorch and save it again")]
    Old,
    /// An entry whose checksum does not fit.
    #[error("entry {name:?} is damaged: its checksum is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The entry.
        name: String,
        /// The checksum that is stored.
        expected: u32,
        /// That of its bytes.
        found: u32,
    },
    /// A pickle that is damaged, or asks for more than tensors.
    #[error("byte {offset} of the pickle: {message}")]
    Pickle {
        /// Offset in the pickle, in bytes.
        offset: usize,
        /// The reason.
        message: String,
    },
    /// A pickle of something else than tensors by name.
    #[error(
        "holds {0}, expected a dictionary of tensors, or one with such a dictionary as \"model\" or \"state_dict\""
    )]
    Content(String),
    /// Several things that may be the model's tensors.
    #[error("holds tensors as {:?} and as {:?}: save the one that is meant, `torch.save(file[{:?}], ...)`", .0[0], .0[1], .0[0])]
    Ambiguous([String; 2]),
    /// A tensor that does not fit its storage.
    #[error("tensor {name:?}: {message}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        message: String,
    },
}

impl TorchError {
    pub(super) fn in_file(self, path: &Path) -> Self {
        TorchError::InFile { path: path.to_owned(), fault: Box::new(self) }
    }
}
