//! Rewrites: an arrangement of symbols is found by its shape and replaced by another that means the same.
//!
//! The shape of a pattern (its operators and how they are connected) comes from tracing it on its first sample; where the
//! shape is found, the pattern is traced again on the metas at hand: operators and attributes must be equal, the pattern's parameters bind to values consistently (a parameter that occurs twice must be the same value twice), and
//! symbols that do not depend on one another may stand in any order. What lies between must not need the results: a match
//! is written where its last symbol stood, so it is refused if a result is read before. Numbers that the program knows
//! (`prims::full` and views of it) may be read elsewhere as well, and stand anywhere.
//!
//! Most rewrites work on what was acquired. Late ones work on what autodiff leaves; those of an executor take part where it is
//! in the list, and leave alone what an executor before it takes, and what would become something that it does not take.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use fulgurite_kernels::DType;

use super::flatten::{Flattener, inline};
use super::{Fuel, claim, dce};
use crate::argument::{Arg, map_arguments};
use crate::error::Result;
use crate::executor::{Claim, ExecutorDef, Refusal, RewriteDef, executors_of, find_implementation, rewrites};
use crate::meta::{Device, TensorMeta};
use crate::testing::samples::Samples;
use crate::trace::{Block, BoundSymbol, Callee, Results, Trace, ValueId};
use crate::tracer::trace_block;

/// The rewrites that take part without being asked for: those declared `default`, and those of executors.
pub fn default_rewrites() -> Vec<&'static RewriteDef> {
    rewrites().into_iter().filter(|rewrite| rewrite.default || !rewrite.executors.is_empty()).collect()
}

