//! Dead code elimination: drops symbols whose results nobody reads, unless they have effects.

use crate::trace::{Block, Callee, Trace};

/// Drops what nobody reads.
pub fn dce(trace: &Trace) -> Trace {
    trace.transformed("dce", live(&trace.block))
}

pub(crate) fn live(block: &Block) -> Block {
    let mut needed = vec![false; block.values.len()];
    for id in &block.results {
        needed[id.index()] = true;
    }
    let mut kept = Vec::with_capacity(block.symbols.len());
    for symbol in block.symbols.iter().rev() {
        let removable = match symbol.callee {
            Callee::Operator(def) => def.effects.removable(),
            Callee::ValueAndGrad { .. } | Callee::Region { .. } => true,
            Callee::Delete => false,
        };
        if !removable || symbol.results.iter().any(|id| needed[id.index()]) {
            if symbol.callee != Callee::Delete {
                for id in symbol.operands() {
                    needed[id.index()] = true;
                }
            }
            kept.push(symbol.clone());
        }
    }
    kept.reverse();
    Block {
        values: block.values.clone(),
        parameters: block.parameters.clone(),
        symbols: kept,
        results: block.results.clone(),
    }
}
