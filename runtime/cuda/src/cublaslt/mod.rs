//! Matrix products by cuBLASLt: plans of our own over the library's descriptors.
//!
//! Matrices here are row-major, the library's are column-major. A row-major `m x n` matrix read as column-major is its
//! transpose, so the library is asked for `Dᵀ = op(B)ᵀ op(A)ᵀ`: the operands change places, `m` and `n` with them, and
//! nothing is transposed in memory. The library's bias belongs to rows of its result, thus to our columns: one value
//! for each of the `n` features, as a linear layer has it. Its `BGRADA` sums what it calls A, our B.
//!
//! Results are the same bits run after run: split sums are added in a fixed order from the workspace, in the type that
//! is computed in, and schemes that round partial sums to the output's type are not allowed.

mod algorithm;
mod descriptor;
mod library;
mod plan;
mod problem;
mod survey;
mod tune;

pub use algorithm::Algorithm;
pub use library::CublasLt;
pub use plan::{MatmulOperands, MatmulPlan};
pub use problem::{Compute, EIGHT_BIT_MULTIPLE, Epilogue, Format, Operand, Problem, ProblemError, has_eight_bits};
pub use survey::{Surveyed, survey};
pub use tune::Tuner;
