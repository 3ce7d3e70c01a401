//! The memory plan: where every value is kept. Two values have the same bytes only if all that uses the one has ended
//! before the line that writes the other begins.
//!
//! *Resident* memory is what the caller brings and takes away (inputs, outputs). *Transient* memory is one arena, laid
//! out ahead from the values' lives. An output may have the memory of a donated input: see [`super::donate`].

use crate::argument::Arg;
use crate::executor::VIEW;
use crate::trace::implied::regions;
use crate::trace::in_place::may_lie_over;
pub use crate::trace::layouts::ALIGNMENT;
use crate::trace::layouts::layouts;
use crate::trace::memory_use::last_uses;
pub use crate::trace::memory_use::{MemoryUse, memory_use};
use crate::trace::nested::Nested;
use crate::trace::order::{Clock, Order, is_run};
use crate::trace::{Block, BoundSymbol, Callee, Results, StageName, Storage, Trace, ValueId};

/// Gives every value its storage and the arena its size.
pub fn plan(trace: &Trace) -> Trace {
    let mut planned = trace.at_stage(StageName::PlanMemory, trace.block.clone());
    let layouts = layouts(&planned);
    let roots: Vec<ValueId> = layouts.iter().map(|layout| layout.root).collect();
    let last = last_uses(&planned.block, &roots);
    let block = &mut planned.block;
    let mut arena = Arena::default();
    let is_parameter: Vec<bool> = {
        let mut flags = vec![false; block.values.len()];
        block.parameters.iter().for_each(|id| flags[id.index()] = true);
        flags
    };
    let mut is_result = vec![false; block.values.len()];
    block.results.iter().for_each(|id| is_result[id.index()] = true);
    // What dies at each symbol, so that it is given back after the symbol's results have their places.
    let mut dying: Vec<Vec<ValueId>> = vec![Vec::new(); block.symbols.len() + 1];
    for i in 0..block.values.len() {
        dying[last[i].min(block.symbols.len())].push(ValueId(i as u32));
    }
    let mut placed: Vec<Option<(u64, u64)>> = vec![None; block.values.len()];
    let order = Order::of(block);
    // For each value, which lines so far use its memory.
    let mut used: Vec<Clock> = vec![Clock::default(); block.values.len()];
    for (i, symbol) in block.symbols.clone().iter().enumerate() {
        let begin = order.begin(i);
        for id in &symbol.results {
            let index = id.index();
            if block.values[index].storage.is_some() {
                continue;
            }
            // The whole of which this is a part has its place from its first part on.
            let whole = roots[index];
            if symbol.executor != Some(VIEW) && whole != *id {
                if block.values[whole.index()].storage.is_none() {
                    let size = (block.meta(whole).bytes() as u64).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
                    block.values[whole.index()].storage = Some(match is_result[whole.index()] {
                        true => Storage::Output,
                        false => {
                            let offset = arena.take(size, begin);
                            placed[whole.index()] = Some((offset, size));
                            Storage::Arena(offset)
                        }
                    });
                }
                block.values[index].storage = Some(Storage::Shared(whole));
                continue;
            }
            block.values[index].storage = Some(if roots[index] != *id {
                Storage::Shared(roots[index])
            } else if is_result[index] && !is_parameter[index] {
                Storage::Output
            } else {
                let size = (block.values[index].meta.bytes() as u64).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
                let in_place = symbol.operands().map(|operand| roots[operand.index()]).find(|root| {
                    last[root.index()] == i
                        && used[root.index()].is_within(begin)
                        && placed[root.index()].is_some_and(|(_, room)| room >= size)
                        && may_lie_over(block, &layouts, symbol, *id, *root)
                });
                match in_place {
                    Some(root) => {
                        let place = placed[root.index()].take();
                        placed[index] = place;
                        Storage::Arena(place.map_or(0, |(offset, _)| offset))
                    }
                    None => {
                        let offset = arena.take(size, begin);
                        placed[index] = Some((offset, size));
                        Storage::Arena(offset)
                    }
                }
            });
        }
        if is_run(symbol) {
            let alone = order.alone(i);
            symbol
                .operands()
                .chain(symbol.results.iter().copied())
                .for_each(|id| used[roots[id.index()].index()].join(&alone));
        }
        for id in &dying[i] {
            if let Some((offset, size)) = placed[id.index()].take() {
                arena.give_back(FreeRange { offset, bytes: size, used: used[id.index()] });
            }
        }
    }
    planned.arena = Some(arena.size);
    planned
}

/// Free ranges of a memory that grows at its end; the best-fitting range is taken.
#[derive(Default)]
struct Arena {
    size: u64,
    /// Disjoint, not adjacent, in order.
    free: Vec<FreeRange>,
}

#[derive(Clone, Copy)]
struct FreeRange {
    offset: u64,
    bytes: u64,
    /// The lines that must have ended before it is written again.
    used: Clock,
}

