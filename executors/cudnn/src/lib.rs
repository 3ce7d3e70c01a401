//! `cudnn`: scaled dot-product attention of bf16 and f16, and convolutions of f32, f64, bf16 and f16, by NVIDIA's
//! library, forward and backward.
//!
//! It must be named, or win where implementations are measured. Whether a program can use it is decided by the target
//! and the shapes alone, so that equal programs have equal traces on every machine; where the library is absent,
//! loading the program is an error with the reason.
//!
//! Sums are f32, those of f64 are f64. Products are multiplied as elements are: weights and gradients of scores are
//! rounded to their type. `cudnn_tf32`, its other precision, which must be asked for by name, rounds operands of f32 to
//! TF32 in convolutions. Results are the same bits in every run. The backward pass of attention is the library's
//! deterministic one, which keeps the gradients of scores in the workspace: two bytes for each score, so that memory
//! grows with the square of the length.

mod convolution_claims;
mod convolution_launch;
mod convolutions;
mod geometry;
mod launch;
mod symbols;

pub use convolutions::{convolution, convolution_input_gradient, convolution_weight_gradient};
pub use symbols::{attention, attention_alone, attention_backward};

use fulgurite_ops_macros::executor;

/// Attention and convolutions by cuDNN, in the precision of their elements.
#[executor(device = "cuda", precisions(cudnn_tf32 = tf32))]
pub mod cudnn {}
