//! Collectives, as plans write them down.

use std::fmt;
use std::sync::Arc;

use crate::collectives::Transfer;
use fulgurite_base::device::{Address, Command, LibraryCall};
use fulgurite_kernels::DType;
use fulgurite_kernels::mesh::Axis;

/// The most tensors whose elements an error tells.
const TOLD: usize = 6;

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

    /// In the words of an error, which need not tell of every tensor of a model.
    pub fn told(&self) -> String {
        let shown = if self.counts.len() > TOLD { &self.counts[..TOLD - 2] } else { &self.counts };
        let more = self.counts.len() - shown.len();
        let counts = shown.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.with_counts(&format!("[{counts}]{rest}"))
    }

    fn with_counts(&self, counts: &str) -> String {
        let Collective { axis, transfer, dtypes: [dtype, result], .. } = self;
        let to = if dtype == result { String::new() } else { format!(" in {result}") };
        format!("{transfer:?} along {axis} of {counts} elements of {dtype}{to}")
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
        f.write_str(&self.with_counts(&format!("{:?}", self.counts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Reduction;

    #[test]
    fn a_collective_of_many_tensors_is_told_in_short() {
        let of = |counts: Vec<usize>| Collective {
            axis: "data=2".parse().unwrap(),
            transfer: Transfer::AllReduce(Reduction::Mean),
            dtypes: [DType::BF16, DType::F32],
            counts,
        };
        let few = of(vec![768, 5]);
        assert_eq!(few.told(), "AllReduce(Mean) along data=2 of [768, 5] elements of bf16 in f32");
        assert_eq!(few.told(), few.to_string());
        let told = "AllReduce(Mean) along data=2 of [7, 7, 7, 7] and 144 more elements of bf16 in f32";
        assert_eq!(of(vec![7; 148]).told(), told);
    }
}
