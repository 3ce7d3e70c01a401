//! Collectives by NCCL, as plans write them down.

use std::fmt;
use std::sync::Arc;

use crate::nccl::Transfer;
use fulgurite_base::device::{Address, Command, LibraryCall};
use fulgurite_kernels::DType;
use fulgurite_kernels::mesh::Axis;

/// The payload of a collective, whose operands are the tensor that this rank gives and the one that it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// The axis of the mesh along which it goes.
    pub axis: Axis,
    /// How the ranks' tensors become one, or are distributed.
    pub transfer: Transfer,
    /// The element type of both tensors.
    pub dtype: DType,
    /// How many elements this rank gives.
    pub count: usize,
}

/// The number of a collective's operands.
pub(super) const OPERANDS: usize = 2;

impl Collective {
    /// The command, from one contiguous tensor to another. Where NCCL is absent, or runs with another mesh, loading the
    /// program is an error.
    pub fn command(self, from: Address, to: Address) -> Command {
        let operands = [Some(from), Some(to)].into_iter().collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead: Vec::new() }))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} along {} of {} elements of {}", self.transfer, self.axis, self.count, self.dtype)
    }
}
