//! CUDA C++ for fused regions: a [`FusedProgram`](fulgurite_kernels::fused::FusedProgram) and the layout of its
//! operands become the text of a kernel, written in a `Dialect`.
//!
//! The text includes the headers that hand-written kernels include as well ([`super::HEADERS`]), and no others. It is
//! the same for the same problem, and written to be read: it carries the name of the region, a list of the nodes, and
//! `n7` in it is node 7. Element counts that nothing is gained from knowing are parameters; extents, strides and row
//! lengths are constants, which makes divisions by them cheap.
//!
//! **Arithmetic is the host's, operation by operation**, so that a program gives the same results wherever it runs:
//! f32 for `f32`, `bf16` and `f16`, f64, and i64 for integers, wrapped where they are stored. Sources are compiled with
//! [`OPTIONS`]: no contraction of `a * b + c` (the host has a rounding after each operation, and a contracted
//! `x * x - y * y` may be negative for equal squares), division and square root correctly rounded, subnormal numbers
//! kept. Regions are bound by memory, so this costs nothing that shows. Functions that no standard rounds (`exp`,
//! `pow`, ...) are those of CUDA's device library: at most 2 units in the last place off in f32, 4 for `pow`.
//!
//! A few long rows are reduced by several kernels, so that the whole device has work: see [`Stages`].
//!
//! Reductions have a fixed order (each thread in its own order, then lanes by shuffles, then warps through shared
//! memory, no atomics): the same inputs give the same bits. The order is not the host's.

mod column_sums;
mod cuda_cpp;
mod dialect;
mod elementwise;
mod emitter;
mod kernel;
mod many;
mod passes;
mod problem;
mod region;
mod row_passes;
mod row_plan;
mod row_totals;
mod row_writer;
mod rows;
mod stages;
mod steady;
mod text;
mod transposed;

use cuda_cpp::CudaCpp;
use region::Region;

pub use kernel::{GeneratedKernel, GeneratedParameter, OPTIONS};
pub use many::{MOST_TENSORS, ManyKernel};
pub use problem::{GenerateError, InputOperand, OutputOperand, Problem};
pub use stages::{Holder, Stage, StageOperand, Stages};

impl GeneratedKernel {
    /// The kernel for a problem.
    ///
    /// # Errors
    /// [`GenerateError`]: there are no elements, more blocks than a grid can have, or a program whose parts do not fit
    /// each other.
    pub fn new(problem: &Problem<'_>) -> Result<GeneratedKernel, GenerateError> {
        let region = Region::new(problem, CudaCpp::make)?;
        match transposed::Squares::of(&region) {
            _ if region.by_row => rows::generate(&region, problem),
            Some(squares) => transposed::generate(&region, &squares),
            None => elementwise::generate(&region),
        }
    }
}
