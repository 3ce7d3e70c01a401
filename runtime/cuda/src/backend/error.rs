//! What the runtime has to know of errors of CUDA.

use crate::CudaError;

use fulgurite_base::device::{BackendError, Category};

impl BackendError for CudaError {
    fn category(&self) -> Category {
        match self {
            CudaError::Unavailable { .. } | CudaError::NoSuchDevice { .. } => Category::Unavailable,
            CudaError::OutOfMemory { .. } => Category::OutOfMemory,
            error if error.is_lack_of_memory() => Category::OutOfMemory,
            CudaError::Compile(_) | CudaError::Nvrtc { .. } => Category::Compile,
            CudaError::Problem(_) | CudaError::Attention(_) | CudaError::Convolution(_) => Category::Unsupported,
            error if error.is_fatal() => Category::Lost,
            _ => Category::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lacks_memory_says_so() {
        let (text, of) = (String::new, String::new);
        let cudnn =
            |name: &str| CudaError::Cudnn { call: "cudnnBackendExecute", of: of(), name: name.into(), text: text() };
        let cublas = |name: &str| CudaError::Cublaslt { call: "cublasLtMatmul", name: name.into(), text: text() };
        let driver = |name: &str| CudaError::Driver { call: "cuModuleLoadData", name: name.into(), text: text() };
        for error in [
            cudnn("CUDNN_STATUS_ALLOC_FAILED"),
            cudnn("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
            cudnn("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
            cublas("CUBLAS_STATUS_ALLOC_FAILED"),
            driver("CUDA_ERROR_OUT_OF_MEMORY"),
        ] {
            assert_eq!(error.category(), Category::OutOfMemory, "{error}");
        }
        assert_eq!(cudnn("CUDNN_STATUS_EXECUTION_FAILED").category(), Category::Other);
        assert_eq!(cublas("CUBLAS_STATUS_EXECUTION_FAILED").category(), Category::Other);
        assert_eq!(driver("CUDA_ERROR_ILLEGAL_ADDRESS").category(), Category::Lost);
    }
}
