//! The ground floor of Fulgurite: element types, buffers, strided views and the CPU building blocks
//! (tiles, reductions, products, random numbers). It knows no trace and no operator, and it holds every
//! `unsafe` block of the workspace, each with its reason.

pub mod access;
pub mod buffer;
pub mod dtype;
pub mod elementwise;
pub mod fused;
pub mod indexing;
pub mod matmul;
pub mod order;
mod parallel;
pub mod philox;
pub mod reduce;
pub mod row;
pub mod scalar;
mod tile;
pub mod vector;
pub mod view;
mod walk;

pub use buffer::Buffer;
pub use dtype::DType;
pub use reduce::Reduction;
pub use view::{TensorMut, TensorRef};
