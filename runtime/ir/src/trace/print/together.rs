//! Which lines are written once, such as the updates of an optimizer:
//! `for params.*: new.* = sgd(params.*, grad.*, lr)`.

use super::super::implied::results_follow;
use super::super::trees::LINE_BYTES;
use super::super::{BoundSymbol, Callee};
use super::calls::Style;
use super::each::{Each, Lines};
use super::fold::WIDTH;
use super::words::MAX_RUN;

#[cfg(test)]
thread_local! {
    /// How many lines were compared with the first of those that may be written as one.
    pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<'a> Style<'a> {
    /// The lines from symbol `at` on that are written as one, if there are some.
    pub(super) fn each(&self, at: usize) -> Option<Each<'a>> {
        let (block, trees) = (self.names.block, self.names.trees?);
        let (first, second) = (block.symbols.get(at)?, block.symbols.get(at + 1)?);
        if !matches!(first.callee, Callee::Operator(_)) || second.callee != first.callee {
            return None;
        }
        first.operands().find_map(|id| {
            let input = &*block.values.get(id.index())?.name;
            trees.beginning(input).find_map(|(root, inputs)| {
                let symbols = block.symbols.get(at..at + inputs.len()).filter(|symbols| symbols.len() <= MAX_RUN)?;
                let lines = Lines { block, symbols, root, inputs };
                // First what lines further down, which begin with the same input, cannot have again.
                let results = lines.results()?;
                let alike = symbols.iter().zip(at..).all(|(symbol, at)| self.is_like(first, symbol, at));
                // What ends behind the last line is not written in a line for each.
                let ends = block.symbols.get(at + inputs.len()).is_some_and(|next| next.callee == Callee::Delete);
                if alike && !ends { lines.each(results) } else { None }
            })
        })
    }

    /// Whether symbol `at` is a plain line that calls what the line `first` calls.
    fn is_like(&self, first: &BoundSymbol, symbol: &BoundSymbol, at: usize) -> bool {
        #[cfg(test)]
        COMPARED.set(COMPARED.get() + 1);
        let plain = symbol.body.is_none() && symbol.refusals.is_empty() && symbol.schedule.is_plain();
        plain
            && symbol.callee == first.callee
            && symbol.executor == first.executor
            && symbol.pass == first.pass
            && !symbol.results.is_empty()
            && symbol.results.len() == first.results.len()
            && symbol.arguments.len() == first.arguments.len()
            && results_follow(self.names.block, symbol)
            && !self.nested.is_some_and(|nested| nested.contains(at))
            && !symbol.operands().any(|id| self.is_inside(id))
    }

    /// `for params.*: `, then, behind `yields`, the line.
    pub(super) fn line_of_each(&self, each: &'a Each<'a>, first: &BoundSymbol, yields: &str) -> String {
        let style = Style { each: Some(each), ..*self };
        let line = format!("for {}.*: {yields}{}", each.root, style.line_after(&each.results, first));
        // Folding may add to the line as many bytes as it has.
        let bytes = 2 * line.len() + WIDTH;
        self.names.trees.inspect(|trees| trees.tell(each.count.saturating_mul(1 + bytes / LINE_BYTES)));
        line
    }
}
