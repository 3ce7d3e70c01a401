//! CUDA: devices, memory, streams, graphs, run-time compilation, matrix products, attention, printed kernels; and in
//! [`backend`] the device kind `cuda`, which a program that links this crate has.
//!
//! This crate is the only one that names the bindings (`cudarc`). Its libraries are loaded when first needed; where
//! one is absent the answer is [`CudaError::Unavailable`] with a reason and advice, never a panic. [`probe()`] says
//! what a machine has.
//!
//! Three layers: the bindings' raw calls; `driver!` and its like, which turn codes into errors that carry the call's
//! name and the library's text; and the types here, which own what they made, give it back when dropped, and keep what
//! they need alive. What is `unsafe` in them is what no type can check: which addresses a kernel or a copy uses, and
//! when.

pub mod backend;
mod cache;
mod call;
pub mod collectives;
mod context;
mod copy;
mod cubin;
pub mod cublaslt;
pub mod cudnn;
mod device;
mod diagnostics;
mod error;
mod event;
mod fill;
mod function_table;
mod gather;
pub mod generate;
mod graph;
pub mod headers;
mod launch;
mod library;
mod library_files;
mod measuring;
mod memory;
mod module;
pub mod nvrtc;
mod own_kernels;
mod probe;
mod record;
pub mod sources;
mod stream;
mod symbols;

pub use cache::{CacheStatistics, KernelCache};
pub use context::{Context, Current, MemoryInfo};
pub use cubin::{KernelResources, Parameter};
pub use cublaslt::CublasLt;
pub use cudnn::Cudnn;
pub use device::{Device, device, devices};
pub use diagnostics::{Diagnostic, Severity};
pub use error::{CudaError, Result};
pub use event::Event;
pub use fill::Fill;
pub use gather::Gather;
pub use graph::{CaptureMode, ExecutableGraph, Graph, NodeCounts};
pub use headers::{HEADERS, Header};
pub use launch::Arguments;
pub use library::{Library, LibraryState, Version};
pub use library_files::LIBRARIES_VARIABLE;
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::{Function, Module};
pub use nvrtc::{Compilation, CompileError, Cubin};
pub use probe::{Probe, probe};
pub use stream::{Priority, Stream};

pub use fulgurite_kernels::caches::CACHE_VARIABLE;
pub use fulgurite_kernels::launch::{CopyRange, DeviceAddress, LaunchShape};
