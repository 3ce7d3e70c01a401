//! `unsloth`: operators of Llama with the contracts of Unsloth's kernels.
//!
//! The loss is its own: it keeps a log-sum-exp for each row of logits, of rows of any length, and the gradient is
//! written over the logits later. A gated linear unit before a layer is not kept for the backward pass, which computes
//! it again beside its gradients, and writes all three over their operands. The norm of a frozen weight has no gradient
//! of it. Where the contracts are Liger's as well, the kernels are those of `liger`, and traces
//! show its symbols: the gated linear units, the rotation of queries and keys, the normalization. What a checker
//! refuses, the next executor of the list takes.

mod gated;
mod kernels;
mod layers;
mod losses;

pub use gated::{gated_backward, gated_linear};
pub use kernels::{cross_entropy, cross_entropy_backward};

use fulgurite_ops_macros::executor;

/// Operators of Llama with the contracts of Unsloth's kernels.
#[executor(device = "cuda")]
pub mod unsloth {}
