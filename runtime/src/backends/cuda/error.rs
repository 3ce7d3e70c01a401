//! What the runtime has to know of errors of CUDA.

use fulgurite_kernels::cuda::CudaError;

use crate::device::{BackendError, Category};

impl BackendError for CudaError {
    fn category(&self) -> Category {
        match self {
            CudaError::Unavailable { .. } | CudaError::NoSuchDevice { .. } => Category::Unavailable,
            CudaError::OutOfMemory { .. } => Category::OutOfMemory,
            CudaError::Compile(_) | CudaError::Nvrtc { .. } => Category::Compile,
            CudaError::Problem(_) | CudaError::Attention(_) => Category::Unsupported,
            error if error.is_fatal() => Category::Lost,
            _ => Category::Other,
        }
    }
}
