//! Strategies of training on several ranks, and of their checkpoints.

use std::fmt;
use std::str::FromStr;

use fulgurite_kernels::mesh::Mesh;

use crate::tensor_parallel::TENSOR;

/// How the ranks of a run divide its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Data parallel: each rank has the whole state and its own part of each batch; gradients are averaged.
    #[default]
    Ddp,
    /// Data parallel with a part of the state on each rank: gradients are scattered, parameters are gathered once a
    /// step.
    Zero2,
    /// As [`Strategy::Zero2`], and parameters are gathered again for the backward pass in place of being kept.
    Zero3,
    /// Each layer is divided among the ranks along the axis `tensor`, which have one batch; along the axis `data`, if
    /// there is one, ranks are as with [`Strategy::Ddp`].
    TensorParallel,
    /// As [`Strategy::TensorParallel`], and between layers the positions of each sequence are divided too.
    SequenceParallel,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 5] =
        [Strategy::Ddp, Strategy::Zero2, Strategy::Zero3, Strategy::TensorParallel, Strategy::SequenceParallel];

    /// Whether the layers of a model are divided.
    pub fn divides_layers(self) -> bool {
        matches!(self, Strategy::TensorParallel | Strategy::SequenceParallel)
    }

    /// The mesh of so many ranks, of which `tensor` divide each layer, all of them if absent.
    ///
    /// # Errors
    /// If the layers are not divided, or ranks are left over.
    pub fn mesh(self, ranks: usize, tensor: Option<usize>) -> std::result::Result<Mesh, String> {
        if !self.divides_layers() {
            return match tensor {
                None => format!("{DATA}={ranks}").parse(),
                Some(tensor) => Err(format!(
                    "{tensor} ranks are to divide each layer, which {self} does not do; expected tensor_parallel or \
                     sequence_parallel"
                )),
            };
        }
        let tensor = tensor.unwrap_or(ranks);
        if tensor == 0 || !ranks.is_multiple_of(tensor) {
            return Err(format!("{tensor} ranks are to divide each layer, expected a divisor of {ranks}, the ranks"));
        }
        match ranks / tensor {
            1 => format!("{TENSOR}={tensor}").parse(),
            data => format!("{DATA}={data} {TENSOR}={tensor}").parse(),
        }
    }

    /// Its name as an option.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Ddp => "ddp",
            Strategy::Zero2 => "zero2",
            Strategy::Zero3 => "zero3",
            Strategy::TensorParallel => "tensor_parallel",
            Strategy::SequenceParallel => "sequence_parallel",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Strategy, String> {
        let names = Strategy::ALL.map(Strategy::name).join(", ");
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| format!("'{text}' is no strategy, expected one of: {names}"))
    }
}

/// How several ranks write a checkpoint. Any number of them reads either, by any strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDict {
    /// One file of whole tensors, which one rank writes.
    Full,
    /// A file of each rank with its part of the state.
    Sharded,
}

impl StateDict {
    /// Both.
    pub const ALL: [StateDict; 2] = [StateDict::Full, StateDict::Sharded];

    /// Its name as an option.
    pub fn name(self) -> &'static str {
        match self {
            StateDict::Full => "full",
            StateDict::Sharded => "sharded",
        }
    }
}

impl FromStr for StateDict {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<StateDict, String> {
        let found = StateDict::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("'{text}' is no kind of checkpoint, expected full or sharded"))
    }
}

/// The axis of the ranks that have parts of a batch.
pub(super) const DATA: &str = "data";