impl FreeRange {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

impl Arena {
    /// A place for a line that begins after these lines have ended.
    fn take(&mut self, bytes: u64, ended: &Clock) -> u64 {
        let fits = |range: &FreeRange| range.bytes >= bytes && range.used.is_within(ended);
        let best = (0..self.free.len()).filter(|i| fits(&self.free[*i])).min_by_key(|i| (self.free[*i].bytes, *i));
        if let Some(i) = best {
            let FreeRange { offset, bytes: room, used } = self.free[i];
            if room == bytes {
                self.free.remove(i);
            } else {
                self.free[i] = FreeRange { offset: offset + bytes, bytes: room - bytes, used };
            }
            return offset;
        }
        // Grow by what the last free range lacks.
        let at_the_end = |range: &&FreeRange| range.end() == self.size && range.used.is_within(ended);
        if let Some(last) = self.free.last().copied().filter(|range| at_the_end(&range)) {
            // One that is large enough was taken above.
            self.free.pop();
            self.size += bytes - last.bytes;
            return last.offset;
        }
        let offset = self.size;
        self.size += bytes;
        offset
    }

    fn give_back(&mut self, range: FreeRange) {
        let i = self.free.partition_point(|other| other.offset < range.offset);
        self.free.insert(i, range);
        self.merge(i);
        if let Some(before) = i.checked_sub(1) {
            self.merge(before);
        }
    }

    /// Joins range `i` and the next one, if they are adjacent.
    fn merge(&mut self, i: usize) {
        if self.free.get(i + 1).is_some_and(|next| next.offset == self.free[i].end()) {
            let next = self.free.remove(i + 1);
            self.free[i].bytes += next.bytes;
            self.free[i].used.join(&next.used);
        }
    }
}

/// Adds a `del` after the last use of every value that is neither an input nor an output.
pub fn delete_last_used(trace: &Trace) -> Trace {
    let source = &trace.block;
    let mut last: Vec<Option<usize>> = vec![None; source.values.len()];
    let mut keep = vec![false; source.values.len()];
    source.parameters.iter().chain(&source.results).for_each(|id| keep[id.index()] = true);
    // What a view reads that is written inside a line ends behind the line.
    let nested = Nested::new(source, VIEW, &regions(source), false);
    let mut line = 0;
    for (i, symbol) in source.symbols.iter().enumerate() {
        line = line.max(i);
        while nested.contains(line) {
            line += 1;
        }
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            last[id.index()] = Some(line);
        }
    }
    let mut dying: Vec<Vec<ValueId>> = vec![Vec::new(); source.symbols.len()];
    for (index, at) in last.iter().enumerate() {
        if let (Some(at), false) = (at, keep[index]) {
            dying[*at].push(ValueId(index as u32));
        }
    }
    let mut block = Block { symbols: Vec::new(), ..source.clone() };
    for (symbol, dying) in source.symbols.iter().zip(dying) {
        block.symbols.push(symbol.clone());
        if !dying.is_empty() {
            block.symbols.push(BoundSymbol {
                callee: Callee::Delete,
                arguments: dying.into_iter().map(Arg::Tensor).collect(),
                results: Results::new(),
                body: None,
                pass: symbol.pass,
                executor: None,
                schedule: Default::default(),
                refusals: Vec::new(),
                place: None,
            });
        }
    }
    trace.at_stage(StageName::DeleteLastUsed, block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream_kind::StreamKind;

    #[test]
    fn freed_ranges_are_joined_and_used_again() {
        let mut arena = Arena::default();
        let ended = Clock::default();
        let free = |offset, bytes| FreeRange { offset, bytes, used: Clock::default() };
        let (a, b, c) = (arena.take(64, &ended), arena.take(128, &ended), arena.take(64, &ended));
        assert_eq!((a, b, c, arena.size), (0, 64, 192, 256));
        arena.give_back(free(a, 64));
        arena.give_back(free(b, 128));
        assert_eq!(arena.take(192, &ended), 0);
        arena.give_back(free(c, 64));
        assert_eq!(arena.take(128, &ended), 192, "the range at the end grows");
        assert_eq!(arena.size, 320);
    }

    #[test]
    fn a_range_is_taken_by_who_begins_after_its_users() {
        let mut arena = Arena::default();
        let mut used = Clock::default();
        used.tick(StreamKind::Copy, 3);
        let (early, mut late) = (Clock::default(), Clock::default());
        late.tick(StreamKind::Copy, 4);
        let offset = arena.take(64, &early);
        arena.give_back(FreeRange { offset, bytes: 64, used });
        assert_eq!(arena.take(64, &early), 64, "its user may still run");
        assert_eq!(arena.take(64, &late), 0);
        assert_eq!(arena.size, 128);
    }
}
