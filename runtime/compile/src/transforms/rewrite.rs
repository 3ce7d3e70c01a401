//! Rewrites: a pattern of symbols is matched by its structure and replaced by an equivalent one.
//!
//! The structure of a pattern (its operators and their connections) comes from tracing it on its samples, which also
//! tells where it has the attributes that it binds. Where the structure matches, the pattern is traced again on the
//! matched metas and attributes: operators and attributes must be equal, and the pattern's parameters must bind
//! consistently (a parameter that occurs twice must be the same value twice). Program and pattern are compared as they
//! were written and in a normal form. Symbols that do not depend on each other match in any order. The
//! replacement is inserted at the last matched symbol, so a match is refused if an earlier line reads a result. A
//! rewrite may declare that the operands of some operators commute (`commutes`), and that lines outside may read inner
//! values (`keep_inner`): the symbols that compute these are kept. A match that the rewrite's ranks or its condition
//! refuse is told at its last line, with the reason.
//!
//! The time is linear in the length of the program: the first symbol of a pattern is found by its operator, the others
//! by the values that they share, and a pattern is traced once for all matches of the same metas.
//!
//! Most rewrites run on the acquired trace. Late rewrites run after autodiff. Those that are declared `claimed` replace
//! a match only where an executor of the list runs the replacement as it is, and none before it a matched symbol. The
//! rewrites of an executor run if it is in the list; they skip symbols that an earlier executor accepts, and matches
//! whose replacement the executor would refuse.

mod form;
mod normal;
mod pattern;
mod search;
mod uses;
mod values;

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::pattern::{Owners, Pattern, Runners};
use self::search::{Match, find_all};
use self::uses::Uses;
use super::flatten::{Flattener, inline};
use crate::argument::Arg;
use crate::error::Result;
use crate::executor::{ExecutorDef, RewriteDef, executors_of, rewrites};
use crate::fuel::Fuel;
use crate::trace::{Block, BoundSymbol, Results, StageName, Trace};

pub use self::form::{check, side};
pub use self::pattern::{commutes, exchangeable};
pub use self::values::other_values;

/// The rewrites that run without being named: those declared `default`, and those of executors.
pub fn default_rewrites() -> Vec<&'static RewriteDef> {
    rewrites().into_iter().filter(|rewrite| rewrite.default || !rewrite.executors.is_empty()).collect()
}

/// Applies each rewrite of the acquired program wherever it matches, also inside `value_and_grad` and checkpoints.
pub fn rewrite(
    trace: &Trace,
    rewrites: &[&'static RewriteDef],
    executors: &[&'static ExecutorDef],
    fuel: &mut Fuel,
) -> Result<Trace> {
    let executors = executors_of(executors, &trace.target);
    let mut working = Working::new(&trace.block);
    for rewrite in rewrites.iter().filter(|rewrite| !rewrite.late) {
        working.apply(rewrite, Runners::of(rewrite, &executors), fuel)?;
    }
    Ok(trace.at_stage(StageName::Rewrite, working.block.into_owned()))
}

/// Applies each late rewrite to all of its matches. A rewrite of several executors runs for the first of them in the
/// list.
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
        let runners = match place {
            Some(first) => Runners::Owners(Owners { executors: &executors, first }),
            None if rewrite.executors.is_empty() => Runners::of(rewrite, &executors),
            None => continue,
        };
        working.apply(rewrite, runners, fuel)?;
    }
    Ok(trace.at_stage(StageName::LateRewrite, working.block.into_owned()))
}

/// Replaces every match of one rewrite in a block, for any executor.
pub fn apply(block: &Block, rewrite: &RewriteDef, fuel: &mut Fuel) -> Result<Block> {
    let mut working = Working::new(block);
    working.apply(rewrite, Runners::Any, fuel)?;
    Ok(working.block.into_owned())
}

/// A block under change.
struct Working<'a> {
    block: Cow<'a, Block>,
    /// The index of the block, made when it is first used, for late rewrites or for others.
    uses: Option<Uses>,
}

impl<'a> Working<'a> {
    fn new(block: &'a Block) -> Working<'a> {
        Working { block: Cow::Borrowed(block), uses: None }
    }

    fn apply(&mut self, rewrite: &RewriteDef, runners: Runners<'_>, fuel: &mut Fuel) -> Result<()> {
        self.apply_pattern(&Pattern::new(rewrite, runners)?, fuel)
    }

    fn apply_pattern(&mut self, pattern: &Pattern<'_>, fuel: &mut Fuel) -> Result<()> {
        for i in 0..self.block.symbols.len() {
            let symbol = &self.block.symbols[i];
            let (true, Some(body)) = (symbol.callee.holds_program(), &symbol.body) else { continue };
            let body = body.clone();
            let mut inner = Working::new(&body);
            inner.apply_pattern(pattern, fuel)?;
            if let Cow::Owned(body) = inner.block {
                self.block.to_mut().symbols[i].body = Some(Arc::new(body.canonical()));
            }
        }
        loop {
            let uses = self.uses.get_or_insert_with(|| Uses::of(&self.block, pattern.rewrite.late));
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

/// Writes the replacement of each match where its last symbol was.
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
                pass: symbol.pass,
                executor: None,
                schedule: Default::default(),
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
