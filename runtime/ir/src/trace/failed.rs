//! What an error says of the symbol that failed.

use super::{Block, BoundSymbol, print};
use crate::error::{CallStack, Error};
use crate::failure::Failure;

impl BoundSymbol {
    /// The error of a symbol that failed on its data; `block` contains the symbol.
    pub fn failed(&self, block: &Block, failure: Failure) -> Error {
        Error::Run {
            operator: self.called(),
            failure,
            line: print::print_symbol(block, self).into(),
            stack: CallStack { at: self.place, frames: Vec::new() },
        }
    }
}
