//! Which symbols round nothing, and which programs add nothing up: their results have the same bits by every executor.

use crate::arithmetic::Arithmetic;
use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use crate::trace::{Block, BoundSymbol, Trace};
use crate::transforms::decompose::decompose;

/// Whether a symbol gives the same bits by every executor: it declares that, looks at memory, or its arithmetic rounds
/// nothing.
pub(crate) fn is_exact(block: &Block, symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| {
        let scalar = Arithmetic::of(def).scalar;
        let exact = scalar.is_some_and(|rule| rule(&block.argument_metas(symbol)).0.is_exact());
        def.exact || exact || LayoutRules::of(def).view.is_some()
    })
}

/// Whether no symbol of the program adds or multiplies over several elements: then it has the same bits fused or not,
/// in any layout.
pub(crate) fn is_elementwise(trace: &Trace) -> bool {
    let opened = decompose(trace, |_| true);
    let elementwise = |symbol: &BoundSymbol| {
        symbol.operator().is_some_and(|def| Arithmetic::of(def).scalar.is_some()) || is_exact(&opened.block, symbol)
    };
    opened.block.symbols.iter().all(elementwise)
}
