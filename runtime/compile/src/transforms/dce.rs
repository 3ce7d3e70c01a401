//! Dead code elimination: drops symbols with unused results, unless they have effects.

use crate::trace::{Block, Callee, StageName, Trace};

/// Drops unused symbols.
pub fn dce(trace: &Trace) -> Trace {
    trace.at_stage(StageName::Dce, live(trace.block.clone()))
}

/// The block without unused symbols.
pub fn live(mut block: Block) -> Block {
    let mut kept = needed(&block).into_iter();
    block.symbols.retain(|_| kept.next() == Some(true));
    block
}

/// Which symbols are used.
pub(super) fn needed(block: &Block) -> Vec<bool> {
    let mut needed = vec![false; block.values.len()];
    for id in &block.results {
        needed[id.index()] = true;
    }
    let mut kept = vec![false; block.symbols.len()];
    for (symbol, kept) in block.symbols.iter().zip(&mut kept).rev() {
        let removable = match symbol.callee {
            Callee::Operator(def) => def.effects.removable(),
            // Other ranks wait for the collectives in it.
            Callee::ValueAndGrad { .. } | Callee::Checkpoint | Callee::Region { .. } => !symbol.is_ordered(),
            Callee::Delete => false,
        };
        *kept = !removable || symbol.results.iter().any(|id| needed[id.index()]);
        if *kept && symbol.callee != Callee::Delete {
            symbol.operands().for_each(|id| needed[id.index()] = true);
        }
    }
    kept
}
