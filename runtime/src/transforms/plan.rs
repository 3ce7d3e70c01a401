//! The memory plan: where every value is kept.
//!
//! *Resident* memory is what the caller brings and takes away (inputs, outputs). *Transient* memory is one arena, laid out
//! ahead from the values' lives. An output whose path names a donated input is written into that input's memory where
//! nothing reads the input afterwards.

use rustc_hash::{FxHashMap, FxHashSet};

use fulgurite_kernels::view::is_contiguous;

use super::layout::{Layout, layouts};
use crate::argument::Arg;
use crate::executor::{find_executor, find_implementation};
use crate::operator::{OperatorDef, OperatorKind};
use crate::trace::{Block, BoundSymbol, Callee, Results, Storage, Trace, ValueId};

/// Alignment of values in the arena, in bytes.
pub const ALIGNMENT: u64 = 64;

/// Bytes that a planned program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Inputs.
    pub inputs: u64,
    /// Outputs that are not written into donated inputs.
    pub outputs: u64,
    /// The arena.
    pub transient: u64,
}

impl MemoryUse {
    /// Everything held while the program runs.
    pub fn peak(&self) -> u64 {
        self.inputs.saturating_add(self.outputs).saturating_add(self.transient)
    }
}

/// What `trace` needs once it is planned.
pub fn memory_use(trace: &Trace) -> MemoryUse {
    let block = &trace.block;
    let outputs = block
        .values
        .iter()
        .filter(|v| v.storage == Some(Storage::Output))
        .map(|v| v.meta.bytes() as u64)
        .fold(0, u64::saturating_add);
    MemoryUse {
        inputs: block
            .parameters
            .iter()
            .filter_map(|id| block.values.get(id.index()))
            .map(|v| v.meta.bytes() as u64)
            .fold(0, u64::saturating_add),
        outputs,
        transient: trace.arena.unwrap_or(0),
    }
}

/// For each value the index of the last symbol that reads it or a view of it; `symbols.len()` for results.
fn last_uses(block: &Block, roots: &[ValueId]) -> Vec<usize> {
    let mut last = vec![0usize; block.values.len()];
    for (i, symbol) in block.symbols.iter().enumerate() {
        for id in symbol.results.iter() {
            last[roots[id.index()].index()] = last[roots[id.index()].index()].max(i);
        }
        if symbol.callee != Callee::Delete {
            for id in symbol.operands() {
                last[roots[id.index()].index()] = i;
                last[id.index()] = last[id.index()].max(i);
            }
        }
    }
    for id in &block.results {
        last[roots[id.index()].index()] = block.symbols.len();
    }
    last
}

/// Lets outputs take the memory of donated inputs of the same path, where nothing reads the input after the output is written.
pub fn donate(trace: &Trace) -> Trace {
    let mut planned = trace.transformed("donate", trace.block.clone());
    let layouts = layouts(&planned);
    let roots: Vec<ValueId> = layouts.iter().map(|layout| layout.root).collect();
    let block = &planned.block;
    let last = last_uses(block, &roots);
    let mut writer = vec![None; block.values.len()];
    for (i, symbol) in block.symbols.iter().enumerate() {
        symbol.results.iter().for_each(|id| writer[id.index()] = Some(i));
    }
    // The first donated input of each path.
    let mut donated: FxHashMap<&str, ValueId> = FxHashMap::default();
    for (id, input) in block.parameters.iter().zip(&planned.inputs).rev() {
        if input.donated && input.strides.is_none() {
            donated.insert(place_in_tree(&block.value(*id).name, "arg"), *id);
        }
    }
    let mut returned: FxHashMap<ValueId, usize> = FxHashMap::default();
    block.results.iter().for_each(|id| *returned.entry(*id).or_default() += 1);
    let mut taken: FxHashSet<ValueId> = FxHashSet::default();
    let mut shared: Vec<(ValueId, ValueId)> = Vec::new();
    // One symbol may update hundreds of parameters: what it reads is gone through once, not for each of them.
    let (mut reads, mut regions) = (FxHashMap::default(), RegionReaders::default());
    for (result, output) in block.results.iter().zip(&planned.outputs) {
        let Some(parameter) = donated.get(place_in_tree(&output.path, "result")) else { continue };
        let Some(written) = writer[result.index()] else { continue };
        let symbol = &block.symbols[written];
        let read_later = last[parameter.index()] > written || returned.contains_key(parameter);
        let reads = reads.entry(written).or_insert_with(|| roots_read(symbol, &roots));
        // A kernel that reads an element before it writes it may update in place; views of other shapes are not that.
        let in_place = match reads.get(parameter) {
            None => true,
            Some(exactly) => *exactly && regions.updates_in_place(symbol, *result, *parameter),
        };
        let free = !taken.contains(parameter);
        let owner = roots[result.index()] == *result && returned.get(result) == Some(&1);
        if !read_later && in_place && free && owner && block.meta(*result) == block.meta(*parameter) {
            taken.insert(*parameter);
            shared.push((*result, *parameter));
        }
    }
    for (result, parameter) in shared {
        planned.block.values[result.index()].storage = Some(Storage::Shared(parameter));
    }
    planned
}

