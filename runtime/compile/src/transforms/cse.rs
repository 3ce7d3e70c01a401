//! Common subexpression elimination: two equal symbols become one, unless their declared effects keep them apart
//! (two random draws stay two).
//!
//! What a gradient's closure captures is what is saved for the backward pass. So an elementwise symbol that the
//! backward pass computes again is not merged with that of the forward pass: the value would have to be kept until
//! then, where computing it again costs next to nothing in the region that reads it. Nor is what a checkpoint computes
//! again merged with what it computed first.

use rustc_hash::FxHashMap;

use super::cheap::{Cheap, Property};
use super::flatten::Flattener;
use super::recompute;
use crate::argument::{Arg, map_arguments};
use crate::trace::{Block, BoundSymbol, Callee, Pass, StageName, Trace, ValueId};

/// Merges equal symbols.
pub fn cse(trace: &Trace) -> Trace {
    trace.at_stage(StageName::Cse, merge(&trace.block))
}

/// What a symbol computes, and whether it must be computed in its own pass.
type Key = (*const crate::operator::OperatorDef, Vec<Arg<ValueId>>, bool);

pub(crate) fn merge(source: &Block) -> Block {
    let (mut flattener, mut substitution) = Flattener::copier(source);
    // The results of a symbol, and its line.
    let mut known: FxHashMap<Key, (Vec<ValueId>, usize)> = FxHashMap::default();
    let (mut mergeable, mut cheap) = (Property::new(mergeable), Cheap::new());
    let small = recompute::small(source);
    for symbol in &source.symbols {
        let Some(def) = symbol.operator().filter(|_| mergeable.holds(symbol)) else {
            flattener.copy(source, symbol, &mut substitution);
            continue;
        };
        let arguments = map_arguments(&symbol.arguments, |id| Flattener::mapped(&substitution, *id));
        // What reads nothing is needed for nothing else: once is enough.
        let again = symbol.operands().next().is_some()
            && (symbol.pass == Pass::Recomputed || (symbol.pass != Pass::Forward && cheap.holds(symbol)))
            && !recompute::is_small(source, symbol, small);
        let key = (std::ptr::from_ref(def), arguments, again);
        if let Some((results, at)) = known.get(&key) {
            flattener.add_refusals(*at, &symbol.refusals);
            for (old, new) in symbol.results.iter().zip(results) {
                substitution[old.index()] = Some(*new);
            }
        } else {
            let results = flattener.copy(source, symbol, &mut substitution).results.to_vec();
            known.insert(key, (results, flattener.block().symbols.len() - 1));
        }
    }
    flattener.finish(source, &substitution)
}

/// Whether no effect keeps two calls apart.
fn mergeable(symbol: &BoundSymbol) -> bool {
    match symbol.callee {
        Callee::Operator(def) => def.effects.mergeable(),
        Callee::ValueAndGrad { .. } | Callee::Checkpoint | Callee::Region { .. } | Callee::Delete => false,
    }
}
