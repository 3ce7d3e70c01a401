//! The memory plan: no byte is given to two values at once.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_kernels::view::is_contiguous;

use super::super::print::{print_input, print_return, print_symbol};
use super::super::{Callee, Storage, ValueId};
use super::{Verifier, name};
use crate::error::{Place, Result};
use crate::transforms::layout::layouts;
use crate::transforms::plan::may_lie_over;

impl Verifier<'_> {
    /// For each value the one whose memory it has in the plan.
    fn roots(&self) -> Result<Vec<usize>> {
        let values = &self.trace.block.values;
        let mut roots: Vec<Option<usize>> = vec![None; values.len()];
        for start in 0..values.len() {
            let mut chain = Vec::new();
            let mut at = start;
            let root = loop {
                if let Some(root) = roots[at] {
                    break root;
                }
                let Some(Storage::Shared(next)) = values[at].storage else { break at };
                chain.push(at);
                if next.index() >= values.len() || chain.len() > values.len() {
                    let line = self.line_of(start);
                    let message = if next.index() >= values.len() {
                        format!(
                            "'{}' shares the memory of value {}, the block has {}",
                            values[at].name,
                            next.0,
                            values.len()
                        )
                    } else {
                        format!("'{}' shares memory in a circle", values[at].name)
                    };
                    return Err(self.broken(line.0, line.1, message));
                }
                at = next.index();
            };
            for member in chain {
                roots[member] = Some(root);
            }
            roots[start] = Some(root);
        }
        Ok(roots.into_iter().flatten().collect())
    }

    /// The line that defines a value of the trace's own block.
    fn line_of(&self, value: usize) -> (String, Option<Place>) {
        let block = &self.trace.block;
        if let Some(input) = block.parameters.iter().position(|id| id.index() == value) {
            return (print_input(self.trace, input), None);
        }
        let symbol = block.symbols.iter().find(|symbol| symbol.results.iter().any(|id| id.index() == value));
        symbol.map_or_else(
            || (block.values[value].name.to_string(), None),
            |symbol| (print_symbol(block, symbol), symbol.place),
        )
    }

    /// That what a value shares is its own: a view's memory is that of its operand, and a result that is written over another
    /// value has exactly that value's layout. Kernels trust both.
    fn shared(&self, roots: &[usize]) -> Result<()> {
        let block = &self.trace.block;
        let layouts = layouts(self.trace);
        for (i, value) in block.values.iter().enumerate().filter(|(_, value)| value.storage.is_some()) {
            let (own, root) = (layouts[i].root.index(), &block.values[roots[i]]);
            let problem = if own != i {
                (roots[own] != roots[i]).then(|| {
                    format!("'{}' is a view of '{}', which lies elsewhere", value.name, block.values[own].name)
                })
            } else if roots[i] == i {
                None
            } else if value.meta != root.meta || !is_contiguous(root.meta.shape(), &layouts[roots[i]].strides) {
                Some(format!(
                    "'{}' is {}, and takes the memory of '{}', which is {} in another layout",
                    value.name, value.meta, root.name, root.meta
                ))
            } else {
                let input = block.parameters.iter().position(|id| id.index() == roots[i]);
                input.filter(|input| self.trace.inputs.get(*input).is_some_and(|input| !input.donated)).map(|_| {
                    format!("'{}' takes the memory of the input '{}', which is not donated", value.name, root.name)
                })
            };
            if let Some(message) = problem {
                let line = self.line_of(i);
                return Err(self.broken(line.0, line.1, message));
            }
        }
        Ok(())
    }

    pub(super) fn storage(&self) -> Result<()> {
        let block = &self.trace.block;
        if block.values.iter().all(|value| value.storage.is_none()) {
            return Ok(());
        }
        let roots = self.roots()?;
        self.shared(&roots)?;
        let layouts = layouts(self.trace);
        // First and last line of everything that has a root's memory.
        let mut lives: Vec<Option<(usize, usize)>> = vec![None; block.values.len()];
        let mut note = |id: ValueId, line: usize| {
            let life = lives[roots[id.index()]].get_or_insert((line, line));
            *life = (life.0.min(line), life.1.max(line));
        };
        block.parameters.iter().for_each(|id| note(*id, 0));
        for (i, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee != Callee::Delete {
                symbol.operands().for_each(|id| note(id, i + 1));
            }
            symbol.results.iter().for_each(|id| note(*id, i + 1));
        }
        for id in &block.results {
            note(*id, block.symbols.len() + 1);
            if let Some(Storage::Arena(_)) = block.values[roots[id.index()]].storage {
                let message =
                    format!("returns {}, which lies in the arena and does not outlive the call", name(block, *id));
                return Err(self.broken(print_return(self.trace), None, message));
            }
        }
        let mut placed = Vec::new();
        for (i, value) in block.values.iter().enumerate() {
            let (Some(Storage::Arena(offset)), Some((first, last))) = (value.storage, lives[i]) else { continue };
            let end = offset.saturating_add(value.meta.bytes() as u64);
            let problem = match self.trace.arena {
                None => Some(format!("'{}' lies in the arena, but the trace has none", value.name)),
                Some(size) if end > size => {
                    Some(format!("'{}' ends at byte {end} of the arena, which has {size}", value.name))
                }
                Some(_) => None,
            };
            if let Some(message) = problem {
                let line = self.line_of(i);
                return Err(self.broken(line.0, line.1, message));
            }
            if end > offset {
                placed.push((first, last, offset, end, i));
            }
        }
        // In the order of their lives; what is alive never overlaps, so that only neighbours need to be asked.
        placed.sort_unstable();
        let mut alive: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut ends: BTreeSet<(usize, u64)> = BTreeSet::new();
        for (first, last, offset, end, value) in placed {
            while let Some(&(over, at)) = ends.first().filter(|(over, _)| *over < first) {
                ends.remove(&(over, at));
                alive.remove(&at);
            }
            let before = alive.range(..=offset).next_back().filter(|(_, (end, ..))| *end > offset);
            let after = alive.range(offset..).next().filter(|(start, _)| **start < end);
            let taken = before.or(after).map(|(start, (stop, other))| (*start, *stop, *other));
            // A kernel that reads an element before it writes it may take the place of an operand that dies there.
            let in_place = taken.is_some_and(|(start, stop, other)| {
                let symbol = first.checked_sub(1).and_then(|line| block.symbols.get(line));
                (start, stop) == (offset, end)
                    && ends.contains(&(first, start))
                    && symbol.is_some_and(|symbol| {
                        may_lie_over(block, &layouts, symbol, ValueId(value as u32), ValueId(other as u32))
                    })
            });
            if in_place {
                ends.remove(&(first, offset));
            } else if let Some((start, stop, other)) = taken {
                let line = self.line_of(value);
                let message = format!(
                    "'{}' takes bytes {offset}..{end} of the arena while '{}' lives in bytes {start}..{stop}",
                    block.values[value].name, block.values[other].name
                );
                return Err(self.broken(line.0, line.1, message));
            }
            alive.insert(offset, (end, value));
            ends.insert((last, offset));
            let size = block.values[value].meta.dtype().size() as u64;
            if !offset.is_multiple_of(size) {
                let line = self.line_of(value);
                let message = format!(
                    "'{}' lies at byte {offset} of the arena, not a multiple of {size}",
                    block.values[value].name
                );
                return Err(self.broken(line.0, line.1, message));
            }
        }
        Ok(())
    }
}