/// Applies each rewrite of the acquired program wherever it matches, also inside `value_and_grad`.
pub fn rewrite(trace: &Trace, rewrites: &[&'static RewriteDef], fuel: &mut Fuel) -> Result<Trace> {
    let mut block = trace.block.clone();
    for rewrite in rewrites.iter().filter(|rewrite| !rewrite.late) {
        block = apply(&block, rewrite, fuel)?;
    }
    Ok(trace.transformed("rewrite", block))
}

/// Applies each late rewrite wherever it matches. Those of executors take part for the first of theirs in the list.
pub fn late(
    trace: &Trace,
    rewrites: &[&'static RewriteDef],
    executors: &[&'static ExecutorDef],
    fuel: &mut Fuel,
) -> Result<Trace> {
    let executors = executors_of(executors, &trace.target);
    let mut block = trace.block.clone();
    for rewrite in rewrites.iter().filter(|rewrite| rewrite.late) {
        let place = executors.iter().position(|executor| rewrite.executors.contains(&executor.name));
        let owners = match place {
            Some(first) => Some(Owners { executors: &executors, first }),
            None if rewrite.executors.is_empty() => None,
            None => continue,
        };
        block = apply_for(&block, rewrite, owners, fuel)?;
    }
    Ok(trace.transformed("late_rewrite", block))
}

/// Replaces every match of one rewrite in a block, whoever it belongs to.
pub fn apply(block: &Block, rewrite: &RewriteDef, fuel: &mut Fuel) -> Result<Block> {
    apply_for(block, rewrite, None, fuel)
}

/// The list of executors, and where the first that a rewrite belongs to stands in it.
#[derive(Clone, Copy)]
struct Owners<'a> {
    executors: &'a [&'static ExecutorDef],
    first: usize,
}

fn apply_for(block: &Block, rewrite: &RewriteDef, owners: Option<Owners<'_>>, fuel: &mut Fuel) -> Result<Block> {
    let mut block = block.clone();
    for symbol in &mut block.symbols {
        if let (Callee::ValueAndGrad { .. }, Some(body)) = (&symbol.callee, &symbol.body) {
            symbol.body = Some(Arc::new(apply_for(body, rewrite, owners, fuel)?.canonical()));
        }
    }
    let Some(shape) = shape_of(rewrite)? else { return Ok(block) };
    loop {
        let (found, refusals) = find_all(&block, rewrite, &shape, owners, fuel);
        if found.is_empty() {
            for (symbol, refusal) in refusals {
                let known = &mut block.symbols[symbol].refusals;
                if !known.contains(&refusal) {
                    known.push(refusal);
                }
            }
            return Ok(block);
        }
        block = replace(&block, &found, rewrite)?.canonical();
    }
}

/// A match.
struct Match {
    /// Indices of the matched symbols, one for each symbol of the pattern.
    symbols: Vec<usize>,
    /// Of those the ones that it takes away: all but numbers that the program knows.
    consumed: Vec<usize>,
    /// What each parameter of the pattern is.
    parameters: Vec<ValueId>,
    /// What each result of the pattern is.
    results: Vec<ValueId>,
}

impl Match {
    /// Where its replacement stands.
    fn place(&self) -> usize {
        self.consumed.iter().copied().max().unwrap_or(0)
    }
}

/// Why a match was not made, and of which symbol that is to be said.
type Refused = (usize, Refusal);

/// Matches that have no symbol in common, as long as there is fuel; and the refusals.
fn find_all(
    block: &Block,
    rewrite: &RewriteDef,
    shape: &Shape,
    owners: Option<Owners<'_>>,
    fuel: &mut Fuel,
) -> (Vec<Match>, Vec<Refused>) {
    let mut search = Search {
        block,
        rewrite,
        shape,
        owners,
        anchor: 0,
        taken: vec![false; block.symbols.len()],
        refused: Vec::new(),
    };
    let mut found = Vec::new();
    for anchor in 0..block.symbols.len() {
        search.anchor = anchor;
        let Some(next) = search.extend(&FxHashMap::default(), &mut vec![None; shape.block.symbols.len()], 0) else {
            continue;
        };
        if !fuel.burn() {
            break;
        }
        next.consumed.iter().for_each(|i| search.taken[*i] = true);
        found.push(next);
    }
    (found, search.refused)
}

/// The pattern on the metas of its first sample: which operators it has, and how they are connected. Attributes may
/// depend on metas and are compared later, on the pattern traced for the metas at hand.
struct Shape {
    block: Block,
    /// Whether each symbol is a number that the program knows.
    numbers: Vec<bool>,
    /// The symbols in the order in which they are looked for: the first is none of these numbers.
    order: Vec<usize>,
}

/// Which symbols compute numbers that the program knows: from nothing, or from such numbers.
fn numbers_of(block: &Block) -> Vec<bool> {
    let mut known = vec![false; block.values.len()];
    block
        .symbols
        .iter()
        .map(|symbol| {
            let number = symbol.operands().all(|id| known[id.index()]);
            symbol.results.iter().for_each(|id| known[id.index()] = number);
            number
        })
        .collect()
}

fn shape_of(rewrite: &RewriteDef) -> Result<Option<Shape>> {
    let mut samples = Samples::new(None, DType::F32);
    if let Some(declare) = rewrite.samples {
        declare(&mut samples);
    }
    let Some(sample) = samples.into_cases().into_iter().next() else { return Ok(None) };
    let metas: Vec<TensorMeta> =
        sample.arguments.iter().flat_map(Arg::tensors).map(|tensor| tensor.meta(Device::CPU)).collect();
    let block = trace_side(rewrite, &metas, rewrite.pattern)?;
    let numbers = numbers_of(&block);
    let Some(first) = numbers.iter().position(|number| !number) else { return Ok(None) };
    let order = std::iter::once(first).chain((0..numbers.len()).filter(|i| *i != first)).collect();
    Ok(Some(Shape { block, numbers, order }))
}

fn trace_side(rewrite: &RewriteDef, metas: &[TensorMeta], side: crate::operator::TracedRule) -> Result<Block> {
    let parameters: Vec<(Arc<str>, TensorMeta)> =
        rewrite.params.iter().map(|name| Arc::from(*name)).zip(metas.iter().cloned()).collect();
    trace_block(&parameters, |handles| {
        let arguments: Vec<Arg<crate::Tensor>> = handles.iter().map(|handle| Arg::Tensor(*handle)).collect();
        side(&arguments)
    })
}

/// A search for matches.
struct Search<'a> {
    block: &'a Block,
    rewrite: &'a RewriteDef,
    shape: &'a Shape,
    owners: Option<Owners<'a>>,
    /// Where the first symbol of the match stands.
    anchor: usize,
    /// Symbols of matches that were made.
    taken: Vec<bool>,
    refused: Vec<Refused>,
}

