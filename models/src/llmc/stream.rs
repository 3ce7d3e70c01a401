//! Reading a file of known length from its start to its end, part by part.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::error::LlmcError;

/// The rest of a file.
pub(crate) struct Stream<R> {
    reader: R,
    offset: u64,
    length: u64,
    /// Length of the whole file as far as the header says.
    described: Option<u64>,
}

impl<'a> Stream<&'a [u8]> {
    /// A file held in memory.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Stream { reader: bytes, offset: 0, length: bytes.len() as u64, described: None }
    }
}

/// Opens a file and reads it with `read`; every error names the file.
pub(crate) fn load<T>(
    path: &Path,
    read: impl FnOnce(Stream<BufReader<File>>) -> Result<T, LlmcError>,
) -> Result<T, LlmcError> {
    let open = || {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Stream { reader: BufReader::with_capacity(1 << 20, file), offset: 0, length, described: None })
    };
    open()
        .map_err(|source| LlmcError::Read { place: "the file".into(), offset: 0, source })
        .and_then(read)
        .map_err(|error| error.in_file(path))
}

impl<R: Read> Stream<R> {
    /// Where the next part begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the whole file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// What the header says of the length. A file that is too long is refused at once; one that is too short, at the
    /// first part that is incomplete, which can then be named.
    pub(crate) fn expect_length(&mut self, described: u64) -> Result<(), LlmcError> {
        if self.length > described {
            return Err(LlmcError::TooLong { described, length: self.length });
        }
        self.described = Some(described);
        Ok(())
    }

    /// The next `needed` bytes. Nothing is allocated unless the file has them.
    pub(crate) fn take(&mut self, needed: u64, place: impl Fn() -> String) -> Result<Vec<u8>, LlmcError> {
        let offset = self.offset;
        if self.length - offset < needed {
            let (length, described) = (self.length, self.described);
            return Err(LlmcError::CutShort { place: place(), offset, needed, length, described });
        }
        let mut bytes = Vec::new();
        let size = usize::try_from(needed).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(size).map_err(|_| LlmcError::Memory { place: place(), bytes: needed })?;
        let failed = |source| LlmcError::Read { place: place(), offset, source };
        let read = (&mut self.reader).take(needed).read_to_end(&mut bytes).map_err(failed)?;
        if read as u64 != needed {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
            return Err(failed(source));
        }
        self.offset += needed;
        Ok(bytes)
    }

    /// Checks that nothing follows.
    pub(crate) fn finish(self) -> Result<(), LlmcError> {
        match self.length == self.offset {
            true => Ok(()),
            false => Err(LlmcError::TooLong { described: self.offset, length: self.length }),
        }
    }
}
