//! The parts of a checkpoint that several ranks wrote, each a safetensors file beside the checkpoint's own.
//!
//! A part has a piece of every tensor: the elements in row-major order, in as many equal pieces as there are parts, of
//! which the last ones end with zeros. Its name ends with a checksum of its content, so that no part of another
//! checkpoint ever has it, and writing one changes no checkpoint that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::durable;
use fulgurite_kernels::scratch::try_room;
use serde::{Deserialize, Serialize};

use crate::host_tensor::{HostTensor, byte_length};
use crate::kept;
use crate::tensor_file::{TensorFile, TensorFileError};

/// A part, as the checkpoint's own file names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The name of its file.
    pub file: String,
    /// CRC-32 of each piece, eight hexadecimal digits.
    pub crc32: BTreeMap<String, String>,
}

/// A part that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Its file is missing or damaged.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A name with a folder in it.
    #[error("the part {0:?} is no name of a file")]
    Name(String),
    /// A piece that is missing or is another one.
    #[error("part '{}': its piece of tensor {tensor:?} {fault}", path.display())]
    Piece {
        /// The part's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        fault: String,
    },
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

impl Part {
    /// Writes the part at `place` of `count` of the checkpoint `checkpoint` of a step, which is on the disk then.
    ///
    /// # Errors
    /// Those of the file system, with the stage.
    pub fn write(
        checkpoint: &Path,
        step: u64,
        (place, count): (usize, usize),
        pieces: &BTreeMap<String, HostTensor>,
    ) -> Result<Part, (durable::Stage, std::io::Error)> {
        let crc32: BTreeMap<_, _> =
            pieces.iter().map(|(name, piece)| (name.clone(), tensor_checksum(name, piece))).collect();
        let content = crc32.values().map(String::as_str).collect::<String>();
        let content = checksum([content.as_bytes()]);
        let file = format!("checkpoint-{step}.{place}-of-{count}.{content}.safetensors");
        let path = checkpoint.with_file_name(&file);
        durable::replace(&path, |writer| TensorFile::write(&BTreeMap::new(), pieces, writer))?;
        Ok(Part { file, crc32 })
    }
}

/// Whether a file of this name is a part, or one that a killed process left half-written.
fn is_part(name: &str) -> bool {
    let middle = name.strip_prefix("checkpoint-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let partial = || Some(name.strip_prefix(".checkpoint-")?.strip_suffix(".partial")?.split_once(".safetensors.")?.0);
    let pieces = || {
        let [step, place, content] = middle.or_else(partial)?.split('.').collect::<Vec<_>>()[..] else { return None };
        let (place, count) = place.split_once("-of-")?;
        let numbers = [step, place, count].iter().all(|number| number.parse::<u64>().is_ok());
        (numbers && content.len() == 8).then_some(())
    };
    pieces().is_some()
}

/// The checkpoint that the file at `path` is a part of, by its name; none if it is no part. It is the one of its step,
/// if that is still kept, or the newest.
pub(crate) fn checkpoint_of_part(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str().filter(|name| is_part(name))?;
    let step = name.split_once('.')?.0;
    let kept = path.with_file_name(format!("{step}.safetensors"));
    Some(if kept.exists() { kept } else { path.with_file_name(kept::NEWEST) })
}

/// Removes the parts in the folder of `checkpoint` that are not `named`; none of them is being written. Failing to is
/// no reason to stop.
pub fn remove_others(checkpoint: &Path, named: &BTreeSet<String>) {
    let folder = checkpoint.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| is_part(name) && !named.contains(*name)) {
            let _ = std::fs::remove_file(folder.join(name));
        }
    }
}

/// The tensors of these shapes, put together from the parts beside `checkpoint`.
pub(crate) fn whole(
    checkpoint: &Path,
    parts: &[Part],
    shapes: BTreeMap<String, Vec<usize>>,
) -> Result<BTreeMap<String, HostTensor>, PartError> {
    let mut files = Vec::new();
    for part in parts {
        if Path::new(&part.file).file_name().is_none_or(|name| name != &*part.file) {
            return Err(PartError::Name(part.file.clone()));
        }
        let path = checkpoint.with_file_name(&part.file);
        files.push((TensorFile::map(&path)?, &part.crc32, path));
    }
    let mut tensors = BTreeMap::new();
    for (name, shape) in shapes {
        let wrong = |path: &Path, fault: String| {
            let (path, tensor) = (path.to_owned(), name.clone());
            PartError::Piece { path, tensor, fault }
        };
        let (mut dtype, mut bytes) = (None::<DType>, Vec::new());
        for (file, crc32, path) in &files {
            let piece = file.tensors.get(&name).ok_or_else(|| wrong(path, "is missing".into()))?;
            let found = tensor_checksum(&name, piece);
            if let Some(expected) = crc32.get(&name).filter(|expected| **expected != found) {
                return Err(wrong(path, format!("is damaged: its CRC-32 is {found}, but {expected} was written")));
            }
            let dtype = *dtype.get_or_insert(piece.dtype());
            let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
            let length = elements.map(|elements| elements.div_ceil(parts.len()));
            let fits = piece.dtype() == dtype && length.is_some_and(|length| piece.shape() == [length]);
            if !fits || !crc32.contains_key(&name) {
                let (found, extents, parts) = (piece.dtype(), piece.shape(), parts.len());
                return Err(wrong(path, format!("is {found}{extents:?}, expected one of {parts} of {dtype}{shape:?}")));
            }
            if bytes.is_empty() {
                bytes = try_room(piece.bytes().len() * parts.len())?;
            }
            bytes.extend_from_slice(piece.bytes());
        }
        let dtype = dtype.unwrap_or(DType::F32);
        bytes.truncate(byte_length(dtype, &shape).unwrap_or(usize::MAX));
        let path = checkpoint.to_owned();
        let tensor = HostTensor::new(dtype, &shape, bytes);
        let tensor = tensor.map_err(|error| PartError::Piece { path, tensor: name.clone(), fault: error.to_string() });
        tensors.insert(name, tensor?);
    }
    Ok(tensors)
}

/// Over name, dtype and shape too, so that a damaged header is noticed where it still makes sense.
pub(crate) fn tensor_checksum(name: &str, tensor: &HostTensor) -> String {
    let description = format!("{name}\0{} {:?}\0", tensor.dtype(), tensor.shape());
    checksum([description.as_bytes(), tensor.bytes()])
}

/// A CRC-32, eight hexadecimal digits.
pub(crate) fn checksum<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    format!("{:08x}", hasher.finalize())
}