impl Search<'_> {
    /// Finds the symbol of the pattern's shape that is the next in order, trying every candidate; `bound` maps its values to the
    /// block's, `symbols` its symbols.
    fn extend(
        &mut self,
        bound: &FxHashMap<ValueId, ValueId>,
        symbols: &mut Vec<Option<usize>>,
        next: usize,
    ) -> Option<Match> {
        let Some(place) = self.shape.order.get(next).copied() else {
            let parameters: Vec<ValueId> =
                self.shape.block.parameters.iter().map(|id| bound.get(id).copied()).collect::<Option<_>>()?;
            let symbols: Vec<usize> = symbols.iter().copied().collect::<Option<_>>()?;
            return self.match_with(symbols, parameters);
        };
        let wanted = &self.shape.block.symbols[place];
        let candidates = match (next, self.shape.numbers[place]) {
            (0, _) => self.anchor..self.anchor + 1,
            (_, true) => 0..self.block.symbols.len(),
            (_, false) => self.anchor + 1..self.block.symbols.len(),
        };
        for i in candidates {
            let symbol = &self.block.symbols[i];
            if self.taken[i]
                || symbol.executor.is_some()
                || symbol.callee != wanted.callee
                || symbols.contains(&Some(i))
                || symbol.operands().count() != wanted.operands().count()
            {
                continue;
            }
            let mut tried = bound.clone();
            let own = wanted.operands().chain(wanted.results.iter().copied());
            let theirs = symbol.operands().chain(symbol.results.iter().copied());
            if !own.zip(theirs).all(|(own, theirs)| *tried.entry(own).or_insert(theirs) == theirs) {
                continue;
            }
            symbols[place] = Some(i);
            if let Some(found) = self.extend(&tried, symbols, next + 1) {
                return Some(found);
            }
            symbols[place] = None;
        }
        None
    }

    /// Checks that the pattern, traced on the metas of `parameters`, is what stands at `symbols`, and that it may be replaced.
    fn match_with(&mut self, symbols: Vec<usize>, parameters: Vec<ValueId>) -> Option<Match> {
        let block = self.block;
        let metas: Vec<TensorMeta> = parameters.iter().map(|id| block.meta(*id).clone()).collect();
        let pattern = trace_side(self.rewrite, &metas, self.rewrite.pattern).ok()?;
        if pattern.symbols.len() != symbols.len() {
            return None;
        }
        let mut bound: FxHashMap<ValueId, ValueId> =
            pattern.parameters.iter().copied().zip(parameters.iter().copied()).collect();
        for (wanted, i) in pattern.symbols.iter().zip(&symbols) {
            let symbol = &block.symbols[*i];
            let arguments = map_arguments(&wanted.arguments, |id| bound.get(id).copied());
            if symbol.callee != wanted.callee || map_arguments(&symbol.arguments, |id| Some(*id)) != arguments {
                return None;
            }
            bound.extend(wanted.results.iter().copied().zip(symbol.results.iter().copied()));
        }
        let results: Vec<ValueId> = pattern.results.iter().map(|id| bound.get(id).copied()).collect::<Option<_>>()?;
        let numbers = numbers_of(&pattern);
        let consumed: Vec<usize> =
            symbols.iter().copied().zip(numbers).filter(|(_, number)| !number).map(|(i, _)| i).collect();
        let found = Match { symbols, consumed, parameters, results };
        if !independent(block, &found) {
            return None;
        }
        let allowed = self.rewrite.condition.map_or(Ok(()), |condition| condition(&metas));
        let allowed = allowed.and_then(|()| self.owners.map_or(Ok(()), |owners| self.left_to(owners, &found, &metas)));
        match allowed {
            Ok(()) => Some(found),
            Err(reason) => {
                if let Some(Owners { executors, first }) = self.owners {
                    let reason = format!("{}: {reason}", self.rewrite.name);
                    self.refused.push((found.place(), Refusal { executor: executors[first].name, reason }));
                }
                None
            }
        }
    }

    /// Whether no executor before the rewrite's own takes a matched symbol, and one of its own takes the replacement.
    fn left_to(&self, Owners { executors, first }: Owners<'_>, found: &Match, metas: &[TensorMeta]) -> Claim {
        for i in &found.consumed {
            let symbol = &self.block.symbols[*i];
            let arguments = self.block.argument_metas(symbol);
            let Some(def) = symbol.operator() else { continue };
            if let Some(before) = executors[..first].iter().find(|executor| claim::takes(executor, def, &arguments)) {
                return Err(format!("{} is taken by {}", def.name, before.name));
            }
        }
        let replacement =
            trace_side(self.rewrite, metas, self.rewrite.replacement).map_err(|error| error.to_string())?;
        let own = || executors[first..].iter().filter(|executor| self.rewrite.executors.contains(&executor.name));
        for symbol in &replacement.symbols {
            let Some(def) = symbol.operator() else { continue };
            let arguments = replacement.argument_metas(symbol);
            let mut offered = own().filter_map(|executor| find_implementation(def.name, executor.name)).peekable();
            if offered.peek().is_none() {
                continue;
            }
            let answers: Vec<Claim> = offered.map(|implementation| (implementation.checker)(&arguments)).collect();
            if answers.iter().all(Claim::is_err) {
                return answers.into_iter().next().unwrap_or(Ok(()));
            }
        }
        Ok(())
    }
}

