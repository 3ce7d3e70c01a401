//! The rules of the language, checked after every transform in tests and debug builds.
//!
//! Names are unique in their block; values are defined once, before they are read, and not read after they were deleted
//! or overwritten; metas are what the operators' rules say; a nested body fits its symbol and has no effect that the
//! operator does not declare; executors exist, run on the target and take what they claim; a planned trace lacks
//! nothing that running it needs; all values are on one device; a line begins after the lines that it depends on,
//! whatever streams they are on; the memory plan gives no byte to two values at once.
//!
//! `lives` follows values through a block, `claims` checks executors, `signatures` metas and bodies, `effects` for what
//! is done besides computing, `devices` for where values are, `places` views and joins, `streams` the order of lines,
//! `memory` the plan.
//!
//! What the verifier concludes it concludes from declarations of operators, kernels and executors, by rules of its own
//! (`kernels`, `regions`, `ended`): it shares no predicate with the planner, so that it finds the planner's mistakes.
//! It takes from it the layouts that programs are run with, as data to be checked.

use std::cell::Cell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::layouts::Layout;
use super::print::{MAX_DEPTH, print_input, print_return};
use super::{Block, BoundSymbol, Trace};
use crate::error::{Error, Result};
use lives::State;
use signatures::Wrong;
use verifier::{BlockEffects, Verifier, count, name};

mod claims;
mod devices;
mod effects;
mod ended;
mod kernels;
mod lives;
mod memory;
mod places;
mod regions;
mod signatures;
mod streams;
mod verifier;

#[cfg(test)]
mod tests;

impl Trace {
    /// Checks every rule of the language; see [`verify()`].
    pub fn verify(&self) -> Result<()> {
        verify(self)
    }
}

/// Checks every rule of the language.
pub fn verify(trace: &Trace) -> Result<()> {
    verify_marked(trace).0
}

/// As [`verify()`], with the symbol that breaks the rule. It is none where the header, an input or a result does.
pub fn verify_marked(trace: &Trace) -> (Result<()>, Option<&BoundSymbol>) {
    let mut verifier = Verifier { trace, bodies: FxHashMap::default(), wrong: Cell::default() };
    let checked = verifier.all();
    (checked, verifier.wrong.get())
}

/// Checks that values are where the lines of a claimed trace say: that these are its layouts, of all values in the
/// order of their ids.
pub fn verify_layouts(trace: &Trace, layouts: &[Layout]) -> Result<()> {
    Verifier { trace, bodies: FxHashMap::default(), wrong: Cell::default() }.places(layouts)
}

pub use devices::{axis_of, on_the_mesh};
pub use effects::ordered;

impl<'a> Verifier<'a> {
    fn all(&mut self) -> Result<()> {
        self.interface()?;
        self.block(&self.trace.block, 0)?;
        self.devices()?;
        self.views()?;
        self.planned()?;
        self.streams()?;
        self.storage()
    }

    /// Inputs and outputs against the block.
    fn interface(&self) -> Result<()> {
        let Trace { inputs, outputs, block, .. } = self.trace;
        let header = format!("trace {} for {}", self.trace.name, self.trace.target);
        if inputs.len() != block.parameters.len() {
            let message = format!(
                "declares {}, the block has {}",
                count(inputs.len(), "input"),
                count(block.parameters.len(), "parameter")
            );
            return Err(self.broken(header, None, message));
        }
        if outputs.len() != block.results.len() {
            let message = format!(
                "declares {}, the block has {}",
                count(outputs.len(), "output"),
                count(block.results.len(), "result")
            );
            return Err(self.broken(header, None, message));
        }
        for (i, (input, id)) in inputs.iter().zip(&block.parameters).enumerate() {
            let (Some(strides), Some(value)) = (&input.strides, block.values.get(id.index())) else { continue };
            if strides.len() != value.meta.rank() {
                let message =
                    format!("has {} for {}", count(strides.len(), "stride"), count(value.meta.rank(), "dimension"));
                return Err(self.broken(print_input(self.trace, i), None, message));
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &'a Block, depth: usize) -> Result<BlockEffects> {
        let mut state = State::new(block);
        let mut effects = BlockEffects::default();
        for (i, id) in block.parameters.iter().enumerate() {
            state.define(block, *id, 0).map_err(|message| {
                let line = if depth == 0 { print_input(self.trace, i) } else { name(block, *id) };
                self.broken(line, None, message)
            })?;
        }
        for (i, symbol) in block.symbols.iter().enumerate() {
            let broken = |message: String| self.broken_by(block, symbol, message);
            Self::operands(block, symbol, &mut state).map_err(broken)?;
            for id in &symbol.results {
                // Metas come first: a rule that reads a result's meta needs the value to exist.
                if id.index() >= block.values.len() {
                    return Err(broken(format!("defines value {}, the block has {}", id.0, block.values.len())));
                }
            }
            Self::signature(block, symbol).map_err(|wrong| match wrong {
                Wrong::Here(message) => broken(message),
                Wrong::Inside(error) => broken(format!("its rules fail: {error}")),
            })?;
            self.claim(block, symbol, depth).map_err(broken)?;
            if depth > 0 && !symbol.schedule.is_plain() {
                return Err(broken(
                    "has a stream, or waits, inside a body; the line that the body is of has them".into(),
                ));
            }
            let inner = match &symbol.body {
                Some(body) => {
                    Self::body(block, symbol, body).map_err(broken)?;
                    let done = self.nested(symbol, body, depth)?;
                    let broken = |message: String| self.broken_by(block, symbol, message);
                    self.admitted(symbol, body).map_err(broken)?;
                    done
                }
                None => BlockEffects::default(),
            };
            let broken = |message: String| self.broken_by(block, symbol, message);
            let done = Self::effects(symbol, inner).map_err(broken)?;
            for id in &symbol.results {
                state.define(block, *id, i + 1).map_err(broken)?;
            }
            effects.random |= done.random;
            effects.collective |= done.collective;
        }
        for id in &block.results {
            state.alive(block, *id).map_err(|message| {
                let line = if depth == 0 { print_return(self.trace) } else { format!("yield {}", name(block, *id)) };
                self.broken(line, None, message.replacen("reads", "returns", 1))
            })?;
        }
        Ok(effects)
    }

    fn nested(&mut self, symbol: &'a BoundSymbol, body: &'a Arc<Block>, depth: usize) -> Result<BlockEffects> {
        if let Some(known) = self.bodies.get(&Arc::as_ptr(body)) {
            return Ok(*known);
        }
        if depth >= MAX_DEPTH {
            self.wrong.set(Some(symbol));
            return Err(self.broken(
                symbol.name().into(),
                symbol.place,
                format!("bodies nest deeper than {MAX_DEPTH}"),
            ));
        }
        let effects = self.block(body, depth + 1).map_err(|mut error| {
            if let Error::Verify { stack, .. } = &mut error {
                stack.frames.push((symbol.name().to_owned(), symbol.place));
            }
            if self.wrong.get().is_none() {
                self.wrong.set(Some(symbol));
            }
            error
        })?;
        self.bodies.insert(Arc::as_ptr(body), effects);
        Ok(effects)
    }
}
