//! What the samples of all executors have in common, beside the generated tests: the host takes every prim, and kernels
//! compile for other architectures, layouts and sizes than the template `sources` asks for.

mod common;

mod cuda_sources;
mod epilogue_sources;
mod host;
mod kernel_sources;
