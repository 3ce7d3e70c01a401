//! What can go wrong on the way to a device, as values.

use super::cublaslt::ProblemError;
use super::cudnn;
use super::diagnostics::Diagnostic;
use std::fmt;

/// Result of a CUDA call.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// Why something on the CUDA floor failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    // === What the machine lacks ===
    /// A library is absent or too old for what was asked.
    #[error("{library} is not available: {reason}; {advice}")]
    Unavailable {
        /// The library, as in [`super::Library::name`].
        library: &'static str,
        /// What was found out.
        reason: String,
        /// What to do about it.
        advice: String,
    },
    /// The device number is not one of this machine's.
    #[error("there is no CUDA device {ordinal}: this process sees {count}")]
    NoSuchDevice {
        /// The requested number.
        ordinal: usize,
        /// How many devices there are.
        count: usize,
    },

    // === What a library answered ===
    /// The driver refused a call, or reports a failure of earlier work.
    #[error("{call} failed: {name} ({text})")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The error's symbolic name, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The driver's own description.
        text: String,
    },
    /// The device has not enough memory left.
    #[error(
        "out of device memory: requested {asked} bytes, {free} of {total} are free, {held} are held by this process"
    )]
    OutOfMemory {
        /// Requested bytes.
        asked: usize,
        /// Bytes free on the device, for all processes.
        free: usize,
        /// Bytes of the device.
        total: usize,
        /// Bytes that this process's [`super::DeviceMemory`] holds on the device.
        held: usize,
    },
    /// NVRTC failed other than by a mistake in the source.
    #[error("{call} failed: {text}")]
    Nvrtc {
        /// NVRTC's function.
        call: &'static str,
        /// NVRTC's own description, and its log where it left one.
        text: String,
    },
    /// A source does not compile.
    #[error(transparent)]
    Compile(#[from] Box<CompileError>),
    /// cuBLASLt refused a call.
    #[error("{call} failed: {name} ({text})")]
    Cublaslt {
        /// cuBLASLt's function.
        call: &'static str,
        /// The status' symbolic name.
        name: String,
        /// The library's own description.
        text: String,
    },
    /// cuDNN refused a call.
    #[error("{call}{of} failed: {name} ({text})")]
    Cudnn {
        /// cuDNN's function.
        call: &'static str,
        /// What it was called for, after a space and "for", or nothing.
        of: String,
        /// The status' symbolic name.
        name: String,
        /// What the library says of its last error.
        text: String,
    },

    /// NCCL refused a call.
    #[error("{call} failed: {name}{}", if text.is_empty() { String::new() } else { format!(" ({text})") })]
    Nccl {
        /// NCCL's function.
        call: &'static str,
        /// The library's description of the status.
        name: String,
        /// What the library says of its last error.
        text: String,
    },
    /// The device waited for other ranks in vain, and its collectives were aborted.
    #[error("rank {rank} waits in {waits}: {reason}")]
    Waited {
        /// This rank.
        rank: usize,
        /// The program, and its collectives that may be the one.
        waits: String,
        /// Why they will not end.
        reason: String,
    },
    /// The ranks of a mesh did not come together.
    #[error(transparent)]
    Ranks(#[from] fulgurite_kernels::ranks::RankError),

    // === What was asked wrongly ===
    /// A matrix product that cannot be planned.
    #[error(transparent)]
    Problem(#[from] Box<ProblemError>),
    /// Attention that cannot be planned.
    #[error(transparent)]
    Attention(#[from] Box<cudnn::ProblemError>),
    /// A convolution that cannot be planned.
    #[error(transparent)]
    Convolution(#[from] Box<cudnn::ConvolutionProblemError>),
    /// A kernel of this name is not in the module.
    #[error("there is no kernel `{kernel}` in the module, which has {present:?}")]
    NoSuchKernel {
        /// The requested name.
        kernel: String,
        /// The names that the module has.
        present: Vec<String>,
    },
    /// A launch that the device or the kernel's signature rules out.
    #[error("kernel `{kernel}` cannot be launched: {reason}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What the device or the kernel does not allow.
        reason: String,
    },
    /// Bytes that are no cubin.
    #[error("not a cubin: {reason}")]
    Cubin {
        /// The malformed part.
        reason: String,
    },
    /// An address that is not in memory of the device that it was given for.
    #[error("address {address:#x} is in {found}, expected memory of CUDA device {expected}")]
    Foreign {
        /// The address.
        address: u64,
        /// The memory that it is in: the host's, another device's.
        found: String,
        /// The device's number.
        expected: usize,
    },
    /// A range outside of its allocation.
    #[error("bytes {start}..{end} are outside of an allocation of {len} bytes")]
    Range {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Size of the allocation.
        len: usize,
    },
}

impl CudaError {
    /// The same, with what a call of cuDNN was for.
    pub(super) fn about(self, what: &str) -> CudaError {
        match self {
            CudaError::Cudnn { call, of, name, text } => {
                // What was known of the call stays: `cudnnBackendFinalize for Tensor, image [2, 3]`.
                let of = if of.is_empty() { format!(" for {what}") } else { format!("{of}, {what}") };
                CudaError::Cudnn { call, of, name, text }
            }
            other => other,
        }
    }

    /// Whether the driver or a library had not enough memory, on the device or the host.
    pub fn is_lack_of_memory(&self) -> bool {
        const LACKING: [&str; 5] = [
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
            "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        ];
        match self {
            CudaError::OutOfMemory { .. } => true,
            CudaError::Driver { name, .. } | CudaError::Cublaslt { name, .. } | CudaError::Cudnn { name, .. } => {
                LACKING.contains(&name.as_str())
            }
            _ => false,
        }
    }

    /// Whether the error has put the context out of use, so that every later call in this process fails as well:
    /// a kernel read or wrote outside of memory, hit an illegal instruction, ran too long, or trapped.
    pub fn is_fatal(&self) -> bool {
        const FATAL: [&str; 14] = [
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "CUDA_ERROR_LAUNCH_TIMEOUT",
            "CUDA_ERROR_ASSERT",
            "CUDA_ERROR_HARDWARE_STACK_ERROR",
            "CUDA_ERROR_ILLEGAL_INSTRUCTION",
            "CUDA_ERROR_MISALIGNED_ADDRESS",
            "CUDA_ERROR_INVALID_ADDRESS_SPACE",
            "CUDA_ERROR_INVALID_PC",
            "CUDA_ERROR_LAUNCH_FAILED",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "CUDA_ERROR_TENSOR_MEMORY_LEAK",
            "CUDA_ERROR_CONTAINED",
            "CUDA_ERROR_CONTEXT_IS_DESTROYED",
            "CUDA_ERROR_DEINITIALIZED",
        ];
        matches!(self, CudaError::Driver { name, .. } if FATAL.contains(&name.as_str()))
    }
}

/// Why a source did not compile.
#[derive(Debug, Clone)]
pub struct CompileError {
    /// What the source is called.
    pub name: String,
    /// The architecture compiled for.
    pub architecture: String,
    /// The messages, errors and warnings, in the compiler's order, each with the line it is about.
    pub diagnostics: Vec<Diagnostic>,
    /// The compilers' log as it is.
    pub log: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not compile for {}", self.name, self.architecture)?;
        self.diagnostics.iter().try_for_each(|diagnostic| write!(f, "\n{diagnostic}"))?;
        if self.diagnostics.is_empty() { write!(f, "\n{}", self.log.trim_end()) } else { Ok(()) }
    }
}

impl std::error::Error for CompileError {}
