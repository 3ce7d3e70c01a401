//! Products of matrices by cuBLASLt, as plans write them down.

use std::sync::Arc;

use crate::cublaslt::Problem;

use fulgurite_base::device::{Address, Command, LibraryCall};

/// The payload of a product: see [`MatmulAddresses`] for its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Matmul {
    /// The product that is computed.
    pub problem: Problem,
    /// A factor of the product.
    pub alpha: f64,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
}

/// What a product reads and writes, in the order of the call's operands.
#[derive(Debug, Clone, Copy)]
pub struct MatmulAddresses {
    /// Left operand.
    pub a: Address,
    /// Right operand.
    pub b: Address,
    /// What is added if the product accumulates; otherwise, and if it is absent, what is written.
    pub c: Option<Address>,
    /// The result.
    pub d: Address,
    /// The epilogue's vector.
    pub bias: Option<Address>,
    /// The epilogue's matrix.
    pub aux: Option<Address>,
    /// Memory that the library may use.
    pub workspace: Address,
    /// The factors of `a` and `b`, an f32 each, of products of 8 bits.
    pub factors: [Option<Address>; 2],
}

/// How many operands the call of a product has.
pub(super) const OPERANDS: usize = 9;

impl Matmul {
    /// The command, which is the same however operands are aligned beyond what kernels have a use for. `instead` is
    /// done where the library has no algorithm for the product; empty if that is an error.
    pub fn command(self, of: &MatmulAddresses, instead: Vec<Command>) -> Command {
        let MatmulAddresses { a, b, c, d, bias, aux, workspace, factors: [a_factor, b_factor] } = *of;
        let operands: [Option<Address>; OPERANDS] =
            [Some(a), Some(b), Some(c.unwrap_or(d)), Some(d), bias, aux, Some(workspace), a_factor, b_factor];
        let payload = Matmul { problem: self.problem.wherever_aligned(), ..self };
        Command::Library(Box::new(LibraryCall {
            payload: Arc::new(payload),
            operands: operands.into_iter().collect(),
            instead,
        }))
    }
}
