//! Convolutions by cuDNN, as plans write them down.

use std::sync::Arc;

use crate::cudnn::{ConvolutionOperands, ConvolutionProblem};
use fulgurite_kernels::launch::DeviceAddress;

use fulgurite_base::device::{Address, Command, LibraryCall};

/// The payload of a convolution: see [`ConvolutionAddresses`] for its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// The convolution that is computed, or its gradient.
    pub problem: ConvolutionProblem,
}

/// What a convolution reads and writes, in the order of the call's operands.
#[derive(Debug, Clone, Copy)]
pub struct ConvolutionAddresses {
    /// Images, or their gradient.
    pub image: Address,
    /// Weights, or their gradient.
    pub weight: Address,
    /// The result, or its gradient.
    pub out: Address,
    /// [`ConvolutionProblem::workspace_bytes`] bytes that the library may use.
    pub workspace: Address,
}

/// How many operands a call has.
pub(super) const OPERANDS: usize = 4;

impl Convolution {
    /// The command. Where the library has no engine for the problem, loading the program is an error.
    pub fn command(self, of: &ConvolutionAddresses) -> Command {
        let operands = [of.image, of.weight, of.out, of.workspace].into_iter().map(Some).collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead: Vec::new() }))
    }

    /// The operands of a run.
    pub(super) fn at(operands: &[Address; OPERANDS], at: &dyn Fn(&Address) -> DeviceAddress) -> ConvolutionOperands {
        let [image, weight, out, workspace] = operands.each_ref().map(at);
        ConvolutionOperands { image, weight, out, workspace }
    }
}
