//! Safetensors files, read with an error for every way in which one can be wrong, and written in a fixed order.
//!
//! The layout: 8 bytes of header length, a JSON header of names, dtypes, shapes and offsets (and a text map
//! `__metadata__`), then the values. Nothing is allocated on a header's word: every size is checked against the length
//! of the file first.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::host_tensor::{HostTensor, HostTensorError, byte_length};
use crate::tensor_bytes::{MappedFile, TensorBytes};

/// The largest header accepted, in bytes; that of the safetensors library.
const LARGEST_HEADER: u64 = 100_000_000;

const METADATA: &str = "__metadata__";

/// The content of a file: tensors by name, and a map of texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorFile {
    /// The header's `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The tensors.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// A file that is no safetensors file, or one cut short or damaged. Offsets count bytes from the start of the file
/// unless they are said to be in the header or in the data.
#[derive(Debug, thiserror::Error)]
pub enum TensorFileError {
    /// Another error, in a file.
    #[error("'{}': {fault}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: Box<TensorFileError>,
    },
    /// Reading failed.
    #[error("cannot read {place}: {source}")]
    Read {
        /// What was being read.
        place: String,
        /// The error of the file system.
        source: io::Error,
    },
    /// No room for the header length.
    #[error("{length} bytes are too short for a safetensors file, which starts with 8 bytes of header length")]
    TooShort {
        /// Bytes of the file.
        length: u64,
    },
    /// A header longer than the file.
    #[error(
        "the header length at offset 0 says {declared} bytes, but {available} follow (and at most {LARGEST_HEADER} \
         are read)"
    )]
    HeaderLength {
        /// What the first 8 bytes say.
        declared: u64,
        /// Bytes after the header length.
        available: u64,
    },
    /// A header that is not the JSON expected.
    #[error("the header at offset 8 is not what it should be: {0}")]
    Header(#[source] serde_json::Error),
    /// A dtype that is not supported.
    #[error(
        "tensor {name:?} has dtype {dtype:?}, expected one of BOOL, U8, I8, U16, I16, U32, I32, I64, F16, BF16, F32, \
         F64, C64"
    )]
    UnknownDType {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: String,
    },
    /// Offsets that do not follow from dtype and shape.
    #[error(
        "tensor {name:?} of dtype {dtype} and shape {shape:?} has data offsets {begin} to {end}, which do not fit \
         its size"
    )]
    Size {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
        /// Where its data begins.
        begin: u64,
        /// Where its data ends.
        end: u64,
    },
    /// Overlapping tensors, or bytes that belong to none.
    #[error("tensor {name:?} begins at data offset {begin}, but the tensor before it ends at {expected}")]
    Gap {
        /// The tensor.
        name: String,
        /// Where its data begins.
        begin: u64,
        /// Where it should begin.
        expected: u64,
    },
    /// A file cut short, or with something after its end.
    #[error("the header describes {described} bytes of data, but {present} follow it{}", lacking.as_ref().map(|name| format!("; tensor {name:?} is incomplete")).unwrap_or_default())]
    DataLength {
        /// Bytes described.
        described: u64,
        /// Bytes after the header.
        present: u64,
        /// The first tensor that is cut short.
        lacking: Option<String>,
    },
    /// Values that the dtype does not have.
    #[error("tensor {name:?}: {source}")]
    Values {
        /// The tensor.
        name: String,
        /// The value that the dtype does not have.
        source: HostTensorError,
    },
    /// Not enough memory.
    #[error("no memory for the {bytes} bytes of {place}")]
    Memory {
        /// What they are for.
        place: String,
        /// Requested bytes.
        bytes: u64,
    },
}

impl TensorFileError {
    fn in_file(self, path: &Path) -> Self {
        TensorFileError::InFile { path: path.to_owned(), fault: Box::new(self) }
    }
}

impl TensorFile {
    /// Reads a file held in memory.
    pub fn parse(bytes: &[u8]) -> Result<Self, TensorFileError> {
        let mut rest = bytes;
        TensorFile::read(&mut from_reader(&mut rest), bytes.len() as u64)
    }

