//! Attention and convolutions by cuDNN: operation graphs of its backend interface, which need no headers of a toolkit.
//!
//! Scores of attention are not in memory in the forward pass. Results are the same bits run after run: in the backward
//! pass the gradient of queries is one product straight into its place, for which the library keeps gradients of scores
//! in its workspace; the faster way adds pieces in any order, and is not used. Its memory grows with the square of the
//! length.

mod attention;
mod call;
mod convolution;
mod descriptor;
mod engines;
mod graph;
mod library;
mod plan;
mod planned;
mod problem;
mod sys;

pub use convolution::{
    ConvolutionOperands, ConvolutionPass, ConvolutionPlan, ConvolutionProblem, ConvolutionProblemError,
    ConvolutionTuner, MOST_DIMENSIONS, strides_of,
};
pub use library::Cudnn;
pub use plan::{AttentionOperands, AttentionPlan, KEYS_TOGETHER};
pub use problem::{ALIGNMENT, Pass, Problem, ProblemError, Strides, WIDEST};
pub(super) use sys::Functions;
