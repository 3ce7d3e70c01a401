//! Rewrites: an arrangement of symbols is found by its shape and replaced by another that means the same.
//!
//! The shape of a pattern (its operators and how they are connected) comes from tracing it on its first sample; where the
//! shape is found, the pattern is traced again on the metas at hand: operators and attributes must be equal, the pattern's parameters bind to values consistently (a parameter that occurs twice must be the same value twice), and
//! symbols that do not depend on one another may stand in any order. What lies between must not need the results: a match
//! is written where its last symbol stood, so it is refused if a result is read before.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use fulgurite_kernels::DType;

use super::Fuel;
use super::flatten::{Flattener, inline};
use crate::argument::{Arg, map_arguments};
use crate::error::Result;
use crate::executor::{RewriteDef, rewrites};
use crate::meta::{Device, TensorMeta};
use crate::testing::samples::Samples;
use crate::trace::{Block, BoundSymbol, Callee, Results, Trace, ValueId};
use crate::tracer::trace_block;

/// The rewrites that take part without being asked for.
pub fn default_rewrites() -> Vec<&'static RewriteDef> {
    rewrites().into_iter().filter(|rewrite| rewrite.default).collect()
}

/// Applies each rewrite wherever it matches, also inside `value_and_grad`.
pub fn rewrite(trace: &Trace, rewrites: &[&'static RewriteDef], fuel: &mut Fuel) -> Result<Trace> {
    let mut block = trace.block.clone();
    for rewrite in rewrites {
        block = apply(&block, rewrite, fuel)?;
    }
    Ok(trace.transformed("rewrite", block))
}

/// Replaces every match of one rewrite in a block.
pub fn apply(block: &Block, rewrite: &RewriteDef, fuel: &mut Fuel) -> Result<Block> {
    let mut block = block.clone();
    for symbol in &mut block.symbols {
        if let (Callee::ValueAndGrad { .. }, Some(body)) = (&symbol.callee, &symbol.body) {
            symbol.body = Some(Arc::new(apply(body, rewrite, fuel)?.canonical()));
        }
    }
    let Some(shape) = shape_of(rewrite)? else { return Ok(block) };
    let mut from = 0;
    while let Some((found, next)) = find(&block, rewrite, &shape, from) {
        if !fuel.burn() {
            break;
        }
        block = replace(&block, &found, rewrite)?.canonical();
        from = next;
    }
    Ok(block)
}

struct Match {
    /// Indices of the matched symbols, one for each symbol of the pattern.
    symbols: Vec<usize>,
    /// What each parameter of the pattern is.
    parameters: Vec<ValueId>,
    /// What each result of the pattern is.
    results: Vec<ValueId>,
}

/// The first match whose first symbol stands at or after `from`; also where to look on.
fn find(block: &Block, rewrite: &RewriteDef, shape: &Block, from: usize) -> Option<(Match, usize)> {
    (from..block.symbols.len()).find_map(|anchor| {
        let mut search = Search { block, rewrite, shape, anchor };
        search.extend(&mut FxHashMap::default(), &mut Vec::new()).map(|found| (found, anchor))
    })
}

/// The pattern on the metas of its first sample: which operators it has, and how they are connected. Attributes may
/// depend on metas and are compared later, on the pattern traced for the metas at hand.
fn shape_of(rewrite: &RewriteDef) -> Result<Option<Block>> {
    let mut samples = Samples::new(None, DType::F32);
    if let Some(declare) = rewrite.samples {
        declare(&mut samples);
    }
    let Some(sample) = samples.into_cases().into_iter().next() else { return Ok(None) };
    let metas: Vec<TensorMeta> =
        sample.arguments.iter().flat_map(Arg::tensors).map(|tensor| tensor.meta(Device::CPU)).collect();
    trace_side(rewrite, &metas, rewrite.pattern).map(Some)
}

fn trace_side(rewrite: &RewriteDef, metas: &[TensorMeta], side: crate::operator::TracedRule) -> Result<Block> {
    let parameters: Vec<(Arc<str>, TensorMeta)> =
        rewrite.params.iter().map(|name| Arc::from(*name)).zip(metas.iter().cloned()).collect();
    trace_block(&parameters, |handles| {
        let arguments: Vec<Arg<crate::Tensor>> = handles.iter().map(|handle| Arg::Tensor(*handle)).collect();
        side(&arguments)
    })
}

/// A search for the rest of a match whose first symbol is given.
struct Search<'a> {
    block: &'a Block,
    rewrite: &'a RewriteDef,
    shape: &'a Block,
    anchor: usize,
}