    /// Maps a file into memory: its pages are read as the tensors are used, and nothing is copied. A system that cannot
    /// map it reads it. Every error names the file, which must not be changed in place while the tensors are in use.
    pub fn map(path: &Path) -> Result<Self, TensorFileError> {
        let Ok(file) = MappedFile::open(path) else { return TensorFile::load(path) };
        let (length, mut begin) = (file.bytes().len(), 0);
        // `read` asks for no more than the file has.
        let mut take = |bytes: u64, _: &dyn Fn() -> String| {
            let end = length.min(begin + bytes as usize);
            let taken = TensorBytes::Mapped(file.clone(), begin..end);
            begin = end;
            Ok(taken)
        };
        TensorFile::read(&mut take, length as u64).map_err(|error| error.in_file(path))
    }

    /// Reads a file; every error names it.
    pub fn load(path: &Path) -> Result<Self, TensorFileError> {
        let open = || {
            let file = std::fs::File::open(path)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        };
        open()
            .map_err(|source| TensorFileError::Read { place: "the file".to_owned(), source })
            .and_then(|(mut file, length)| TensorFile::read(&mut from_reader(&mut file), length))
            .map_err(|error| error.in_file(path))
    }

    /// Reads a file of `length` bytes. `take` gives the next bytes, of what it is told; never more than the file has.
    fn read(take: &mut Take<'_>, length: u64) -> Result<Self, TensorFileError> {
        let Some(after_length) = length.checked_sub(8) else { return Err(TensorFileError::TooShort { length }) };
        let prefix = take(8, &|| "the header length".to_owned())?;
        let declared = prefix.as_slice().iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        if declared > after_length || declared > LARGEST_HEADER {
            return Err(TensorFileError::HeaderLength { declared, available: after_length });
        }
        let header = take(declared, &|| "the header".to_owned())?;
        let header: Header = serde_json::from_slice(header.as_slice()).map_err(TensorFileError::Header)?;
        let entries = header.entries(after_length - declared)?;
        let mut tensors = BTreeMap::new();
        for Entry { name, dtype, shape, bytes } in entries {
            let bytes = take(bytes, &|| format!("tensor {name:?}"))?;
            match HostTensor::of(dtype, &shape, bytes) {
                Ok(tensor) => tensors.insert(name, tensor),
                Err(source) => return Err(TensorFileError::Values { name, source }),
            };
        }
        Ok(TensorFile { metadata: header.metadata, tensors })
    }

    /// Writes a file of this content: wide dtypes first, so that every value is aligned, then by name. The tensors are
    /// borrowed, since a large model's fit into memory once.
    pub fn write(
        metadata: &BTreeMap<String, String>,
        tensors: &BTreeMap<String, HostTensor>,
        writer: &mut dyn Write,
    ) -> io::Result<()> {
        let mut order: Vec<_> = tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
        let text = |value: &str| serde_json::Value::from(value).to_string();
        let mut parts = Vec::with_capacity(order.len() + 1);
        if !metadata.is_empty() {
            let pairs: Vec<_> = metadata.iter().map(|(key, value)| format!("{}:{}", text(key), text(value))).collect();
            parts.push(format!("\"{METADATA}\":{{{}}}", pairs.join(",")));
        }
        let mut begin = 0;
        for (name, tensor) in &order {
            let dtype = named(tensor.dtype()).ok_or_else(|| {
                let message = format!("tensor {name:?} is {}, which safetensors files do not hold", tensor.dtype());
                io::Error::new(io::ErrorKind::InvalidInput, message)
            })?;
            let end = begin + tensor.bytes().len();
            let shape: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
            parts.push(format!(
                "{}:{{\"dtype\":\"{dtype}\",\"shape\":[{}],\"data_offsets\":[{begin},{end}]}}",
                text(name),
                shape.join(",")
            ));
            begin = end;
        }
        let mut header = format!("{{{}}}", parts.join(","));
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        if header.len() as u64 > LARGEST_HEADER || tensors.contains_key(METADATA) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the tensors' names cannot be written to a header",
            ));
        }
        writer.write_all(&(header.len() as u64).to_le_bytes())?;
        writer.write_all(header.as_bytes())?;
        order.iter().try_for_each(|(_, tensor)| writer.write_all(tensor.bytes()))
    }
}

