//! Bytes that the lines of a program read and write, counted from its text.
//!
//! A view costs nothing itself, and what reads it reads no more than the value behind it: a row that is broadcast to a
//! matrix is a row. Where elements are selected, no more is read than what is selected. Nothing is said of caches.

use rustc_hash::FxHashMap;

use crate::arithmetic::{Arithmetic, Elements};
use crate::executor::{JOIN, VIEW};
use crate::operator::RuleSet;
use crate::trace::{Block, BoundSymbol, ValueId};

/// The lines of a block, and which values are views of which.
pub struct Traffic<'a> {
    block: &'a Block,
    /// The operand of the view that defines a value.
    behind: FxHashMap<ValueId, ValueId>,
}

impl<'a> Traffic<'a> {
    /// The traffic of a block.
    pub fn of(block: &'a Block) -> Traffic<'a> {
        let mut behind = FxHashMap::default();
        for symbol in block.symbols.iter().filter(|symbol| symbol.executor == Some(VIEW)) {
            if let Some(operand) = symbol.operands().next() {
                behind.extend(symbol.results.iter().map(|result| (*result, operand)));
            }
        }
        Traffic { block, behind }
    }

    /// The bytes that a line reads and writes: each value once, whatever views of it are read; none where nothing runs
    /// for the line.
    pub fn bytes(&self, symbol: &BoundSymbol) -> u64 {
        if matches!(symbol.executor, Some(VIEW | JOIN)) {
            return 0;
        }
        let size = |id: ValueId| self.block.meta(id).bytes() as u64;
        // Of each value behind the operands, what of it is read; several views may be of different parts.
        let mut read: Vec<(ValueId, u64)> = Vec::new();
        let mut seen = Vec::new();
        for (position, id) in symbol.operands().enumerate() {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let (mut root, mut least) = (id, size(id));
            while let Some(before) = self.behind.get(&root) {
                root = *before;
                least = least.min(size(root));
            }
            let least = self.selected(symbol, position).map_or(least, |selected| least.min(selected));
            match read.iter_mut().find(|(known, _)| *known == root) {
                Some((_, sum)) => *sum = sum.saturating_add(least).min(size(root)),
                None => read.push((root, least)),
            }
        }
        let written = symbol.results.iter().filter(|id| !seen.contains(*id)).map(|id| size(*id));
        read.into_iter().map(|(_, bytes)| bytes).chain(written).fold(0, u64::saturating_add)
    }

    /// The bytes that are read of the operand at a position where the line only selects elements of it.
    fn selected(&self, symbol: &BoundSymbol, position: usize) -> Option<u64> {
        match (symbol.operator(), &symbol.body) {
            (Some(_), _) if selects(symbol) && position == 0 => {
                Some(self.block.meta(*symbol.results.first()?).bytes() as u64)
            }
            // A region: what its lines read.
            (None, Some(body)) => {
                let parameter = body.parameters.get(position)?;
                let mut sum = 0u64;
                for line in body.symbols.iter().filter(|line| line.operands().any(|id| id == *parameter)) {
                    let first = line.operands().enumerate().all(|(i, id)| (i == 0) == (id == *parameter));
                    (selects(line) && first).then_some(())?;
                    sum = sum.saturating_add(body.meta(*line.results.first()?).bytes() as u64);
                }
                Some(sum)
            }
            _ => None,
        }
    }
}

/// Whether a line selects elements of its first operand.
fn selects(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| Arithmetic::of(def).elements == Some(Elements::Select))
}
