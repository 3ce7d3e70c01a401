//! Convolutions by cuDNN, and their gradients: a graph of one operation each, by an engine that gives the same bits in
//! every run.

mod graph;
mod plan;
mod problem;
mod tune;

pub use plan::{ConvolutionOperands, ConvolutionPlan};
pub use problem::{ConvolutionPass, ConvolutionProblem, ConvolutionProblemError, MOST_DIMENSIONS, strides_of};
pub use tune::ConvolutionTuner;
