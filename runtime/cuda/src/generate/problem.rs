//! What a kernel is generated for, and why there may be none.

use fulgurite_kernels::fused::{FusedProgram, OutputLayout};

/// An input as the kernel gets it.
#[derive(Debug, Clone, Copy)]
pub struct InputOperand<'a> {
    /// Strides in elements, in the iteration's shape; 0 where it is broadcast.
    pub strides: &'a [isize],
    /// Bytes that the address of its first element is known to be a multiple of.
    pub alignment: usize,
    /// Whether element `i` of its memory is known to be `i`, of an i32: where it is the same for all rows, it is
    /// computed instead of read.
    pub counted: bool,
}

/// An output as the kernel gets it. It may be exactly the same view as an input, and overlaps nothing else.
#[derive(Debug, Clone, Copy)]
pub struct OutputOperand<'a> {
    /// Shape and strides.
    pub layout: OutputLayout<'a>,
    /// Bytes that the address of its first element is known to be a multiple of.
    pub alignment: usize,
    /// Whether the sum over all rows is stored instead, in parts: each block adds its rows, in a fixed order, and
    /// stores a row of f32, at `block * width` (see [`super::GeneratedKernel::parts`]). The layout is that of an output
    /// whose strides are 0 but along the row, which is contiguous, and the type f32.
    pub summed: bool,
}

/// What a kernel is generated for.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// What the kernel is called; what is no identifier becomes one.
    pub name: &'a str,
    /// The program that the kernel computes.
    pub program: &'a FusedProgram,
    /// The iteration's shape.
    pub shape: &'a [usize],
    /// In the program's order.
    pub inputs: &'a [InputOperand<'a>],
    /// In the program's order.
    pub outputs: &'a [OutputOperand<'a>],
    /// Shared memory that a block of the device may have, in bytes (see
    /// [`crate::Device::shared_bytes_per_block`]).
    pub shared_bytes: usize,
    /// Whether blocks can work in clusters (compute capability 9.0 and newer).
    pub clusters: bool,
}

/// Why there is no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Nothing to compute, so nothing to launch.
    #[error("a region over {shape:?} has no elements, so it needs no kernel")]
    Empty {
        /// The iteration's shape.
        shape: Vec<usize>,
    },
    /// The parts of the problem do not fit each other.
    #[error("a region is malformed: {0}")]
    Malformed(String),
    /// Rows that are too short or too long for threads that add columns.
    #[error("rows of {width} elements do not suit threads that keep sums of columns")]
    Sums {
        /// Elements of a row.
        width: usize,
    },
    /// More blocks than a grid can have.
    #[error("a region needs {blocks} blocks, more than a grid can have")]
    TooLarge {
        /// Blocks needed.
        blocks: usize,
    },
}