impl Search<'_> {
    /// Binds the next symbol of the pattern's shape, trying every candidate; `bound` maps its values to the block's.
    fn extend(&mut self, bound: &mut FxHashMap<ValueId, ValueId>, symbols: &mut Vec<usize>) -> Option<Match> {
        let Some(wanted) = self.shape.symbols.get(symbols.len()) else {
            let parameters: Vec<ValueId> =
                self.shape.parameters.iter().map(|id| bound.get(id).copied()).collect::<Option<_>>()?;
            return match_with(self.block, self.rewrite, self.anchor, &parameters);
        };
        let candidates =
            if symbols.is_empty() { self.anchor..self.anchor + 1 } else { self.anchor + 1..self.block.symbols.len() };
        for i in candidates {
            let symbol = &self.block.symbols[i];
            if symbols.contains(&i)
                || symbol.callee != wanted.callee
                || symbol.operands().count() != wanted.operands().count()
            {
                continue;
            }
            let mut tried = bound.clone();
            let consistent = wanted
                .operands()
                .zip(symbol.operands())
                .all(|(own, theirs)| *tried.entry(own).or_insert(theirs) == theirs);
            if !consistent {
                continue;
            }
            tried.extend(wanted.results.iter().copied().zip(symbol.results.iter().copied()));
            symbols.push(i);
            if let Some(found) = self.extend(&mut tried, symbols) {
                return Some(found);
            }
            symbols.pop();
        }
        None
    }
}

/// Checks that the pattern, traced on the metas of `parameters`, stands in the block.
fn match_with(block: &Block, rewrite: &RewriteDef, anchor: usize, parameters: &[ValueId]) -> Option<Match> {
    let metas: Vec<TensorMeta> = parameters.iter().map(|id| block.meta(*id).clone()).collect();
    let pattern = trace_side(rewrite, &metas, rewrite.pattern).ok()?;
    if rewrite.condition.is_some_and(|condition| condition(&metas).is_err()) {
        return None;
    }
    let mut bound: FxHashMap<ValueId, ValueId> =
        pattern.parameters.iter().copied().zip(parameters.iter().copied()).collect();
    let mut symbols: Vec<usize> = Vec::new();
    for wanted in &pattern.symbols {
        let arguments = map_arguments(&wanted.arguments, |id| bound.get(id).copied());
        let candidate = (anchor..block.symbols.len()).find(|i| {
            let symbol = &block.symbols[*i];
            !symbols.contains(i)
                && (!symbols.is_empty() || *i == anchor)
                && symbol.callee == wanted.callee
                && symbol.executor.is_none()
                && map_arguments(&symbol.arguments, |id| Some(*id)) == arguments
        })?;
        for (own, theirs) in wanted.results.iter().zip(&block.symbols[candidate].results) {
            bound.insert(*own, *theirs);
        }
        symbols.push(candidate);
    }
    let results: Vec<ValueId> = pattern.results.iter().map(|id| bound.get(id).copied()).collect::<Option<_>>()?;
    let found = Match { symbols, parameters: parameters.to_vec(), results };
    independent(block, &found).then_some(found)
}

/// Whether the match can be written where its last symbol stood: nothing before that reads a matched result, no inner
/// value is needed elsewhere, and the matched symbols do not feed parameters of the pattern.
fn independent(block: &Block, found: &Match) -> bool {
    let last = found.symbols.iter().copied().max().unwrap_or(0);
    let defined: Vec<ValueId> = found.symbols.iter().flat_map(|i| block.symbols[*i].results.iter().copied()).collect();
    let inner_needed = |id: &ValueId| !found.results.contains(id);
    // A parameter that is computed from a matched result would be read before it exists.
    if found.parameters.iter().any(|id| defined.contains(id)) {
        return false;
    }
    let effects = found.symbols.iter().all(|i| block.symbols[*i].operator().is_some_and(|def| def.effects.mergeable()));
    let outside = block.symbols.iter().enumerate().filter(|(i, _)| !found.symbols.contains(i));
    for (i, symbol) in outside {
        for id in symbol.operands().filter(|id| defined.contains(id)) {
            if i < last || inner_needed(&id) {
                return false;
            }
        }
    }
    effects && !block.results.iter().any(|id| defined.contains(id) && inner_needed(id))
}

fn replace(block: &Block, found: &Match, rewrite: &RewriteDef) -> Result<Block> {
    let metas: Vec<TensorMeta> = found.parameters.iter().map(|id| block.meta(*id).clone()).collect();
    let replacement = trace_side(rewrite, &metas, rewrite.replacement)?;
    let last = found.symbols.iter().copied().max().unwrap_or(0);
    let (mut flattener, mut substitution) = Flattener::new(block);
    for (i, symbol) in block.symbols.iter().enumerate() {
        if i == last {
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
        } else if !found.symbols.contains(&i) {
            flattener.copy(block, symbol, &mut substitution);
        }
    }
    Ok(flattener.finish(block, &substitution))
}
