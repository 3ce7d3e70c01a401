//! A generated kernel: its text, its launch and its arguments.

use super::problem::GenerateError;
use crate::{Arguments, DeviceAddress, LaunchShape};

/// How sources must be compiled to mean what they say.
pub const OPTIONS: [&str; 4] = ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

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
    /// Rows of parts that an output which is summed over all rows has.
    pub parts: usize,
    /// Whether threads may use local memory.
    pub local_memory: bool,
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
                "{what} {index} of {name} at {address:?} is not a multiple of {alignment} bytes"
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

/// Blocks as the size of a grid.
pub(super) fn grid(blocks: usize) -> Result<u32, GenerateError> {
    match u32::try_from(blocks) {
        Ok(blocks) if blocks <= i32::MAX as u32 => Ok(blocks),
        _ => Err(GenerateError::TooLarge { blocks }),
    }
}