/// Gives the next bytes of a file; the text says what they are, for errors.
type Take<'a> = dyn FnMut(u64, &dyn Fn() -> String) -> Result<TensorBytes, TensorFileError> + 'a;

fn from_reader(reader: &mut impl Read) -> impl FnMut(u64, &dyn Fn() -> String) -> Result<TensorBytes, TensorFileError> {
    |length, place| read_exactly(reader, length, place).map(TensorBytes::Owned)
}

/// Reads `length` bytes, which the caller has checked against the length of the file.
fn read_exactly(reader: &mut impl Read, length: u64, place: &dyn Fn() -> String) -> Result<Vec<u8>, TensorFileError> {
    let mut bytes = Vec::new();
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(size).map_err(|_| TensorFileError::Memory { place: place(), bytes: length })?;
    let read = reader
        .take(length)
        .read_to_end(&mut bytes)
        .map_err(|source| TensorFileError::Read { place: place(), source })?;
    if read as u64 != length {
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read");
        return Err(TensorFileError::Read { place: place(), source });
    }
    Ok(bytes)
}

/// A tensor whose description has been checked.
struct Entry {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: u64,
}

#[derive(serde::Deserialize)]
struct Description {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Description>,
}

/// The name of an element type in safetensors files; none if these do not hold it.
fn named(dtype: DType) -> Option<String> {
    (dtype != DType::C128).then(|| dtype.name().to_uppercase())
}

impl Header {
    /// The tensors in the order of their data, which together fill `present` bytes without gap or overlap.
    fn entries(&self, present: u64) -> Result<Vec<Entry>, TensorFileError> {
        let mut order: Vec<_> = self.tensors.iter().collect();
        order.sort_by_key(|(_, description)| description.data_offsets);
        let mut entries = Vec::with_capacity(order.len());
        let (mut expected, mut lacking) = (0, None);
        for (name, Description { dtype: dtype_name, shape, data_offsets: (begin, end) }) in order {
            let name = name.clone();
            let known = DType::ALL.into_iter().find(|dtype| named(*dtype).as_ref() == Some(dtype_name));
            let Some(dtype) = known else {
                return Err(TensorFileError::UnknownDType { name, dtype: dtype_name.clone() });
            };
            let sizes: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
            let bytes = end.checked_sub(*begin);
            let fitting =
                sizes.filter(|sizes| byte_length(dtype, sizes).is_some_and(|length| Some(length as u64) == bytes));
            let (Some(shape), Some(bytes)) = (fitting, bytes) else {
                return Err(TensorFileError::Size { name, dtype, shape: shape.clone(), begin: *begin, end: *end });
            };
            if *begin != expected {
                return Err(TensorFileError::Gap { name, begin: *begin, expected });
            }
            expected = *end;
            if lacking.is_none() && *end > present {
                lacking = Some(name.clone());
            }
            entries.push(Entry { name, dtype, shape, bytes });
        }
        if expected != present {
            return Err(TensorFileError::DataLength { described: expected, present, lacking });
        }
        Ok(entries)
    }
}

/// By hand, since a derived map keeps the last of two entries of one name and says nothing.
impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut metadata = None;
                while let Some(name) = map.next_key::<String>()? {
                    let duplicate = if name == METADATA {
                        metadata.replace(map.next_value()?).is_some()
                    } else {
                        header.tensors.insert(name.clone(), map.next_value()?).is_some()
                    };
                    if duplicate {
                        return Err(de::Error::custom(format!("{name:?} appears twice")));
                    }
                }
                header.metadata = metadata.unwrap_or_default();
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
#[path = "tensor_file_tests.rs"]
mod tests;
