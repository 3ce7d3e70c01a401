//! Attention by cuDNN, as plans write it down.

use std::sync::Arc;

use crate::cudnn::{AttentionOperands, Problem};
use fulgurite_kernels::launch::DeviceAddress;
use smallvec::SmallVec;

use fulgurite_base::device::{Address, Command, LibraryCall};

/// The payload of attention: see [`AttentionAddresses`] for its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// The attention that is computed.
    pub problem: Problem,
    /// The factor of scores.
    pub scale: f32,
}

/// What attention reads and writes, in the order of the call's operands.
#[derive(Debug, Clone)]
pub struct AttentionAddresses {
    /// The tensors of heads, in the order of the problem's pass.
    pub heads: Vec<Address>,
    /// The logarithms of rows' sums, if the pass has them.
    pub log_sums: Option<Address>,
    /// Backward: room for one f32 for each element of `log_sums`.
    pub row_sums: Option<Address>,
    /// [`Problem::workspace_bytes`] bytes that the library may use.
    pub workspace: Address,
}

impl Attention {
    /// The command. Where the library has no engine for the problem, loading the program is an error.
    pub fn command(self, of: &AttentionAddresses) -> Command {
        let heads = of.heads.iter().copied().map(Some);
        let rest = [of.log_sums, of.row_sums, Some(of.workspace)];
        let operands = heads.chain(rest).collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead: Vec::new() }))
    }

    /// How many operands the call has.
    pub(super) fn operands(&self) -> usize {
        self.problem.pass.tensors() + 3
    }

    /// The operands of a run.
    pub(super) fn at(operands: &[Option<Address>], at: &dyn Fn(&Address) -> DeviceAddress) -> AttentionOperands {
        let found = |operand: &Option<Address>| operand.as_ref().map_or(DeviceAddress::NULL, at);
        let (heads, rest) = operands.split_at(operands.len() - 3);
        AttentionOperands {
            heads: heads.iter().map(found).collect(),
            log_sums: found(&rest[0]),
            row_sums: found(&rest[1]),
            workspace: found(&rest[2]),
        }
    }
}

/// The operands of a call.
pub(super) type Operands = SmallVec<[Option<Address>; 8]>;
