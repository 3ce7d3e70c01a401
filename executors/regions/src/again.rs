//! What one region writes for others to read, and these can compute themselves by reading less memory: each computes it
//! again then, and nobody writes it. A tensor of 16 bits that is widened for the sums of a normalization, say, is
//! widened once more by the region that normalizes.
//!
//! Sums over columns cut what would be one region: what comes behind them reads elements once more in any case. Where a
//! value is made of one of fewer bytes, that is what the regions exchange.

use std::sync::Arc;

use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::rules::*;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, Results, Value, ValueId};
use fulgurite_runtime::transforms::dce::live;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::grouping::{Kind, Limits, closed, iteration_shape, kind_of};
use crate::lists::is_list;
use crate::rules::admits;
use crate::widening::free_name;

/// Lets regions compute what they read of other regions, where that moves fewer bytes.
pub fn compute_again(block: &Block, limits: Limits, fuel: &mut Fuel) -> Block {
    let mut new = block.clone();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); new.values.len()];
    for (line, symbol) in new.symbols.iter().enumerate() {
        for id in symbol.operands() {
            if readers[id.index()].last() != Some(&line) {
                readers[id.index()].push(line);
            }
        }
    }
    let returned: FxHashSet<ValueId> = new.results.iter().copied().collect();
    let producers: FxHashMap<ValueId, usize> = (new.symbols.iter().enumerate())
        .flat_map(|(line, symbol)| symbol.results.iter().map(move |id| (*id, line)))
        .collect();
    let mut changed = false;
    for line in 0..new.symbols.len() {
        let Some(mut source) = Open::of(&new, line, limits) else { continue };
        for result in source.results.clone() {
            let of = &readers[result.index()];
            if of.is_empty() || returned.contains(&result) {
                continue;
            }
            let regions = Regions { block: &new, producers: &producers, limits };
            let Some(moved) = regions.moved(&source, result, of).filter(|_| fuel.burn()) else { continue };
            // What the regions exchange in its place is read by these regions as well.
            let of = of.clone();
            match moved.given {
                Some((_, Some(value))) => {
                    readers.push(of);
                    new.values.push(value);
                }
                Some((given, None)) => {
                    let known = &mut readers[given.index()];
                    known.extend(of);
                    known.sort_unstable();
                    known.dedup();
                }
                None => {}
            }
            for (line, region) in moved.readers {
                new.symbols[line] = region.closed(&new.symbols[line], limits);
            }
            source = moved.source;
            changed = true;
        }
        if source.results[..] != new.symbols[line].results[..] {
            new.symbols[line] = source.closed(&new.symbols[line], limits);
        }
    }
    new.symbols.retain(|symbol| !(symbol.results.is_empty() && matches!(symbol.callee, Callee::Region { .. })));
    if changed { live(new) } else { new }
}

/// A region, or an elementwise line that is none, to be changed.
#[derive(Clone)]
struct Open {
    /// What it reads, outside; the body's parameters.
    inputs: Vec<ValueId>,
    /// What it gives, outside; the body's results.
    results: Vec<ValueId>,
    body: Block,
}

impl Open {
    fn of(block: &Block, line: usize, limits: Limits) -> Option<Open> {
        let symbol = &block.symbols[line];
        let results = symbol.results.to_vec();
        if let Callee::Region { executor } = &symbol.callee {
            let body =
                symbol.body.as_deref().filter(|body| *executor == limits.executor && !is_list(body, executor))?;
            return Some(Open { inputs: symbol.operands().collect(), results, body: body.clone() });
        }
        let elementwise = matches!(kind_of(block, symbol, limits.members), Some(Kind::Elementwise | Kind::Convert));
        if !elementwise || symbol.body.is_some() {
            return None;
        }
        let mut inputs: Vec<ValueId> = Vec::new();
        for id in symbol.operands() {
            if !inputs.contains(&id) {
                inputs.push(id);
            }
        }
        let own = BoundSymbol { executor: Some(limits.executor), ..symbol.clone() };
        let body = closed(block, &inputs, &[own], &symbol.results);
        Some(Open { inputs, results, body })
    }

    /// The symbol in the place of `symbol`.
    fn closed(&self, symbol: &BoundSymbol, limits: Limits) -> BoundSymbol {
        BoundSymbol {
            callee: Callee::Region { executor: limits.executor },
            arguments: vec![Arg::List(self.inputs.clone())],
            results: self.results.iter().copied().collect::<Results>(),
            body: Some(Arc::new(self.body.clone().canonical())),
            executor: Some(limits.executor),
            ..symbol.clone()
        }
    }

    /// Gives `result` no more, nor computes what only it needs.
    fn forget(&mut self, result: ValueId) {
        let Some(at) = self.results.iter().position(|id| *id == result) else { return };
        self.results.remove(at);
        self.body.results.remove(at);
        self.body = live(std::mem::take(&mut self.body));
        self.drop_unread();
    }