/// Whether the match can be written where its last symbol stood: nothing before that reads a matched result, no inner
/// value is needed elsewhere, and the matched symbols do not feed parameters of the pattern.
fn independent(block: &Block, found: &Match) -> bool {
    let last = found.place();
    let defined: Vec<ValueId> = found.consumed.iter().flat_map(|i| block.symbols[*i].results.iter().copied()).collect();
    let inner_needed = |id: &ValueId| !found.results.contains(id);
    // A parameter that is computed from a matched result would be read before it exists.
    if found.parameters.iter().any(|id| defined.contains(id)) {
        return false;
    }
    let effects = found.symbols.iter().all(|i| block.symbols[*i].operator().is_some_and(|def| def.effects.mergeable()));
    let outside = block.symbols.iter().enumerate().filter(|(i, _)| !found.consumed.contains(i));
    for (i, symbol) in outside {
        for id in symbol.operands().filter(|id| defined.contains(id)) {
            if i < last || inner_needed(&id) {
                return false;
            }
        }
    }
    effects && !block.results.iter().any(|id| defined.contains(id) && inner_needed(id))
}

/// Writes the replacement of each match where its last symbol stood.
fn replace(block: &Block, matches: &[Match], rewrite: &RewriteDef) -> Result<Block> {
    let mut at: FxHashMap<usize, &Match> = FxHashMap::default();
    let mut consumed = vec![false; block.symbols.len()];
    for found in matches {
        at.insert(found.place(), found);
        found.consumed.iter().for_each(|i| consumed[*i] = true);
    }
    let (mut flattener, mut substitution) = Flattener::new(block);
    for (i, symbol) in block.symbols.iter().enumerate() {
        if let Some(found) = at.get(&i) {
            let metas: Vec<TensorMeta> = found.parameters.iter().map(|id| block.meta(*id).clone()).collect();
            let replacement = trace_side(rewrite, &metas, rewrite.replacement)?;
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
                &replacement,
                &mut |flattener, source, inner, substitution| {
                    flattener.copy(source, inner, substitution);
                    Ok::<(), crate::Error>(())
                },
            )?;
        } else if !consumed[i] {
            flattener.copy(block, symbol, &mut substitution);
        }
    }
    let written = flattener.finish(block, &substitution);
    // Numbers that the patterns alone read.
    let numbers = matches.iter().any(|found| found.symbols.len() > found.consumed.len());
    Ok(if numbers { dce::live(written) } else { written })
}
