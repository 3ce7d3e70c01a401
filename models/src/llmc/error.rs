//! What can be wrong with a file of llm.c.

use std::io;
use std::path::{Path, PathBuf};

use fulgurite_kernels::durable;

/// A file of llm.c that cannot be used, or could not be written. In the latter case the file of that name is as it was,
/// unless the message says that the new one is in place. Offsets count bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum LlmcError {
    /// Another error, in a file.
    #[error("'{}': {fault}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<LlmcError>,
    },
    /// Reading failed.
    #[error("cannot read {place} at offset {offset}: {source}")]
    Read {
        /// What was being read.
        place: String,
        /// Offset of the read, in bytes.
        offset: u64,
        /// The error of the file system.
        source: io::Error,
    },
    /// No room for the header.
    #[error("{length} bytes are too short for {kind}, which starts with a header of 1024 bytes")]
    TooShort {
        /// The kind of file expected, in words.
        kind: &'static str,
        /// Bytes of the file.
        length: u64,
    },
    /// A field of the header with a value that it cannot have.
    #[error("field '{field}' at offset {offset} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Offset from the start of the file, in bytes.
        offset: u64,
        /// Its value.
        found: i64,
        /// The values that it may have, in words.
        expected: String,
    },
    /// A file cut short.
    #[error("cut short: {place} begins at offset {offset} and takes {needed} bytes, but the file ends at \
             {length}{}", described.map(|bytes| format!(" (the header describes {bytes} bytes)")).unwrap_or_default())]
    CutShort {
        /// The first part that is incomplete.
        place: String,
        /// Offset of that part, in bytes.
        offset: u64,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes of the file.
        length: u64,
        /// Bytes of the whole file, where the header says how many.
        described: Option<u64>,
    },
    /// Something after the end.
    #[error("the file should end at offset {described}, but has {length} bytes")]
    TooLong {
        /// Bytes described.
        described: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// A value that is not allowed at its place.
    #[error("{place} at offset {offset} is {found}, expected {expected}")]
    Value {
        /// The field or the place of the value.
        place: String,
        /// Offset from the start of the file, in bytes.
        offset: u64,
        /// The value, in words.
        found: String,
        /// What it may be, in words.
        expected: String,
    },
    /// Not enough memory.
    #[error("no memory for the {bytes} bytes of {place}")]
    Memory {
        /// What they are for.
        place: String,
        /// Requested bytes.
        bytes: u64,
    },
    /// Something that the format cannot hold.
    #[error("{what} is {found}, but a file of this kind holds {expected}")]
    Unwritable {
        /// What was to be written.
        what: String,
        /// The value, in words.
        found: String,
        /// What it may be, in words.
        expected: String,
    },
    /// Writing failed; the file of this name is as it was.
    #[error("cannot write, what was there is untouched: {doing}: {source}")]
    Write {
        /// What was being done.
        doing: &'static str,
        /// The error of the file system.
        source: io::Error,
    },
    /// The new file is in place and whole, but may not survive a power failure.
    #[error("written, but the folder's entry could not be brought to the disk: {0}")]
    NotDurable(#[source] io::Error),
}

impl LlmcError {
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            named @ LlmcError::InFile { .. } => named,
            fault => LlmcError::InFile { path: path.to_owned(), fault: Box::new(fault) },
        }
    }
}

/// Replaces the file by what `fill` writes; every error names it.
pub(crate) fn save(path: &Path, fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<(), LlmcError> {
    let written = durable::replace(path, fill).map_err(|(stage, source)| match stage {
        durable::Stage::SyncFolder => LlmcError::NotDurable(source),
        stage => LlmcError::Write { doing: stage.describe(), source },
    });
    written.map_err(|error| error.in_file(path))
}
