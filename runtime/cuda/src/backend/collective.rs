//! Collectives, as plans write them down.

use std::fmt;
use std::sync::Arc;

use crate::collectives::Transfer;
use fulgurite_base::device::{Address, Command, LibraryCall};
use fulgurite_kernels::DType;
use fulgurite_kernels::mesh::Axis;

/// The payload of a collective of one or more tensors. Its operands are, of each, the one that this rank gives and the
/// one that it gets, at the same place or at places that do not overlap; and the workspace, if there is any.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// The axis of the mesh along which it goes.
    pub axis: Axis,
    /// How the ranks' tensors become one, or are distributed.
    pub transfer: Transfer,
    /// The element type of all tensors that are given, and that of those that are got.
    pub dtypes: [DType; 2],
    /// How many elements of each this rank gives.
    pub counts: Vec<usize>,
}

impl Collective {
    /// Bytes of the workspace; 0 for none.
    pub fn workspace(&self) -> u64 {
        self.transfer.workspace(self.dtypes, &self.counts, self.axis.extent())
    }

    /// The command, from contiguous tensors to others. Where ranks run with another mesh, or have devices of several
    /// hosts and no NCCL, loading the program is an error.
    pub fn command(self, pairs: impl Iterator<Item = [Address; 2]>, workspace: Option<Address>) -> Command {
        let operands = pairs.flatten().chain(workspace).map(Some).collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead: Vec::new() }))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Collective { axis, transfer, dtypes: [dtype, result], counts } = self;
        write!(f, "{transfer:?} along {axis} of {counts:?} elements of {dtype}")?;
        if dtype == result { Ok(()) } else { write!(f, " in {result}") }
    }
}