    /// Reads nothing that no line needs.
    fn drop_unread(&mut self) {
        let read: FxHashSet<ValueId> = self.body.symbols.iter().flat_map(BoundSymbol::operands).collect();
        let mut keeps = self.body.parameters.iter().map(|id| read.contains(id)).collect::<Vec<_>>().into_iter();
        self.inputs.retain(|_| keeps.next() == Some(true));
        self.body.parameters.retain(|id| read.contains(id));
    }

    /// The lines that compute the body's value `wanted` of its inputs, element by element, or of its value `given`, and
    /// these inputs; `None` if other lines are needed.
    fn chain(&self, wanted: ValueId, given: Option<ValueId>, limits: Limits) -> Option<Chain> {
        let mut needed: FxHashSet<ValueId> = FxHashSet::from_iter([wanted]);
        let mut lines = Vec::new();
        for (line, symbol) in self.body.symbols.iter().enumerate().rev() {
            if !symbol.results.iter().any(|id| needed.contains(id) && Some(*id) != given) {
                continue;
            }
            let kind = kind_of(&self.body, symbol, limits.executor)?;
            if !matches!(kind, Kind::Elementwise | Kind::Convert | Kind::Fill) {
                return None;
            }
            needed.extend(symbol.operands());
            lines.push(line);
        }
        lines.reverse();
        let read = (0..self.inputs.len()).filter(|at| needed.contains(&self.body.parameters[*at])).collect();
        Some(Chain { lines, read, given: given.filter(|id| needed.contains(id)) })
    }

    /// What is read outside by a chain: inputs, and the value that it is given.
    fn read_by(&self, chain: &Chain) -> Vec<(ValueId, ValueId)> {
        let given = chain.given.and_then(|inner| {
            let at = self.body.results.iter().position(|id| *id == inner)?;
            Some((inner, self.results[at]))
        });
        chain.read.iter().map(|at| (self.body.parameters[*at], self.inputs[*at])).chain(given).collect()
    }

    /// Computes the input `result` by the lines of `source`.
    fn compute(&mut self, source: &Open, result: ValueId, chain: &Chain) -> Option<()> {
        let wanted = source.body.results[source.results.iter().position(|id| *id == result)?];
        let mut own: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for (inner, outside) in source.read_by(chain) {
            let known = match self.inputs.iter().position(|id| *id == outside) {
                Some(known) => self.body.parameters[known],
                None => {
                    let value = source.body.value(inner);
                    let new = self.body.define(free_name(&self.body, &value.name), value.meta.clone());
                    self.inputs.push(outside);
                    self.body.parameters.push(new);
                    new
                }
            };
            own.insert(inner, known);
        }
        let mut first: Vec<BoundSymbol> = Vec::new();
        for line in &chain.lines {
            let symbol = &source.body.symbols[*line];
            let arguments = map_arguments(&symbol.arguments, |id| own.get(id).copied().unwrap_or(*id));
            // Another result may have been computed here already.
            let same = |other: &&BoundSymbol| other.callee == symbol.callee && other.arguments == arguments;
            let known = self.body.symbols.iter().chain(&first).find(same);
            let known = known.and_then(|known| known.results.first().copied());
            let shape = |id: ValueId| self.body.meta(id).clone();
            let original = *symbol.results.first()?;
            if let Some(known) = known.filter(|id| shape(*id) == *source.body.meta(original)) {
                own.insert(original, known);
                continue;
            }
            let value = source.body.value(original);
            let new = self.body.define(free_name(&self.body, &value.name), value.meta.clone());
            own.insert(original, new);
            first.push(BoundSymbol { arguments, results: Results::from_slice(&[new]), ..symbol.clone() });
        }
        let at = self.inputs.iter().position(|id| *id == result)?;
        let (parameter, made) = (self.body.parameters[at], *own.get(&wanted)?);
        self.inputs.remove(at);
        self.body.parameters.remove(at);
        for symbol in &mut self.body.symbols {
            symbol.arguments = map_arguments(&symbol.arguments, |id| if *id == parameter { made } else { *id });
        }
        // What was computed here before comes before what reads it.
        let behind = (self.body.symbols.iter()).rposition(|symbol| {
            first.iter().flat_map(BoundSymbol::operands).any(|id| symbol.results.contains(&id))
                || symbol.results.contains(&made)
        });
        let place = behind.map_or(0, |line| line + 1);
        let reads_made = |symbol: &BoundSymbol| symbol.operands().any(|id| id == made);
        if self.body.symbols[..place].iter().any(reads_made) {
            return None;
        }
        self.body.symbols.splice(place..place, first);
        Some(())
    }
}

/// The lines of a region that compute one of its values, in order; the inputs that they read, by number; and the other
/// value of the region that they read, if any.
struct Chain {
    lines: Vec<usize>,
    read: Vec<usize>,
    given: Option<ValueId>,
}