/// The memory that a symbol reads, and of each whether it is read as it is and never through a view.
fn roots_read(symbol: &BoundSymbol, roots: &[ValueId]) -> FxHashMap<ValueId, bool> {
    let mut read: FxHashMap<ValueId, bool> = FxHashMap::default();
    for id in symbol.operands() {
        *read.entry(roots[id.index()]).or_insert(true) &= roots[id.index()] == id;
    }
    read
}

/// Where an input or output stands in its tree: its path, or the number of an unnamed root (`arg0`, `result0`).
fn place_in_tree<'a>(path: &'a str, positional: &str) -> &'a str {
    path.strip_prefix(positional).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(path)
}

/// Whether the kernel of a symbol has read each element of `operand` before it writes that element of `result`.
pub(crate) fn updates_in_place(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    match symbol.callee {
        Callee::Region { .. } => region_updates_in_place(symbol, result, operand),
        Callee::Operator(def) => {
            if let Some(over) = declared_in_place(symbol) {
                return allowed_over(def, symbol, over, operand) && beside_each_other(symbol, result, operand);
            }
            def.scalar.is_some()
                && symbol.executor.is_some_and(|name| find_executor(name).is_ok_and(|e| e.claims.is_some()))
        }
        _ => false,
    }
}

/// Whether `result` may take the memory of `root`, which dies at `symbol`: the symbol reads it as one operand, which is all of it in
/// its own order (itself, or a view of another shape), and whose elements are read before they are written.
pub(crate) fn may_lie_over(
    block: &Block,
    layouts: &[Layout],
    symbol: &BoundSymbol,
    result: ValueId,
    root: ValueId,
) -> bool {
    let mut operands = symbol.operands().filter(|id| layouts[id.index()].root == root);
    let Some(operand) = operands.next() else { return false };
    let layout = &layouts[operand.index()];
    operands.all(|other| other == operand)
        && layout.offset == 0
        && is_contiguous(block.meta(operand).shape(), &layout.strides)
        && block.meta(operand).bytes() == block.meta(root).bytes()
        && block.meta(operand) == block.meta(result)
        && updates_in_place(symbol, result, operand)
}

/// The parameters over which the kernel that runs a symbol says that it may write; empty if over any.
fn declared_in_place(symbol: &BoundSymbol) -> Option<&'static [&'static str]> {
    let def = symbol.operator()?;
    if let OperatorKind::Symbol(_) = def.kind {
        return def.in_place.then_some(def.in_place_over);
    }
    let executor = find_executor(symbol.executor?).ok()?;
    let implementation = find_implementation(def.name, executor.name)?;
    (implementation.runs_on(executor.device) && implementation.in_place).then_some(implementation.in_place_over)
}

/// Whether `operand` is read as the parameters `over` alone.
fn allowed_over(def: &OperatorDef, symbol: &BoundSymbol, over: &[&str], operand: ValueId) -> bool {
    let mut read =
        def.params.iter().zip(&symbol.arguments).filter(|(_, argument)| argument.tensors().contains(&operand));
    over.is_empty() || read.all(|(param, _)| over.contains(&param.name))
}

/// Whether no list has `operand` at another position than `result` has among the results.
fn beside_each_other(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    symbol.arguments.iter().all(|argument| match argument {
        Arg::List(tensors) => {
            tensors.iter().zip(0..).all(|(id, n)| *id != operand || symbol.results.get(n) == Some(&result))
        }
        _ => true,
    })
}

/// A region of elementwise arithmetic reads before it writes. One that gathers kernels which update in place keeps
/// them apart: a result may lie over what its own kernel alone reads.
fn region_updates_in_place(symbol: &BoundSymbol, result: ValueId, operand: ValueId) -> bool {
    RegionReaders::default().updates_in_place(symbol, result, operand)
}

/// Who reads what inside of regions; each region is gone through once.
#[derive(Default)]
struct RegionReaders<'a> {
    /// By the first result of the region; `None` for regions whose kernels declare nothing.
    regions: FxHashMap<ValueId, Option<Readers<'a>>>,
}

struct Readers<'a> {
    /// The body's value for each operand and for each result of the region.
    inner: FxHashMap<ValueId, ValueId>,
    /// The first line that reads each value of the body, and whether it is the only one.
    lines: FxHashMap<ValueId, (&'a BoundSymbol, bool)>,
}

