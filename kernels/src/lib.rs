//! The ground floor of Fulgurite: element types, buffers, strided views, the CPU building blocks (tiles, reductions,
//! products, random numbers). It is for the host alone, and knows no trace and no operator. Each `unsafe` block has its
//! reason beside it.

pub mod access;
pub mod attention;
pub mod buffer;
pub mod caches;
pub mod crash;
pub mod dtype;
pub mod durable;
pub mod elements;
pub mod elementwise;
mod extents;
pub mod folder;
pub mod fused;
#[doc(hidden)]
pub mod gemm;
pub mod indexing;
mod integers;
pub mod launch;
pub mod linalg;
pub mod machine;
pub mod matmul;
pub mod mesh;
pub mod not_contiguous;
pub mod order;
mod parallel;
pub mod paths;
pub mod philox;
mod product;
pub mod ranks;
pub mod reduce;
pub mod regular_file;
pub mod row;
pub mod scalar;
pub mod scan;
pub mod scratch;
pub mod search;
pub mod tile;
mod transpose;
pub mod vector;
pub mod view;
mod walk;
pub mod window_sums;
pub mod windows;

/// How this library was built: `"release"`, or `"debug"` with assertions and the verifier after every transform, which
/// makes compilation slower. Times of a debug build say nothing about a release build.
pub const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

pub use buffer::Buffer;
pub use dtype::DType;
pub use reduce::Reduction;
pub use view::{TensorMut, TensorRef};
