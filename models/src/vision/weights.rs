//! Weights of models of images from safetensors files under torchvision's names, checkpoints of runs among them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;

use super::config::ImageConfig;
use crate::host_tensor::HostTensor;
use crate::kept;
use crate::model::Model;
use crate::optimizer::{FIRST_MOMENT, SECOND_MOMENT};
use crate::tensor_file::{TensorFile, TensorFileError};

/// A file that has no weights of a model.
#[derive(Debug, thiserror::Error)]
pub enum ImageWeightsError {
    /// No safetensors file, or a damaged one.
    #[error("'{}': {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TensorFileError,
    },
    /// A tensor that the model has and the file lacks, or has in another form.
    #[error("'{}': tensor {name:?} is {found}, expected f32{expected:?}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The shape in the file.
        found: String,
        /// The model's shape.
        expected: Vec<usize>,
    },
    /// A tensor of another model.
    #[error("'{}': tensor {name:?} belongs to no parameter of the model", path.display())]
    Surplus {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
}

/// The parameters and the running statistics of a model in the file at `path`, by name. The folder of a run stands for
/// its newest checkpoint. How often PyTorch has updated statistics (`num_batches_tracked`) means nothing here.
///
/// # Errors
/// See [`ImageWeightsError`].
pub fn image_weights(config: &ImageConfig, path: &Path) -> Result<BTreeMap<String, HostTensor>, ImageWeightsError> {
    let path = &*kept::of_run(path);
    let file = TensorFile::map(path).map_err(|source| ImageWeightsError::File { path: path.to_owned(), source })?;
    let mut there = file.tensors;
    let mut found = BTreeMap::new();
    for own in config.parameters().into_iter().chain(config.buffers()) {
        let told = match there.remove(&own.name) {
            Some(tensor) if tensor.dtype() == DType::F32 && tensor.shape() == own.shape => {
                found.insert(own.name, tensor);
                continue;
            }
            Some(tensor) => format!("{}{:?}", tensor.dtype(), tensor.shape()),
            None => "missing".to_owned(),
        };
        return Err(ImageWeightsError::Tensor {
            path: path.to_owned(),
            name: own.name,
            found: told,
            expected: own.shape,
        });
    }
    let told = |name: &str| {
        name.ends_with(".num_batches_tracked") || [FIRST_MOMENT, SECOND_MOMENT].iter().any(|of| name.starts_with(of))
    };
    match there.into_keys().find(|name| !told(name)) {
        Some(name) => Err(ImageWeightsError::Surplus { path: path.to_owned(), name }),
        None => Ok(found),
    }
}
