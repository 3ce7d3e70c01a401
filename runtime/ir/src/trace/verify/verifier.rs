//! The parts that the checks share: the trace, and errors for violated rules.

use std::cell::Cell;

use rustc_hash::FxHashMap;

use crate::error::{CallStack, Error, Place, Result};
use crate::trace::print::print_symbol;
use crate::trace::{Block, BoundSymbol, Trace, ValueId};

/// A broken rule in words; the caller adds the line.
pub(super) type Check<T = ()> = Result<T, String>;

pub(super) struct Verifier<'a> {
    pub(super) trace: &'a Trace,
    /// Bodies found right. Symbols share them, so each is checked once.
    pub(super) bodies: FxHashMap<*const Block, BlockEffects>,
    /// The symbol that breaks a rule; none yet, or what breaks it is no symbol.
    pub(super) wrong: Cell<Option<&'a BoundSymbol>>,
}

pub(super) fn name(block: &Block, id: ValueId) -> String {
    block.values.get(id.index()).map_or_else(|| format!("?{}", id.0), |value| format!("'{}'", value.name))
}

pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What a block does besides computing its results.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockEffects {
    pub(super) random: bool,
    pub(super) collective: bool,
}

impl<'a> Verifier<'a> {
    /// The error that a rule is broken by a symbol of `block`.
    pub(super) fn broken_by(&self, block: &Block, symbol: &'a BoundSymbol, message: String) -> Error {
        self.wrong.set(Some(symbol));
        self.broken(print_symbol(block, symbol), symbol.place, message)
    }

    /// The error that a rule is broken by a line.
    pub(super) fn broken(&self, line: String, place: Option<Place>, message: String) -> Error {
        Error::Verify {
            transform: self.trace.history.last().map_or("tracing", |transform| transform).to_owned(),
            line,
            message,
            stack: CallStack { at: place, frames: Vec::new() },
        }
    }
}
