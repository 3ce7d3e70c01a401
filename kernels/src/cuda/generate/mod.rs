//! CUDA C++ for fused regions: a [`FusedProgram`] and the layout of its operands become the text of a kernel.
//!
//! The text is complete (no headers, no toolkit), the same for the same problem, and written to be read: it carries the
//! name of the region, a list of the nodes, and `n7` in it is node 7. Element counts that nothing is gained from knowing
//! are parameters; extents, strides and row lengths are constants, which is what makes divisions by them cheap.
//!
//! **Arithmetic is the host's, operation by operation**, so that a program gives the same results wherever it runs:
//! f32 for `f32`, `bf16` and `f16`, f64, and i64 for integers, wrapped where they are stored. Sources are compiled with
//! [`OPTIONS`]: no contraction of `a * b + c` (the host has a rounding after each operation, and a contracted
//! `x * x - y * y` may be negative for equal squares), division and square root correctly rounded, subnormal numbers
//! kept. Regions are bound by memory, so this costs nothing that shows. Functions that no standard rounds (`exp`, `pow`,
//! ...) are those of CUDA's device library: at most 2 units in the last place off in f32, 4 for `pow`.
//!
//! A few long rows are reduced by several kernels, so that the whole device has work: see [`Stages`].
//!
//! Reductions have a fixed order (each thread in its own order, then lanes by shuffles, then warps through shared memory,
//! no atomics): the same inputs give the same bits. The order is not the host's.

mod elementwise;
mod emitter;
mod functions;
mod passes;
mod region;
mod row_plan;
mod rows;
mod stages;
mod text;
mod transposed;

use super::{Arguments, DeviceAddress, LaunchShape};
use crate::fused::{FusedProgram, OutputLayout};
use region::Region;

pub use stages::{Holder, Stage, StageOperand, Stages};

/// How sources must be compiled to mean what they say.
pub const OPTIONS: [&str; 4] = ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// An input as the kernel gets it.
#[derive(Debug, Clone, Copy)]
pub struct InputOperand<'a> {
    /// Strides in elements, in the iteration's shape; 0 where it is broadcast.
    pub strides: &'a [isize],
    /// Bytes that the address of its first element is known to be a multiple of.
    pub alignment: usize,
}

/// An output as the kernel gets it. It may be exactly the same view as an input, and overlaps nothing else.
#[derive(Debug, Clone, Copy)]
pub struct OutputOperand<'a> {
    /// Shape and strides.
    pub layout: OutputLayout<'a>,
    /// Bytes that the address of its first element is known to be a multiple of.
    pub alignment: usize,
}

/// What a kernel is generated for.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// What the kernel is called; what is no identifier becomes one.
    pub name: &'a str,
    /// What is computed.
    pub program: &'a FusedProgram,
    /// The iteration's shape.
    pub shape: &'a [usize],
    /// In the program's order.
    pub inputs: &'a [InputOperand<'a>],
    /// In the program's order.
    pub outputs: &'a [OutputOperand<'a>],
    /// Shared memory that a block of the device may have, in bytes (see [`super::Device::shared_bytes_per_block`]).
    pub shared_bytes: usize,
    /// Whether blocks can work in clusters (compute capability 9.0 and newer).
    pub clusters: bool,
}

/// What is bound to a parameter of a generated kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratedParameter {
    /// The address of an input's first element.
    Input(usize),
    /// The address of an output's first element.
    Output(usize),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    I64(i64),
}

/// A kernel as text, and how to launch it.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedKernel {
    /// The kernel's name in the source.
    pub name: String,
    /// CUDA C++, to be compiled with [`OPTIONS`].
    pub source: String,
    /// The launch for the problem it was generated for.
    pub shape: LaunchShape,
    /// What is bound to each parameter, in order. Inputs that no output depends on are none.
    pub parameters: Vec<GeneratedParameter>,
    /// Bytes that the address of each input must be a multiple of.
    pub input_alignments: Vec<usize>,
    /// Bytes that the address of each output must be a multiple of.
    pub output_alignments: Vec<usize>,
    /// Whether threads may use local memory.
    pub local_memory: bool,
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
    /// More blocks than a grid can have.
    #[error("a region needs {blocks} blocks, more than a grid can have")]
    TooLarge {
        /// Blocks needed.
        blocks: usize,
    },
}

impl GeneratedKernel {
    /// The kernel for a problem.
    ///
    /// # Errors
    /// [`GenerateError`]: there are no elements, more blocks than a grid can have, or a program whose parts do not fit
    /// each other.
    pub fn new(problem: &Problem<'_>) -> Result<GeneratedKernel, GenerateError> {
        let region = Region::new(problem)?;
        match transposed::Squares::of(&region) {
            _ if region.by_row => rows::generate(&region, problem),
            Some(squares) => transposed::generate(&region, &squares),
            None => elementwise::generate(&region),
        }
    }
}

impl GeneratedKernel {
    /// The arguments of a launch: addresses of the operands' first elements, in the program's order, and the numbers.
    ///
    /// # Panics
    /// If there are fewer addresses than the program has operands, or one is not aligned as the kernel assumes.
    pub fn arguments(&self, inputs: &[DeviceAddress], outputs: &[DeviceAddress]) -> Arguments {
        let aligned = |address: DeviceAddress, alignment: usize, what: &str, index: usize| {
            let name = &self.name;
            assert!(
                address.0.is_multiple_of(alignment as u64),
                "{what} {index} of {name} at {address:?} is no multiple of {alignment} bytes"
            );
            address
        };
        self.parameters.iter().fold(Arguments::new(), |arguments, parameter| match *parameter {
            GeneratedParameter::Input(index) => {
                arguments.pointer(aligned(inputs[index], self.input_alignments[index], "input", index))
            }
            GeneratedParameter::Output(index) => {
                arguments.pointer(aligned(outputs[index], self.output_alignments[index], "output", index))
            }
            GeneratedParameter::U32(number) => arguments.u32(number),
            GeneratedParameter::I64(number) => arguments.i64(number),
        })
    }
}

fn grid(blocks: usize) -> Result<u32, GenerateError> {
    match u32::try_from(blocks) {
        Ok(blocks) if blocks <= i32::MAX as u32 => Ok(blocks),
        _ => Err(GenerateError::TooLarge { blocks }),
    }
}
