//! Common subexpression elimination: two equal symbols become one, unless their declared effects keep them apart
//! (two random draws stay two).

use rustc_hash::FxHashMap;

use super::flatten::Flattener;
use crate::argument::{Arg, map_arguments};
use crate::trace::{Block, BoundSymbol, Callee, Trace, ValueId};

/// Merges equal symbols.
pub fn cse(trace: &Trace) -> Trace {
    trace.transformed("cse", merge(&trace.block))
}

fn merge(source: &Block) -> Block {
    let (mut flattener, mut substitution) = Flattener::new(source);
    let mut known: FxHashMap<(*const crate::operator::OperatorDef, Vec<Arg<ValueId>>), Vec<ValueId>> =
        FxHashMap::default();
    let mut mergeable_bodies = FxHashMap::default();
    for symbol in &source.symbols {
        let Some(def) = symbol.operator().filter(|_| mergeable(symbol, &mut mergeable_bodies)) else {
            flattener.copy(source, symbol, &mut substitution);
            continue;
        };
        let arguments = map_arguments(&symbol.arguments, |id| Flattener::mapped(&substitution, *id));
        let key = (std::ptr::from_ref(def), arguments);
        if let Some(results) = known.get(&key) {
            for (old, new) in symbol.results.iter().zip(results) {
                substitution[old.index()] = Some(*new);
            }
        } else {
            let results = flattener.copy(source, symbol, &mut substitution).results.to_vec();
            known.insert(key, results);
        }
    }
    flattener.finish(source, &substitution)
}

/// Whether neither the symbol nor anything it stands for has an effect that keeps calls apart.
fn mergeable(symbol: &BoundSymbol, bodies: &mut FxHashMap<*const Block, bool>) -> bool {
    let own = match symbol.callee {
        Callee::Operator(def) => def.effects.mergeable(),
        Callee::ValueAndGrad { .. } | Callee::Region { .. } | Callee::Delete => false,
    };
    own && symbol.body.as_ref().is_none_or(|body| {
        let key = std::sync::Arc::as_ptr(body);
        if let Some(known) = bodies.get(&key) {
            return *known;
        }
        let result = body.symbols.iter().all(|inner| mergeable(inner, bodies));
        bodies.insert(key, result);
        result
    })
}
