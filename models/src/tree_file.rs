//! Trees of arrays as safetensors files: a checkpoint of one's own model. The name of a tensor is the path of its leaf.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Error};

use crate::host_tensor::{HostTensor, HostTensorError};
use crate::tensor_file::{TensorFile, TensorFileError};
use fulgurite_kernels::durable;

/// Why a tree cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TreeFileError {
    /// The file cannot be written.
    #[error("'{}': cannot write: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// No safetensors file, or a damaged one.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// Another tree than the file's.
    #[error("'{}': {message}", path.display())]
    Tree {
        /// The file.
        path: PathBuf,
        /// Which tensor differs, and how.
        message: String,
    },
    /// An array cannot be copied to the host, or back to its device.
    #[error("'{leaf}': {source}")]
    Array {
        /// The path of the array in the tree.
        leaf: String,
        /// What the copy failed with.
        source: Box<Error>,
    },
    /// Several leaves of the tree have one path.
    #[error("the tree has two leaves of the path '{leaf}', of which a file would hold one; name its fields apart")]
    Twice {
        /// The path that the leaves share.
        leaf: String,
    },
    /// An array without a tensor of safetensors.
    #[error("'{leaf}': {source}")]
    Tensor {
        /// The path of the array in the tree.
        leaf: String,
        /// What the conversion failed with.
        source: HostTensorError,
    },
}

impl From<TreeFileError> for Error {
    fn from(error: TreeFileError) -> Error {
        Error::Argument { argument: "checkpoint".into(), message: error.to_string() }
    }
}

/// Writes a tree of arrays, of any devices. The file is replaced as a whole: a run that is killed leaves the old one or
/// the new one.
///
/// # Errors
/// If the file cannot be written, naming it and the reason.
pub fn save_tree<T: Tree<Leaf = Array>>(path: impl AsRef<Path>, tree: &T) -> Result<(), TreeFileError> {
    let path = path.as_ref();
    let mut tensors = BTreeMap::new();
    for (leaf, array) in tree.leaves() {
        let bytes =
            array.to_bytes().map_err(|source| TreeFileError::Array { leaf: leaf.clone(), source: Box::new(source) })?;
        let tensor = HostTensor::new(array.dtype(), array.shape(), bytes)
            .map_err(|source| TreeFileError::Tensor { leaf: leaf.clone(), source })?;
        let name = name_of(&leaf).to_owned();
        if tensors.insert(name, tensor).is_some() {
            return Err(TreeFileError::Twice { leaf });
        }
    }
    durable::write_with(path, |writer| TensorFile::write(&BTreeMap::new(), &tensors, writer))
        .map_err(|source| TreeFileError::Write { path: path.to_owned(), source })
}

/// Reads what [`save_tree`] wrote into the structure of `like`: the same paths, shapes and element types, on the
/// devices of `like`.
///
/// # Errors
/// If the file is not a safetensors file, or has other tensors than `like`; the message names the file, the tensor, and
/// both forms.
pub fn load_tree<T>(path: impl AsRef<Path>, like: &T) -> Result<T::With<Array>, TreeFileError>
where
    T: Tree<Leaf = Array> + Clone,
{
    let path = path.as_ref();
    let mut file = TensorFile::load(path)?;
    let differ = |message: String| TreeFileError::Tree { path: path.to_owned(), message };
    let mut arrays = Vec::new();
    for (leaf, expected) in like.leaves() {
        let name = name_of(&leaf);
        let form = |dtype: DType, shape: &[usize]| format!("{dtype}{shape:?}");
        let wanted = form(expected.dtype(), expected.shape());
        let Some(tensor) = file.tensors.remove(name) else {
            return Err(differ(format!("has no tensor '{name}', expected {wanted}")));
        };
        let found = form(tensor.dtype(), tensor.shape());
        if found != wanted {
            return Err(differ(format!("tensor '{name}' is {found}, expected {wanted}")));
        }
        // Memory of its own: a mapped file's cannot be donated.
        let array = Array::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes());
        let placed = array.and_then(|array| array.to_device(expected.device()));
        arrays.push(placed.map_err(|source| TreeFileError::Array { leaf: leaf.clone(), source: Box::new(source) })?);
    }
    if let Some(name) = file.tensors.keys().next() {
        let count = file.tensors.len();
        return Err(differ(format!("has {count} tensors that the tree lacks, the first is '{name}'")));
    }
    let mut arrays = arrays.into_iter();
    Ok(like.clone().map(&mut |_| arrays.next().unwrap_or_else(|| unreachable!("one for each leaf"))))
}

/// The name of a leaf's tensor; a tree that is one leaf has no path.
fn name_of(path: &str) -> &str {
    if path.is_empty() { "tensor" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (Array, Vec<Array>) {
        let half = Array::from_f64([2], DType::BF16, &[0.5, -2.0]).unwrap();
        (Array::new([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(), vec![Array::scalar(7.0), half])
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.safetensors");
        // Strides of any kind are written in row-major order.
        let mut saved = tree();
        saved.0 = saved.0.permute(&[1, 0]).unwrap();
        save_tree(&path, &saved).unwrap();
        let mut like = tree();
        like.0 = Array::zeros([3, 2], DType::F32).unwrap();
        let loaded = load_tree(&path, &like).unwrap();
        assert_eq!(loaded.0.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(loaded.1[1].to_f64().unwrap(), [0.5, -2.0]);
        assert!(loaded.0.is_unique(), "it can be donated");
        let names: Vec<String> = TensorFile::load(&path).unwrap().tensors.into_keys().collect();
        assert_eq!(names, ["0", "1.0", "1.1"]);
        save_tree(&path, &Array::scalar(3.0)).unwrap();
        assert_eq!(load_tree(&path, &Array::scalar(0.0)).unwrap().item().unwrap(), 3.0);
    }

    #[test]
    fn another_tree_than_the_file_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.safetensors");
        save_tree(&path, &tree()).unwrap();
        let fails = |like: (Array, Vec<Array>)| {
            let message = load_tree(&path, &like).map(drop).unwrap_err().to_string();
            assert!(message.contains("own.safetensors"), "{message}");
            message
        };
        let mut other = tree();
        other.0 = Array::zeros([3, 2], DType::F32).unwrap();
        assert!(fails(other).contains("tensor '0' is f32[2, 3], expected f32[3, 2]"));
        let mut other = tree();
        other.1[1] = Array::zeros([2], DType::F32).unwrap();
        assert!(fails(other).contains("tensor '1.1' is bf16[2], expected f32[2]"));
        let mut more = tree();
        more.1.push(Array::scalar(0.0));
        assert!(fails(more).contains("has no tensor '1.2', expected f32[]"));
        let mut fewer = tree();
        fewer.1.pop();
        assert!(fails(fewer).contains("has 1 tensors that the tree lacks, the first is '1.1'"));
        std::fs::write(&path, "no file of tensors").unwrap();
        assert!(fails(tree()).contains("header"));
        let missing = load_tree(folder.path().join("none"), &tree()).map(drop).unwrap_err().to_string();
        assert!(missing.contains("none"), "{missing}");
        let nowhere = save_tree(folder.path().join("no/folder"), &tree()).unwrap_err().to_string();
        assert!(nowhere.contains("no/folder") && nowhere.contains("cannot write"), "{nowhere}");
    }
}
