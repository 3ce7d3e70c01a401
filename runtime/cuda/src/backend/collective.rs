//! Collectives by NCCL, as plans write them down.

use std::fmt;
use std::sync::Arc;

use crate::nccl::Transfer;
use fulgurite_base::device::{Address, Command, LibraryCall};
use fulgurite_kernels::DType;
use fulgurite_kernels::mesh::Axis;

/// The payload of a collective of one or more tensors. Its operands are, of each, the one that this rank gives and the
/// one that it gets: at the same place, or at places that do not overlap.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// The axis of the mesh along which it goes.
    pub axis: Axis,
    /// How the ranks' tensors become one, or are distributed.
    pub transfer: Transfer,
    /// The element type of all tensors.
    pub dtype: DType,
    /// How many elements of each this rank gives.
    pub counts: Vec<usize>,
}

impl Collective {
    /// The command, from contiguous tensors to others. Where NCCL is absent, or runs with another mesh, loading the
    /// program is an error.
    pub fn command(self, pairs: impl Iterator<Item = [Address; 2]>) -> Command {
        let operands = pairs.flatten().map(Some).collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead: Vec::new() }))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} along {} of {:?} elements of {}", self.transfer, self.axis, self.counts, self.dtype)
    }
}
