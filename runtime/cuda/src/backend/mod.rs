//! NVIDIA GPUs: the device kind `cuda`.
//!
//! Kernels are CUDA C++, compiled at run time by NVRTC; products of matrices are calls of cuBLASLt ([`Matmul`]),
//! attention and convolutions may be calls of cuDNN ([`Attention`], [`Convolution`]), and what devices give each other
//! is a call of NCCL ([`Collective`]). From its second run on a program is replayed as a CUDA graph, whose nodes are
//! updated where inputs or outputs are elsewhere. Everything raw is in [`crate`].

mod attention;
mod choice;
mod code;
mod collective;
mod context;
mod convolution;
mod error;
mod kind;
mod library;
mod matmul;
mod properties;
mod recorders;
mod stream;
mod work;

pub use attention::{Attention, AttentionAddresses};
pub use collective::Collective;
pub use context::CudaContext;
pub use convolution::{Convolution, ConvolutionAddresses};
pub use kind::Cuda;
pub use matmul::{Matmul, MatmulAddresses};
pub use stream::CudaStream;
