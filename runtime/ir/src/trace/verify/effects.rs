//! What lines do besides computing their results, and whether their operators declare it.

use super::super::{BoundSymbol, Trace};
use super::verifier::{BlockEffects, Check, Verifier};

/// The names of what must be reached in order, in that order.
pub fn ordered(trace: &Trace) -> Vec<&str> {
    let block = &trace.block;
    let lines = block.symbols.iter().filter(|symbol| symbol.is_ordered());
    lines
        .flat_map(|symbol| {
            let results = symbol.results.iter().map(|id| &*block.value(*id).name);
            let unnamed = symbol.results.is_empty().then(|| symbol.name());
            results.chain(unnamed)
        })
        .collect()
}

impl Verifier<'_> {
    /// What a symbol does, by declaration and by its body.
    pub(super) fn effects(symbol: &BoundSymbol, inner: BlockEffects) -> Check<BlockEffects> {
        let Some(def) = symbol.operator() else { return Ok(inner) };
        if inner.random && !def.effects.random {
            return Err(format!("its body draws random numbers, which {} does not declare", def.name));
        }
        if inner.collective && !def.effects.collective {
            return Err(format!("its body has a collective, which {} does not declare", def.name));
        }
        Ok(BlockEffects { random: def.effects.random, collective: def.effects.collective })
    }
}
