//! Replaces symbols by their decompositions.

use super::flatten::{Flattener, Substitution, inline};
use crate::trace::{Block, BoundSymbol, Callee, Trace};

/// Replaces every symbol that decomposes and that `chosen` picks by its decomposition, all the way down.
pub fn decompose(trace: &Trace, chosen: impl Fn(&BoundSymbol) -> bool) -> Trace {
    trace.transformed("decompose", decompose_block(&trace.block, &chosen))
}

/// As [`decompose`], of a block.
pub(super) fn decompose_block(source: &Block, chosen: &dyn Fn(&BoundSymbol) -> bool) -> Block {
    fn write(
        flattener: &mut Flattener,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &mut Substitution,
        chosen: &dyn Fn(&BoundSymbol) -> bool,
    ) {
        let body = symbol.body.as_ref().filter(|_| matches!(symbol.callee, Callee::Operator(_)) && chosen(symbol));
        let Some(body) = body else {
            flattener.copy(source, symbol, substitution);
            return;
        };
        let done: Result<(), std::convert::Infallible> =
            inline(flattener, source, symbol, substitution, body, &mut |flattener, source, symbol, substitution| {
                write(flattener, source, symbol, substitution, chosen);
                Ok(())
            });
        let Ok(()) = done;
    }
    let (mut flattener, mut substitution) = Flattener::new(source);
    for symbol in &source.symbols {
        write(&mut flattener, source, symbol, &mut substitution, chosen);
    }
    flattener.finish(source, &substitution)
}