/// Regions after a result of one is computed by those that read it.
struct Moved {
    source: Open,
    /// What the source gives in the place of the result: a value of the block, or the next one.
    given: Option<(ValueId, Option<Value>)>,
    readers: Vec<(usize, Open)>,
    /// Bytes that are read and written.
    bytes: u64,
}

/// The regions of a block, which are to change.
struct Regions<'a> {
    block: &'a Block,
    producers: &'a FxHashMap<ValueId, usize>,
    limits: Limits,
}

impl Regions<'_> {
    /// Bytes of a tensor as it is read: one that repeats a smaller one is read from that.
    fn bytes(&self, id: ValueId) -> u64 {
        let line = self.producers.get(&id).map(|line| &self.block.symbols[*line]);
        let repeats = line.filter(|line| kind_of(self.block, line, self.limits.members) == Some(Kind::Broadcast));
        let read = repeats.and_then(|line| line.operands().next()).unwrap_or(id);
        self.block.meta(read).bytes() as u64
    }

    /// Whether rows are reduced, in an order that the widest tensor decides: a region keeps its tensors then.
    fn reduces_rows(&self, body: &Block) -> bool {
        let reduces =
            |symbol: &BoundSymbol| matches!(kind_of(body, symbol, self.limits.executor), Some(Kind::Reduce(_)));
        body.symbols.iter().any(reduces)
    }

    /// The regions in which those that read `result`, a result of `source`, compute it themselves, in the way that
    /// moves the fewest bytes, if that is fewer than now and all of them can.
    fn moved(&self, source: &Open, result: ValueId, readers: &[usize]) -> Option<Moved> {
        let wanted = source.body.results[source.results.iter().position(|id| *id == result)?];
        let whole = source.body.meta(wanted);
        if iteration_shape(&source.body)? != whole.shape() || self.reduces_rows(&source.body) {
            return None;
        }
        let narrower = |id: &ValueId| {
            let meta = source.body.meta(*id);
            meta.shape() == whole.shape() && meta.bytes() < whole.bytes()
        };
        let lines = source.body.symbols.iter().flat_map(|symbol| symbol.results.iter().copied());
        let givens = std::iter::once(None).chain(lines.filter(narrower).map(Some));
        let now = (whole.bytes() as u64).saturating_mul(1 + readers.len() as u64);
        let ways = givens.filter_map(|given| self.way(source, (wanted, result), given, readers));
        ways.min_by_key(|moved| moved.bytes).filter(|moved| moved.bytes < now)
    }

    /// As [`Regions::moved`], where the regions compute it of the value `given` of the source.
    fn way(
        &self,
        source: &Open,
        (wanted, result): (ValueId, ValueId),
        given: Option<ValueId>,
        readers: &[usize],
    ) -> Option<Moved> {
        let own = source.body.meta(wanted).bytes() as u64;
        let chain = source.chain(wanted, given, self.limits).filter(|chain| chain.given == given)?;
        let mut source = source.clone();
        let (mut exchanged, mut bytes) = (None, 0u64);
        if let Some(inner) = given.filter(|inner| !source.body.results.contains(inner)) {
            let value = source.body.value(inner).clone();
            let outside = ValueId(self.block.values.len() as u32);
            bytes += value.meta.bytes() as u64;
            source.results.push(outside);
            source.body.results.push(inner);
            exchanged = Some((outside, Some(Value { name: free_name(self.block, &value.name).into(), ..value })));
        } else if let Some(at) = source.body.results.iter().position(|id| Some(*id) == given) {
            exchanged = Some((source.results[at], None));
        }
        let of_given = given.map_or(0, |inner| source.body.meta(inner).bytes() as u64);
        let read: Vec<ValueId> = source.read_by(&chain).into_iter().map(|(_, outside)| outside).collect();
        let size = |id: ValueId| if id.index() < self.block.values.len() { self.bytes(id) } else { of_given };
        let mut next = Vec::with_capacity(readers.len());
        for line in readers {
            if !matches!(self.block.symbols[*line].callee, Callee::Region { .. }) {
                return None;
            }
            let mut reader = Open::of(self.block, *line, self.limits)?;
            let same_shape = iteration_shape(&reader.body)? == source.body.meta(wanted).shape();
            if !same_shape || self.reduces_rows(&reader.body) {
                return None;
            }
            let more: u64 = read.iter().filter(|id| !reader.inputs.contains(id)).map(|id| size(*id)).sum();
            // What is read lives until the last reader has it. Vectors that are repeated have few bytes.
            if more > own + own / 16 {
                return None;
            }
            bytes += more;
            reader.compute(&source, result, &chain)?;
            let body = reader.body.clone().canonical();
            if body.symbols.len() > self.limits.symbols || admits(&body, self.limits).is_err() {
                return None;
            }
            next.push((*line, reader));
        }
        source.forget(result);
        if !source.results.is_empty() {
            admits(&source.body.clone().canonical(), self.limits).ok()?;
        }
        Some(Moved { source, given: exchanged, readers: next, bytes })
    }
}
