//! Texts that leave out what calls consist of, as `trace show --plain` prints them.

use fulgurite::operator::OperatorKind;
use fulgurite::trace::{BoundSymbol, Callee, Trace};

/// Whether a program has calls that consist of others, and none of them has its body. Once an executor has taken a
/// call, it needs none.
fn is_outline(trace: &Trace) -> bool {
    let has_body = |symbol: &&BoundSymbol| match &symbol.callee {
        Callee::Operator(def) => def.kind == OperatorKind::Composite && symbol.executor.is_none(),
        callee => callee.holds_program(),
    };
    let mut calls = trace.block.symbols.iter().filter(has_body).peekable();
    calls.peek().is_some() && calls.all(|symbol| symbol.body.is_none())
}

/// What is to be said of a comparison of programs of which one is an outline, or both are.
pub fn warning(before: &Trace, after: &Trace) -> Option<String> {
    let which = match (is_outline(before), is_outline(after)) {
        (false, false) => return None,
        (true, false) => "the text before has",
        (false, true) => "the text after has",
        (true, true) => "both texts have",
    };
    Some(format!("{which} no bodies (`trace show --plain` leaves them out): what calls consist of is not compared"))
}
