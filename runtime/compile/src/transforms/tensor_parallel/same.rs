//! Whether two blocks compute the same of their parameters.

use rustc_hash::FxHashMap;

use crate::argument::Arg;
use crate::trace::{Block, BoundSymbol, Callee, ValueId};

/// Whether the results of two blocks are made by the same lines of the same parameters, whatever the order and the
/// names of lines are. Lines that no result depends on do not count.
pub(super) fn same(one: &Block, other: &Block) -> bool {
    let mut blocks = Blocks { one, other, lines: [one, other].map(lines), known: FxHashMap::default() };
    one.parameters.len() == other.parameters.len()
        && one.results.len() == other.results.len()
        && one.results.iter().zip(&other.results).all(|(a, b)| blocks.values(*a, *b))
}

/// The line that makes each value, and which of its results it is.
fn lines(block: &Block) -> FxHashMap<ValueId, (usize, usize)> {
    let each = block.symbols.iter().enumerate();
    each.flat_map(|(at, line)| line.results.iter().enumerate().map(move |(result, id)| (*id, (at, result)))).collect()
}

struct Blocks<'a> {
    one: &'a Block,
    other: &'a Block,
    lines: [FxHashMap<ValueId, (usize, usize)>; 2],
    known: FxHashMap<(ValueId, ValueId), bool>,
}

impl Blocks<'_> {
    fn values(&mut self, a: ValueId, b: ValueId) -> bool {
        if let Some(known) = self.known.get(&(a, b)) {
            return *known;
        }
        let same = match (self.lines[0].get(&a).copied(), self.lines[1].get(&b).copied()) {
            (Some((a, result)), Some((b, other))) => {
                let (one, two) = (self.one, self.other);
                result == other && self.symbols(&one.symbols[a], &two.symbols[b])
            }
            (None, None) => {
                let place = |block: &Block, id| block.parameters.iter().position(|parameter| *parameter == id);
                place(self.one, a) == place(self.other, b)
            }
            _ => false,
        };
        self.known.insert((a, b), same);
        same
    }

    fn symbols(&mut self, a: &BoundSymbol, b: &BoundSymbol) -> bool {
        let operators = match (&a.callee, &b.callee) {
            (Callee::Operator(one), Callee::Operator(other)) => std::ptr::eq(*one, *other),
            _ => false,
        };
        let bodies = match (&a.body, &b.body) {
            (Some(one), Some(other)) => std::sync::Arc::ptr_eq(one, other) || same(one, other),
            (None, None) => true,
            _ => false,
        };
        operators && bodies && a.arguments.len() == b.arguments.len() && {
            let pairs = a.arguments.iter().zip(&b.arguments);
            pairs.into_iter().all(|(one, other)| self.arguments(one, other))
        }
    }

    fn arguments(&mut self, a: &Arg<ValueId>, b: &Arg<ValueId>) -> bool {
        match (a, b) {
            (Arg::Tensor(a), Arg::Tensor(b)) | (Arg::Optional(Some(a)), Arg::Optional(Some(b))) => self.values(*a, *b),
            (Arg::Optional(None), Arg::Optional(None)) => true,
            (Arg::List(a), Arg::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.values(*a, *b)),
            (Arg::Attribute(a), Arg::Attribute(b)) => a == b,
            _ => false,
        }
    }
}
