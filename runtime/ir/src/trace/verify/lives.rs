//! The lives of values: definition before use, and no use after the end.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::super::{Block, BoundSymbol, Callee, ValueId};
use super::verifier::{Check, Verifier, name};

/// What is known of the values of a block while its lines are walked.
pub(super) struct State {
    /// The line that defines a value: 0 for parameters, then from 1.
    pub(super) defined: Vec<Option<usize>>,
    pub(super) deleted: Vec<bool>,
    pub(super) names: FxHashSet<Arc<str>>,
}

impl State {
    pub(super) fn new(block: &Block) -> State {
        let n = block.values.len();
        State { defined: vec![None; n], deleted: vec![false; n], names: FxHashSet::default() }
    }

    pub(super) fn define(&mut self, block: &Block, id: ValueId, line: usize) -> Check {
        let Some(value) = block.values.get(id.index()) else {
            return Err(format!("defines value {}, the block has {}", id.0, block.values.len()));
        };
        if self.defined[id.index()].is_some() {
            return Err(format!("defines {} a second time", name(block, id)));
        }
        self.defined[id.index()] = Some(line);
        if !self.names.insert(value.name.clone()) {
            return Err(format!("another value is called {} too", name(block, id)));
        }
        Ok(())
    }

    pub(super) fn alive(&self, block: &Block, id: ValueId) -> Check {
        match self.defined.get(id.index()) {
            None => Err(format!("reads value {}, the block has {}", id.0, block.values.len())),
            Some(None) => Err(format!("reads {} before it is defined", name(block, id))),
            Some(Some(_)) if self.deleted[id.index()] => Err(format!("reads {} after its 'del'", name(block, id))),
            Some(Some(_)) => Ok(()),
        }
    }
}

impl Verifier<'_> {
    /// Definition before use, and no use after the end of a value's life.
    pub(super) fn operands(block: &Block, symbol: &BoundSymbol, state: &mut State) -> Check {
        let delete = symbol.callee == Callee::Delete;
        for id in symbol.operands() {
            state.alive(block, id)?;
            if delete {
                state.deleted[id.index()] = true;
            }
        }
        Ok(())
    }
}
