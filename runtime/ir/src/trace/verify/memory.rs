//! The memory plan: no byte is given to two values at once, whether in the arena, in an output, or in a donated input.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_kernels::view::is_contiguous;

use super::super::layouts::{Layout, layouts};
use super::super::print::{print_input, print_return};
use super::super::{Block, Callee, Storage, Value, ValueId};
use super::ended::{Ended, runs};
use super::kernels::Runner;
use super::places::{extent, same_strides};
use super::regions::Regions;
use super::verifier::{Verifier, name};
use crate::error::{Error, Result};

/// The memory that holds a value's elements, and from when to when they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stay {
    /// The line that writes the value: 0 for inputs, then from 1.
    first: usize,
    /// The last line that reads it or a view of it; one past the last line if it is returned.
    last: usize,
    space: Space,
    start: u64,
    end: u64,
    value: usize,
}

/// Ranges of bytes can only overlap within one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Arena,
    /// The memory of an input or an output: that of this value.
    Own(usize),
}

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
                    return Err(self.broken_at(start, message));
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

    /// The error that a rule is broken by the line that defines a value of the trace's own block.
    fn broken_at(&self, value: usize, message: String) -> Error {
        let block = &self.trace.block;
        if let Some(input) = block.parameters.iter().position(|id| id.index() == value) {
            return self.broken(print_input(self.trace, input), None, message);
        }
        match block.symbols.iter().find(|symbol| symbol.results.iter().any(|id| id.index() == value)) {
            Some(symbol) => self.broken_by(block, symbol, message),
            None => self.broken(block.values[value].name.to_string(), None, message),
        }
    }

    /// That what a value shares is its own: a view's memory is that of its operand, and a result that is written over
    /// another value has exactly that value's layout. Kernels trust both.
    fn shared(&self, roots: &[usize], layouts: &[Layout]) -> Result<()> {
        let block = &self.trace.block;
        if let Some(i) = block.parameters.iter().position(|id| block.value(*id).storage.is_some()) {
            let message = "has a place in the memory plan; inputs are where the caller has them".into();
            return Err(self.broken(print_input(self.trace, i), None, message));
        }
        for (i, value) in block.values.iter().enumerate().filter(|(_, value)| value.storage.is_some()) {
            let (own, root) = (layouts[i].root.index(), &block.values[roots[i]]);
            let problem = if own != i {
                (roots[own] != roots[i])
                    .then(|| format!("'{}' is a view of '{}', which is elsewhere", value.name, block.values[own].name))
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
                return Err(self.broken_at(i, message));
            }
        }
        Ok(())
    }

    /// What outlives the call is in memory that does, and whole.
    fn returned(&self, roots: &[usize], layouts: &[Layout]) -> Result<()> {
        let block = &self.trace.block;
        for id in &block.results {
            let problem = if let Some(Storage::Arena(_)) = block.values[roots[id.index()]].storage {
                "which is in the arena and does not outlive the call"
            } else if layouts[id.index()].root != *id {
                "which is a view; what a planned program returns has memory of its own"
            } else {
                continue;
            };
            let message = format!("returns {}, {problem}", name(block, *id));
            return Err(self.broken(print_return(self.trace), None, message));
        }
        Ok(())
    }

    /// For each value whose elements are its own (not a view's) where they are, and how long they are needed.
    fn stays(&self, roots: &[usize], owners: &[usize]) -> Result<Vec<Stay>> {
        let block = &self.trace.block;
        let mut lives: Vec<Option<(usize, usize)>> = vec![None; block.values.len()];
        let mut note = |id: ValueId, line: usize| {
            let life = lives[owners[id.index()]].get_or_insert((line, line));
            *life = (life.0.min(line), life.1.max(line));
        };
        block.parameters.iter().for_each(|id| note(*id, 0));
        for (i, symbol) in block.symbols.iter().enumerate() {
            if symbol.callee != Callee::Delete {
                symbol.operands().for_each(|id| note(id, i + 1));
            }
            symbol.results.iter().for_each(|id| note(*id, i + 1));
        }
        block.results.iter().for_each(|id| note(*id, block.symbols.len() + 1));
        let mut parameters = vec![false; block.values.len()];
        block.parameters.iter().for_each(|id| parameters[id.index()] = true);
        let mut stays = Vec::with_capacity(block.values.len());
        for (i, value) in block.values.iter().enumerate() {
            let Some((first, last)) = lives[i] else { continue };
            let bytes = value.meta.bytes() as u64;
            let (space, start) = match block.values[roots[i]].storage {
                Some(Storage::Arena(offset)) => (Space::Arena, offset),
                Some(Storage::Output) => (Space::Own(roots[i]), 0),
                None if parameters[roots[i]] => (Space::Own(roots[i]), 0),
                // Not planned yet.
                None | Some(Storage::Shared(_)) => continue,
            };
            let end = start.saturating_add(bytes);
            if space == Space::Arena {
                self.in_the_arena(i, end)?;
            }
            if bytes > 0 {
                stays.push(Stay { first, last, space, start, end, value: i });
            }
        }
        stays.sort_unstable();
        Ok(stays)
    }

    fn in_the_arena(&self, value: usize, end: u64) -> Result<()> {
        let name = &self.trace.block.values[value].name;
        let message = match self.trace.arena {
            None => format!("'{name}' is in the arena, but the trace has none"),
            Some(arena) if end > arena => format!("'{name}' ends at byte {end} of the arena, which has {arena}"),
            Some(_) => return Ok(()),
        };
        Err(self.broken_at(value, message))
    }

    fn aligned(&self, stay: Stay) -> Result<()> {
        let Value { name, meta, .. } = &self.trace.block.values[stay.value];
        let size = meta.dtype().size() as u64;
        if stay.start.is_multiple_of(size) {
            return Ok(());
        }
        let message = format!("'{name}' is at byte {} of the arena, not a multiple of {size}", stay.start);
        Err(self.broken_at(stay.value, message))
    }

    pub(super) fn storage(&self) -> Result<()> {
        let block = &self.trace.block;
        if block.values.iter().all(|value| value.storage.is_none()) {
            return Ok(());
        }
        let roots = self.roots()?;
        let layouts = layouts(self.trace);
        self.shared(&roots, &layouts)?;
        self.returned(&roots, &layouts)?;
        // For each value the one whose elements it shows.
        let owners: Vec<usize> = layouts.iter().map(|layout| layout.root.index()).collect();
        let stays = self.stays(&roots, &owners)?;
        self.behind_each_other(&stays, &owners)?;
        let mut regions = Regions::on(self.trace.target.kind());
        // In the order of their lives; what is alive never overlaps, so that only neighbours need to be asked.
        let mut alive: BTreeMap<(Space, u64), Stay> = BTreeMap::new();
        let mut ends: BTreeSet<(usize, Space, u64)> = BTreeSet::new();
        for stay in stays {
            while let Some(&(last, space, start)) = ends.first().filter(|(last, ..)| *last < stay.first) {
                ends.remove(&(last, space, start));
                alive.remove(&(space, start));
            }
            let at = (stay.space, stay.start);
            let before = alive.range(..=at).next_back().map(|(_, other)| *other);
            let before = before.filter(|other| other.space == stay.space && other.end > stay.start);
            let after = alive.range(at..).next().map(|(_, other)| *other);
            let after = after.filter(|other| other.space == stay.space && other.start < stay.end);
            match before.or(after) {
                // A kernel that reads an element before it writes it may take the place of an operand that dies there.
                Some(other) if self.in_place(&mut regions, &layouts, &owners, stay, other) => {
                    ends.remove(&(other.last, other.space, other.start));
                }
                Some(other) => {
                    return Err(self.broken_at(stay.value, self.taken_twice(stay, other)));
                }
                None => {}
            }
            self.aligned(stay)?;
            alive.insert(at, stay);
            ends.insert((stay.last, stay.space, stay.start));
        }
        Ok(())
    }

    /// What takes the place of another value is written after all that reads or writes that one has ended, whatever
    /// streams they are on. On one stream that is the order of the lines. Several lines write a value that is joined.
    fn behind_each_other(&self, stays: &[Stay], owners: &[usize]) -> Result<()> {
        let block = &self.trace.block;
        if block.symbols.iter().all(|symbol| symbol.schedule.is_plain()) {
            return Ok(());
        }
        let ended = Ended::of(block);
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); block.values.len()];
        let mut writers: Vec<Vec<usize>> = vec![Vec::new(); block.values.len()];
        for (line, symbol) in block.symbols.iter().enumerate().filter(|(_, symbol)| runs(symbol)) {
            symbol.operands().chain(symbol.results.iter().copied()).for_each(|id| users[owners[id.index()]].push(line));
            symbol.results.iter().for_each(|id| writers[owners[id.index()]].push(line));
        }
        for (at, stay) in stays.iter().enumerate() {
            for other in &stays[..at] {
                let apart = other.space != stay.space || other.end <= stay.start || stay.end <= other.start;
                if apart || other.first == stay.first {
                    continue;
                }
                let running = writers[stay.value].iter().find_map(|writer| {
                    users[other.value].iter().find(|line| *line != writer && !ended.before(**line, *writer))
                });
                let Some(using) = running else { continue };
                let symbol = &block.symbols[*using];
                let message = format!(
                    "{}, while {} on the {} stream may not have ended; wait with 'after'",
                    self.taken_twice(*stay, *other),
                    symbol.results.first().map_or_else(|| symbol.name().to_owned(), |id| name(block, *id)),
                    symbol.schedule.stream
                );
                return Err(self.broken_at(stay.value, message));
            }
        }
        Ok(())
    }

    /// Whether the line that writes `stay` first may write it over `other`: whatever the line reads of the memory of
    /// `other` is exactly what it writes, byte for byte in the same order, its kernel reads each element before it
    /// writes that element, and nothing reads `other` later.
    fn in_place<'t>(
        &'t self,
        regions: &mut Regions<'t>,
        layouts: &[Layout],
        owners: &[usize],
        stay: Stay,
        other: Stay,
    ) -> bool {
        let block = &self.trace.block;
        let Some(symbol) = stay.first.checked_sub(1).and_then(|line| block.symbols.get(line)) else { return false };
        let covered = stay.start == other.start && stay.end <= other.end;
        if !covered || other.last != stay.first || other.first == stay.first {
            return false;
        }
        let in_memory_of = |id: &ValueId, stay: Stay| owners[id.index()] == stay.value;
        let read: Vec<ValueId> = symbol.operands().filter(|id| in_memory_of(id, other)).collect();
        let written: Vec<ValueId> = symbol.results.iter().copied().filter(|id| in_memory_of(id, stay)).collect();
        if read.is_empty() || written.is_empty() || symbol.results.iter().any(|id| in_memory_of(id, other)) {
            return false;
        }
        let runner = Runner::of(symbol, self.trace.target.kind());
        let mut reads_first = |result: ValueId, operand: ValueId| match runner {
            Runner::Region(_) => regions.reads_first(symbol, result, operand),
            _ => runner.reads_first(symbol, result, operand),
        };
        written.iter().all(|result| {
            let place = Bytes::of(block, layouts, *result, stay);
            // A whole is larger than the part that is written first: what it covers besides is dead.
            read.iter().all(|operand| {
                place.is_some()
                    && place == Bytes::of(block, layouts, *operand, other)
                    && same_elements(block, layouts, *result, *operand)
                    && reads_first(*result, *operand)
            })
        })
    }

    fn taken_twice(&self, stay: Stay, other: Stay) -> String {
        let values = &self.trace.block.values;
        let (value, taken) = (&values[stay.value].name, &values[other.value].name);
        match stay.space {
            Space::Arena => format!(
                "'{value}' takes bytes {}..{} of the arena while '{taken}' lives in bytes {}..{}",
                stay.start, stay.end, other.start, other.end
            ),
            Space::Own(_) if other.last > stay.first => {
                format!("'{value}' takes the memory of '{taken}', which is read later")
            }
            Space::Own(_) => format!(
                "'{value}' takes the memory of '{taken}', which the same line reads; its kernel does not update in \
                 place"
            ),
        }
    }
}

/// The first and the last byte that a value has of a stay's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes(i128, i128, i128);

impl Bytes {
    /// None if the value has no elements, or if it is not known where they are in that memory.
    fn of(block: &Block, layouts: &[Layout], id: ValueId, stay: Stay) -> Option<Bytes> {
        let (meta, layout) = (block.meta(id), &layouts[id.index()]);
        let (first, last) = extent(meta.shape(), &layout.strides)?;
        if layout.root.index() != stay.value {
            return None;
        }
        let size = meta.dtype().size() as i128;
        let begin = stay.start as i128 + layout.offset as i128 * size;
        Some(Bytes(begin, begin + first * size, begin + (last + 1) * size))
    }
}

/// Whether the elements of two values at the same begin are in the same order.
fn same_elements(block: &Block, layouts: &[Layout], one: ValueId, other: ValueId) -> bool {
    let (a, b) = (block.meta(one), block.meta(other));
    a == b && same_strides(a.shape(), &layouts[one.index()].strides, &layouts[other.index()].strides)
}
