//! Rewrites: an arrangement of symbols is found by its shape and replaced by another that means the same.
//!
//! The shape of a pattern (its operators and how they are connected) comes from tracing it on its first sample; where
//! the shape is found, the pattern is traced again on the metas at hand: operators and attributes must be equal, the
//! pattern's parameters bind to values consistently (a parameter that occurs twice must be the same value twice), and
//! symbols that do not depend on one another may stand in any order. What lies between must not need the results: a
//! match is written where its last symbol stood, so it is refused if a result is read before. A rewrite may declare
//! that the operands of some operators stand in either order (`commutes`), and that inner values may be read elsewhere
//! (`keep_inner`): what makes them then stays.
//!
//! The time is linear in the length of the program: the first symbol of a pattern is looked up by its operator, the
//! others by following the values that they share; and a pattern is traced once for all matches of the same metas.
//!
//! Most rewrites work on what was acquired. Late ones work on what autodiff leaves; those of an executor take part
//! where it is in the list, and leave alone what an executor before it takes, and what would become something that it
//! does not take.

mod pattern;
mod search;
mod uses;

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::pattern::{Owners, Pattern};
use self::search::{Match, find_all};
use self::uses::Uses;
use super::flatten::{Flattener, inline};
use crate::argument::Arg;
use crate::error::Result;
use crate::executor::{ExecutorDef, RewriteDef, executors_of, rewrites};
use crate::fuel::Fuel;
use crate::trace::{Block, BoundSymbol, Callee, Results, Trace};

#[cfg(feature = "testing")]
pub(crate) use self::pattern::commutes;

/// The rewrites that take part without being asked for: those declared `default`, and those of executors.
pub fn default_rewrites() -> Vec<&'static RewriteDef> {
    rewrites().into_iter().filter(|rewrite| rewrite.default || !rewrite.executors.is_empty()).collect()
}

/// Applies each rewrite of the acquired program wherever it matches, also inside `value_and_grad`.
pub fn rewrite(trace: &Trace, rewrites: &[&'static RewriteDef], fuel: &mut Fuel) -> Result<Trace> {
    let mut working = Working::new(&trace.block);
    for rewrite in rewrites.iter().filter(|rewrite| !rewrite.late) {
        working.apply(rewrite, None, fuel)?;
    }
    Ok(trace.transformed("rewrite", working.block.into_owned()))
}

/// Applies each late rewrite wherever it matches. Those of executors take part for the first of theirs in the list.
pub fn late(
    trace: &Trace,
    rewrites: &[&'static RewriteDef],
    executors: &[&'static ExecutorDef],
    fuel: &mut Fuel,
) -> Result<Trace> {
    let executors = executors_of(executors, &trace.target);
    let mut working = Working::new(&trace.block);
    for rewrite in rewrites.iter().filter(|rewrite| rewrite.late) {
        let place = executors.iter().position(|executor| rewrite.executors.contains(&executor.name));
        let owners = match place {
            Some(first) => Some(Owners { executors: &executors, first }),
            None if rewrite.executors.is_empty() => None,
            None => continue,
        };
        working.apply(rewrite, owners, fuel)?;
    }
    Ok(trace.transformed("late_rewrite", working.block.into_owned()))
}

/// Replaces every match of one rewrite in a block, whoever it belongs to.
pub fn apply(block: &Block, rewrite: &RewriteDef, fuel: &mut Fuel) -> Result<Block> {
    let mut working = Working::new(block);
    working.apply(rewrite, None, fuel)?;
    Ok(working.block.into_owned())
}

/// A block under change.
struct Working<'a> {
    block: Cow<'a, Block>,
    /// The index of the block, made when it is first asked for.
    uses: Option<Uses>,
}

impl<'a> Working<'a> {
    fn new(block: &'a Block) -> Working<'a> {
        Working { block: Cow::Borrowed(block), uses: None }
    }

    fn apply(&mut self, rewrite: &RewriteDef, owners: Option<Owners<'_>>, fuel: &mut Fuel) -> Result<()> {
        match Pattern::new(rewrite, owners)? {
            Some(pattern) => self.apply_pattern(&pattern, fuel),
            None => Ok(()),
        }
    }

    fn apply_pattern(&mut self, pattern: &Pattern<'_>, fuel: &mut Fuel) -> Result<()> {
        for i in 0..self.block.symbols.len() {
            let symbol = &self.block.symbols[i];
            let (Callee::ValueAndGrad { .. }, Some(body)) = (&symbol.callee, &symbol.body) else { continue };
            let body = body.clone();
            let mut inner = Working::new(&body);
            inner.apply_pattern(pattern, fuel)?;
            if let Cow::Owned(body) = inner.block {
                self.block.to_mut().symbols[i].body = Some(Arc::new(body.canonical()));
            }
        }
        loop {
            let uses = self.uses.get_or_insert_with(|| Uses::of(&self.block));
            let (found, refusals) = find_all(&self.block, uses, pattern, fuel);
            if found.is_empty() {
                for (symbol, refusal) in refusals {
                    if !self.block.symbols[symbol].refusals.contains(&refusal) {
                        self.block.to_mut().symbols[symbol].refusals.push(refusal);
                    }
                }
                return Ok(());
            }
            self.block = Cow::Owned(replace(&self.block, &found, pattern)?.canonical());
            self.uses = None;
        }
    }
}

/// Writes the replacement of each match where its last symbol stood.
fn replace(block: &Block, matches: &[Match], pattern: &Pattern<'_>) -> Result<Block> {
    let mut at: FxHashMap<usize, &Match> = FxHashMap::default();
    let mut consumed = vec![false; block.symbols.len()];
    for found in matches {
        at.insert(found.place(), found);
        found.consumed.iter().for_each(|i| consumed[*i] = true);
    }
    let (mut flattener, mut substitution) = Flattener::new(block);
    for (i, symbol) in block.symbols.iter().enumerate() {
        if let Some(found) = at.get(&i) {
            // A stand-in symbol whose body is the replacement, opened at once.
            let standing = BoundSymbol {
                callee: symbol.callee.clone(),
                arguments: vec![Arg::List(found.parameters.clone())],
                results: Results::from_slice(&found.results),
                body: None,
                executor: None,
                refusals: Vec::new(),
                place: symbol.place,
            };
            inline(
                &mut flattener,
                block,
                &standing,
                &mut substitution,
                pattern.replacement(&found.sides)?,
                &mut |flattener, source, inner, substitution| {
                    flattener.copy(source, inner, substitution);
                    Ok::<(), crate::Error>(())
                },
            )?;
        } else if !consumed[i] {
            flattener.copy(block, symbol, &mut substitution);
        }
    }
    Ok(flattener.finish(block, &substitution))
}
