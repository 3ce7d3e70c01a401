//! Tensors in safetensors files, and files that are written whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use fulgurite::operator::nearest;
use fulgurite::{Array, DType, Error};
use fulgurite_kernels::durable;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use super::CaseError;

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// A safetensors file, read whole.
pub struct TensorFile {
    bytes: Vec<u8>,
    entries: BTreeMap<String, Entry>,
}

impl TensorFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<TensorFile, Error> {
        let failed = |message: String| Error::File { path: path.display().to_string(), message };
        let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
        TensorFile::parse(bytes).map_err(failed)
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: Vec<u8>) -> Result<TensorFile, String> {
        let (header, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| format!("{error} (the file has {} bytes, the header starts at byte 8)", bytes.len()))?;
        let start = 8 + header;
        let mut entries = BTreeMap::new();
        for (key, info) in metadata.tensors() {
            let range = start + info.data_offsets.0..start + info.data_offsets.1;
            if bytes.get(range.clone()).is_none() {
                return Err(format!("tensor '{key}' is at bytes {range:?}, the file has {}", bytes.len()));
            }
            entries.insert(key, Entry { dtype: info.dtype, shape: info.shape.clone(), bytes: range });
        }
        Ok(TensorFile { bytes, entries })
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The tensor of that key.
    pub fn get(&self, key: &str) -> Result<Array, CaseError> {
        let Some(entry) = self.entries.get(key) else {
            let near = if key.len() > 128 { None } else { nearest(key, self.keys()) };
            let hint = near.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default();
            let shown: String = key.chars().take(128).collect();
            return Err(CaseError::new("MissingTensor", format!("there is no tensor '{shown}'{hint}")));
        };
        let dtype = dtype_of(entry.dtype).ok_or_else(|| {
            CaseError::new("TensorDType", format!("tensor '{key}' holds {}, which is not supported", entry.dtype))
        })?;
        let bytes = &self.bytes[entry.bytes.clone()];
        if dtype == DType::Bool
            && let Some(at) = bytes.iter().position(|byte| *byte > 1)
        {
            return Err(CaseError::new(
                "TensorData",
                format!("tensor '{key}': element {at} is {}, expected 0 or 1", bytes[at]),
            ));
        }
        Ok(Array::from_bytes(&entry.shape, dtype, bytes)?)
    }
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::U16 => DType::U16,
        Dtype::I16 => DType::I16,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::C64 => DType::C64,
        _ => return None,
    })
}

/// The bytes of a safetensors file with these arrays.
pub fn tensor_bytes(arrays: &[(String, Array)]) -> Result<Vec<u8>, String> {
    let data = arrays
        .iter()
        .map(|(key, array)| array.to_bytes().map_err(|error| format!("tensor '{key}': {error}")))
        .collect::<Result<Vec<_>, String>>()?;
    let views = arrays
        .iter()
        .zip(&data)
        .map(|((key, array), bytes)| {
            let dtype = match array.dtype() {
                DType::Bool => Dtype::BOOL,
                DType::U8 => Dtype::U8,
                DType::I8 => Dtype::I8,
                DType::U16 => Dtype::U16,
                DType::I16 => Dtype::I16,
                DType::U32 => Dtype::U32,
                DType::I32 => Dtype::I32,
                DType::I64 => Dtype::I64,
                DType::F16 => Dtype::F16,
                DType::BF16 => Dtype::BF16,
                DType::F32 => Dtype::F32,
                DType::F64 => Dtype::F64,
                DType::C64 => Dtype::C64,
                DType::C128 => return Err(format!("tensor '{key}' is c128, which safetensors files do not hold")),
            };
            let view = TensorView::new(dtype, array.shape().to_vec(), bytes);
            view.map(|view| (key.as_str(), view)).map_err(|error| format!("tensor '{key}': {error}"))
        })
        .collect::<Result<Vec<_>, String>>()?;
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

/// Writes a file whole or not at all: whatever happens on the way, a reader sees the old file or the new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    durable::write(path, bytes)
        .map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })
}
