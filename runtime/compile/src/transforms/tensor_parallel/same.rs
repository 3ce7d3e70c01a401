//! Whether two blocks compute the same of their parameters.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::argument::{Arg, map_arguments};
use crate::operator::OperatorDef;
use crate::trace::{Block, BoundSymbol, Callee};

/// Whether the results of two blocks are made by the same lines of the same parameters, whatever the order and the
/// names of lines are. Lines that no result depends on do not count.
pub(super) fn same(one: &Block, other: &Block) -> bool {
    let mut lines = Lines { known: FxHashMap::default(), next: one.parameters.len().max(other.parameters.len()) };
    let [left, right] = [one, other].map(|block| lines.numbers(block));
    one.parameters.len() == other.parameters.len()
        && one.results.len() == other.results.len()
        && one.results.iter().zip(&other.results).all(|(a, b)| left[a.index()] == right[b.index()])
}

/// Lines with numbers of their values: what is computed alike has one number.
struct Lines<'a> {
    /// Those of an operator with arguments in which operands are numbers, each with the number of its first result.
    known: FxHashMap<(*const OperatorDef, Vec<Arg<usize>>), Vec<(&'a BoundSymbol, usize)>>,
    next: usize,
}

impl<'a> Lines<'a> {
    /// The numbers of the values of a block.
    fn numbers(&mut self, block: &'a Block) -> Vec<usize> {
        let mut numbers = vec![usize::MAX; block.values.len()];
        block.parameters.iter().enumerate().for_each(|(place, id)| numbers[id.index()] = place);
        for symbol in &block.symbols {
            let first = self.first(symbol, &numbers);
            symbol.results.iter().enumerate().for_each(|(at, id)| numbers[id.index()] = first + at);
        }
        numbers
    }

    /// The number of the first result of a line.
    fn first(&mut self, symbol: &'a BoundSymbol, numbers: &[usize]) -> usize {
        let first = self.next;
        if let Callee::Operator(def) = &symbol.callee {
            let arguments = map_arguments(&symbol.arguments, |id| numbers[id.index()]);
            let alike = self.known.entry((std::ptr::from_ref(*def), arguments)).or_default();
            if let Some((_, first)) = alike.iter().find(|(line, _)| same_bodies(line, symbol)) {
                return *first;
            }
            alike.push((symbol, first));
        }
        self.next += symbol.results.len();
        first
    }
}

fn same_bodies(one: &BoundSymbol, other: &BoundSymbol) -> bool {
    match (&one.body, &other.body) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || same(one, other),
        (None, None) => true,
        _ => false,
    }
}
