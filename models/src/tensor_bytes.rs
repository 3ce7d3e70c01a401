//! The bytes of a tensor: memory of its own, or a part of a file that is mapped into memory.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// A whole file in memory, whose pages are read as they are used.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile(Arc<Mmap>);

impl MappedFile {
    /// Maps a file. A process that changes it in place meanwhile changes the tensors, and ends this process by making
    /// it shorter; our own commands and the usual libraries replace files.
    pub(crate) fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and only read. That nobody changes the file meanwhile is asked of the user in
        // docs/src/files.md; no program can make sure of it.
        let map = unsafe { Mmap::map(&file) }?;
        Ok(MappedFile(Arc::new(map)))
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of a tensor.
#[derive(Clone)]
pub(crate) enum TensorBytes {
    /// Memory of its own.
    Owned(Vec<u8>),
    /// These bytes of a file.
    Mapped(MappedFile, Range<usize>),
}

impl TensorBytes {
    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            TensorBytes::Owned(bytes) => bytes,
            TensorBytes::Mapped(file, range) => &file.bytes()[range.clone()],
        }
    }

    /// The bytes in memory of their own.
    pub(crate) fn into_owned(self) -> Vec<u8> {
        match self {
            TensorBytes::Owned(bytes) => bytes,
            TensorBytes::Mapped(..) => self.as_slice().to_vec(),
        }
    }
}

impl PartialEq for TensorBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for TensorBytes {}

impl fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, TensorBytes::Owned(_)) { "owned" } else { "mapped" };
        write!(f, "{} {kind} bytes", self.as_slice().len())
    }
}