impl<'a> RegionReaders<'a> {
    /// As [`updates_in_place`].
    fn updates_in_place(&mut self, symbol: &'a BoundSymbol, result: ValueId, operand: ValueId) -> bool {
        if !matches!(symbol.callee, Callee::Region { .. }) {
            return updates_in_place(symbol, result, operand);
        }
        let Some(first) = symbol.results.first() else { return false };
        let Some(readers) = self.regions.entry(*first).or_insert_with(|| Readers::of(symbol)) else { return true };
        let (Some(read), Some(written)) = (readers.inner.get(&operand), readers.inner.get(&result)) else {
            return false;
        };
        readers.lines.get(read).is_some_and(|(line, only)| {
            *only && line.results.contains(written) && updates_in_place(line, *written, *read)
        })
    }
}

impl<'a> Readers<'a> {
    fn of(symbol: &'a BoundSymbol) -> Option<Readers<'a>> {
        let body = symbol.body.as_deref()?;
        if !body.symbols.iter().any(|line| declared_in_place(line).is_some()) {
            return None;
        }
        let (mut inner, mut lines) = (FxHashMap::default(), FxHashMap::default());
        let operands = symbol.operands().zip(&body.parameters);
        for (outer, own) in operands.chain(symbol.results.iter().copied().zip(&body.results)) {
            inner.entry(outer).or_insert(*own);
        }
        for line in &body.symbols {
            for id in line.operands() {
                let known = lines.entry(id).or_insert((line, true));
                known.1 &= std::ptr::eq(known.0, line);
            }
        }
        Some(Readers { inner, lines })
    }
}

/// Gives every value its storage and the arena its size.
pub fn plan(trace: &Trace) -> Trace {
    let mut planned = trace.transformed("plan_memory", trace.block.clone());
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
    for (i, symbol) in block.symbols.clone().iter().enumerate() {
        for id in &symbol.results {
            let index = id.index();
            if block.values[index].storage.is_some() {
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
                        let offset = arena.take(size);
                        placed[index] = Some((offset, size));
                        Storage::Arena(offset)
                    }
                }
            });
        }
        for id in &dying[i] {
            if let Some((offset, size)) = placed[id.index()].take() {
                arena.give_back(offset, size);
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
    /// Disjoint, not adjacent, in order: (offset, bytes).
    free: Vec<(u64, u64)>,
}

impl Arena {
    fn take(&mut self, bytes: u64) -> u64 {
        let best = (0..self.free.len()).filter(|i| self.free[*i].1 >= bytes).min_by_key(|i| (self.free[*i].1, *i));
        if let Some(i) = best {
            let (offset, room) = self.free[i];
            if room == bytes {
                self.free.remove(i);
            } else {
                self.free[i] = (offset + bytes, room - bytes);
            }
            return offset;
        }
        // Grow by what the last free range lacks.
        if let Some(&(offset, room)) = self.free.last().filter(|(offset, room)| offset + room == self.size) {
            self.free.pop();
            self.size += bytes - room;
            return offset;
        }
        let offset = self.size;
        self.size += bytes;
        offset
    }

    fn give_back(&mut self, offset: u64, bytes: u64) {
        let i = self.free.partition_point(|(start, _)| *start < offset);
        self.free.insert(i, (offset, bytes));
        if i + 1 < self.free.len() && self.free[i].0 + self.free[i].1 == self.free[i + 1].0 {
            self.free[i].1 += self.free[i + 1].1;
            self.free.remove(i + 1);
        }
        if i > 0 && self.free[i - 1].0 + self.free[i - 1].1 == self.free[i].0 {
            self.free[i - 1].1 += self.free[i].1;
            self.free.remove(i);
        }
    }
}

/// Adds a `del` line after the last use of every value that is neither an input nor an output.
pub fn delete_last_used(trace: &Trace) -> Trace {
    let source = &trace.block;
    let mut last: Vec<Option<usize>> = vec![None; source.values.len()];
    let mut keep = vec![false; source.values.len()];
    source.parameters.iter().chain(&source.results).for_each(|id| keep[id.index()] = true);
    for (i, symbol) in source.symbols.iter().enumerate() {
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            last[id.index()] = Some(i);
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
                arguments: vec![Arg::List(dying)],
                results: Results::new(),
                body: None,
                executor: None,
                refusals: Vec::new(),
                place: None,
            });
        }
    }
    trace.transformed("delete_last_used", block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_are_joined_and_used_again() {
        let mut arena = Arena::default();
        let (a, b, c) = (arena.take(64), arena.take(128), arena.take(64));
        assert_eq!((a, b, c, arena.size), (0, 64, 192, 256));
        arena.give_back(a, 64);
        arena.give_back(b, 128);
        assert_eq!(arena.take(192), 0);
        arena.give_back(c, 64);
        assert_eq!(arena.take(128), 192, "the range at the end grows");
        assert_eq!(arena.size, 320);
    }
}
