//! `cudnn`: scaled dot-product attention by NVIDIA's library, forward and backward, of bf16 and f16.
//!
//! It must be named, or win where implementations are measured. Whether a program can use it is decided by the target
//! and the shapes alone, so that equal programs have equal traces on every machine; where the library is absent,
//! loading the program is an error with the reason.
//!
//! Sums are f32. Products are multiplied as elements are: weights and gradients of scores are rounded to their type.
//! The backward pass is the library's deterministic one, which keeps the gradients of scores in the workspace: two
//! bytes for each score, so that memory grows with the square of the length.

mod launch;
mod symbols;

pub use symbols::{attention, attention_alone, attention_backward};

use fulgurite_ops_macros::executor;

/// Attention by cuDNN, in the precision of bf16 and f16.
#[executor(device = "cuda")]
pub mod cudnn {}
