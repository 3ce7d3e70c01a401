//! Regions: elementwise arithmetic, broadcasts and row reductions that an executor runs in one pass over memory.
//!
//! A region has an *iteration shape*. Its values are *full* (of that shape) or *rows* (one value for each row, with the
//! last extent missing or one). Rows come from reductions over the last dimension, and a broadcast makes them
//! full again. Sums over all rows, a value for each column, leave a region: nothing in it reads them.

use fulgurite_runtime::arithmetic::{Arithmetic, Elements};
use fulgurite_runtime::operator::RuleSet;
use std::collections::VecDeque;

use std::sync::Arc;

use fulgurite_runtime::DType;
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::kernels::Reduction;
use fulgurite_runtime::rules::*;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};
use fulgurite_runtime::transforms::recompute::may_join;
use rustc_hash::{FxHashMap, FxHashSet};

pub use crate::limits::{ColumnSums, Limits};
use crate::scattered::scattered;

/// How many symbols after a region's first one are looked at.
const WINDOW: usize = 160;

/// Elements of a broadcast that is worth more than a launch to write.
const LARGE: usize = 1 << 18;

/// What a fusable symbol does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Arithmetic from a `scalar` rule.
    Elementwise,
    /// Each element in another type.
    Convert,
    /// A reduction over the last dimension.
    Reduce(Reduction),
    /// A sum over all dimensions but the last, of floating-point numbers of at most 32 bits.
    SumRows,
    /// A reshape that adds or removes a last extent of one.
    Reshape,
    /// A broadcast from rows.
    Broadcast,
    /// Arithmetic of no operands: one number in every element.
    Fill,
}

/// Whether a value has an element for each element of the iteration, or one for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// An element for each element of the iteration.
    Full,
    /// One value for each row.
    Row,
    /// One value for each column, which no member reads.
    Column,
}

/// What a symbol that `executor` claimed does, if a region can hold it.
pub fn kind_of(block: &Block, symbol: &BoundSymbol, executor: &str) -> Option<Kind> {
    let def = symbol.operator()?;
    if symbol.executor != Some(executor) || symbol.results.len() != 1 {
        return None;
    }
    let Some(operand) = symbol.operands().next() else { return Arithmetic::of(def).scalar.map(|_| Kind::Fill) };
    let shape = block.meta(operand).shape();
    let reduction = |reduction| {
        let dims = attribute(symbol, "dims")?;
        (dims == [shape.len() as i64 - 1] && !shape.is_empty() && block.meta(symbol.results[0]).dtype() != DType::Bool)
            .then_some(Kind::Reduce(reduction))
    };
    let sums_rows = || {
        let meta = block.meta(symbol.results[0]);
        let over = attribute(symbol, "dims")?;
        let floating = matches!(meta.dtype(), DType::F32 | DType::BF16 | DType::F16);
        let of_rows = shape.len() > 1 && over.iter().copied().eq(0..shape.len() as i64 - 1);
        // The same type, so that nothing is converted on the way.
        (of_rows && floating && meta.dtype() == block.meta(operand).dtype() && meta.rank() == 1)
            .then_some(Kind::SumRows)
    };
    let rules = Arithmetic::of(def);
    match rules.elements {
        Some(Elements::Convert) => Some(Kind::Convert),
        Some(Elements::Sum) => sums_rows().or_else(|| reduction(Reduction::Sum)),
        Some(Elements::Max) => reduction(Reduction::Max),
        Some(Elements::Min) => reduction(Reduction::Min),
        Some(Elements::Reshape) => Some(Kind::Reshape),
        Some(Elements::Broadcast) => Some(Kind::Broadcast),
        Some(Elements::Select) => None,
        None => rules.scalar.map(|_| Kind::Elementwise),
    }
}

fn attribute(symbol: &BoundSymbol, name: &str) -> Option<Vec<i64>> {
    match symbol.arguments.get(symbol.operator()?.param(name)?)? {
        Arg::Attribute(attribute) => Vec::<i64>::from_attribute(attribute),
        _ => None,
    }
}

/// Whether `shape` is that of one value a row: the last extent missing, or one.
pub fn is_row_shape(shape: &[usize], iteration: &[usize]) -> bool {
    let Some((_, outer)) = iteration.split_last() else { return false };
    shape == outer || (shape.len() == iteration.len() && shape.split_last() == Some((&1, outer)))
}

/// A region being gathered.
pub struct Region<'a> {
    block: &'a Block,
    limits: Limits,
    iteration: Vec<usize>,
    /// Places of the members among the lines ahead, in order.
    members: Vec<usize>,
    /// The space of each value that a member defines. (Regions see few of a program's values.)
    pub spaces: FxHashMap<ValueId, Space>,
}

impl<'a> Region<'a> {
    /// A region without members.
    pub fn over(block: &'a Block, iteration: &[usize], limits: Limits) -> Region<'a> {
        Region { block, limits, iteration: iteration.to_vec(), members: Vec::new(), spaces: FxHashMap::default() }
    }

    /// How many values members define in a space.
    fn count(&self, space: Space) -> usize {
        self.spaces.values().filter(|other| **other == space).count()
    }

    /// The space of a member's result if `symbol` can join, given what the region computes already.
    pub fn admits(&self, symbol: &BoundSymbol, kind: Kind) -> Option<Space> {
        let result = self.block.meta(symbol.results[0]).shape();
        let inside = |id: ValueId| self.spaces.get(&id).copied();
        let of_shape = |shape: &[usize]| {
            if shape == self.iteration {
                Some(Space::Full)
            } else {
                is_row_shape(shape, &self.iteration).then_some(Space::Row)
            }
        };
        // An outside operand is read in the space that its shape allows.
        let space = |id: ValueId| inside(id).or_else(|| of_shape(self.block.meta(id).shape()));
        let operand = || symbol.operands().next();
        match kind {
            Kind::Elementwise | Kind::Convert => {
                let spaces: Vec<Space> = symbol.operands().map(space).collect::<Option<_>>()?;
                // Operands have one shape; a mixture would be a row shape that equals the iteration shape by chance.
                spaces.iter().all(|s| *s == spaces[0] && *s != Space::Column).then_some(spaces[0])
            }
            Kind::SumRows => {
                let suits = self.limits.column_sums.filter(|sums| {
                    let has_rows = self.count(Space::Row) > 0;
                    sums.suit(&self.iteration, has_rows) && self.count(Space::Column) < sums.most
                });
                (suits.is_some() && space(operand()?)? == Space::Full).then_some(Space::Column)
            }
            Kind::Reduce(_) => {
                let suits = |sums: ColumnSums| sums.suit(&self.iteration, true);
                let beside = self.count(Space::Column) == 0 || self.limits.column_sums.is_some_and(suits);
                (beside && space(operand()?)? == Space::Full).then_some(Space::Row)
            }
            Kind::Reshape => {
                (inside(operand()?)? == Space::Row && is_row_shape(result, &self.iteration)).then_some(Space::Row)
            }
            Kind::Broadcast => {
                let operand = operand()?;
                let rank = self.block.meta(operand).rank() as i64;
                let dims = attribute(symbol, "dims")?;
                let aligned = dims == (0..rank).collect::<Vec<_>>();
                (inside(operand)? == Space::Row && result == self.iteration && aligned).then_some(Space::Full)
            }
            Kind::Fill => of_shape(result),
        }
    }
}

/// A symbol that has not found its place yet, and what it does.
struct Line {
    symbol: BoundSymbol,
    kind: Option<Kind>,
}

/// Groups the symbols that an executor claimed into regions. The time is linear in the number of symbols.
pub fn fuse(block: &Block, limits: Limits, fuel: &mut Fuel) -> Block {
    // How often each value is read. Regions gather reads, but a value that was read outside stays read outside.
    let mut reads = vec![0u32; block.values.len()];
    for id in block.symbols.iter().flat_map(BoundSymbol::operands).chain(block.results.iter().copied()) {
        reads[id.index()] += 1;
    }
    let mut fused = Block {
        values: block.values.clone(),
        parameters: block.parameters.clone(),
        symbols: Vec::with_capacity(block.symbols.len()),
        results: block.results.clone(),
    };
    let mut ahead = lines(block, limits);
    while !ahead.is_empty() {
        match gather(block, limits, &ahead) {
            Some(members) if fuel.burn() => write(block, limits, &mut ahead, &members, &reads),
            _ => fused.symbols.extend(ahead.pop_front().map(|line| line.symbol)),
        }
    }
    fused
}

/// The symbols of a block in order, but that numbers are filled right before they are first read: a region that reads
/// one then fills it, and no kernel of its own.
fn lines(block: &Block, limits: Limits) -> VecDeque<Line> {
    let apart = if limits.scattered_rows { FxHashSet::default() } else { scattered(block) };
    let mut fills: FxHashMap<ValueId, Line> = FxHashMap::default();
    let mut lines = VecDeque::with_capacity(block.symbols.len());
    for symbol in &block.symbols {
        let kind = kind_of(block, symbol, limits.members).filter(|kind| {
            !matches!(kind, Kind::Reduce(Reduction::Sum)) || !symbol.operands().any(|id| apart.contains(&id))
        });
        let line = Line { symbol: symbol.clone(), kind };
        lines.extend(symbol.operands().filter_map(|id| fills.remove(&id)));
        match line.kind {
            Some(Kind::Fill) => {
                fills.insert(symbol.results[0], line);
            }
            _ => lines.push_back(line),
        }
    }
    // What is returned alone.
    lines.extend(block.results.iter().filter_map(|id| fills.remove(id)));
    lines
}

/// The members of a region that starts with the first line ahead, if it is worth one. Numbers that it reads may come
/// before it.
fn gather(block: &Block, limits: Limits, ahead: &VecDeque<Line>) -> Option<Vec<usize>> {
    let Line { symbol: seed, kind } = ahead.iter().find(|line| line.kind != Some(Kind::Fill))?;
    let iteration = match (*kind)? {
        Kind::Elementwise | Kind::Convert => block.meta(seed.results[0]).shape(),
        Kind::Reduce(_) => block.meta(seed.operands().next()?).shape(),
        Kind::SumRows | Kind::Reshape | Kind::Broadcast | Kind::Fill => return None,
    };
    // Of no elements nothing is saved, and a reduction of nothing still has results to write.
    if iteration.contains(&0) {
        return None;
    }
    let with_all = gathered(limits, ahead, seed, Region::over(block, iteration, limits), &FxHashSet::default());
    let aside = for_others(&with_all.0, &with_all.1, ahead);
    let (_, members) = match aside.is_empty() {
        true => with_all,
        false => {
            // A line outside that reads such a member runs behind the region, and so does all that needs the line. If
            // the member runs before the region, so does the line, and what needs it can join the region.
            let without = gathered(limits, ahead, seed, Region::over(block, iteration, limits), &aside);
            if full(&without, ahead) > full(&with_all, ahead) { without } else { with_all }
        }
    };
    let work = members
        .iter()
        .filter(|i| !matches!(ahead[**i].kind, Some(Kind::Reshape | Kind::Broadcast | Kind::Fill) | None));
    (work.count() >= 2).then_some(members)
}

/// How many members have an element for each of the iteration.
fn full((region, members): &(Region<'_>, Vec<usize>), ahead: &VecDeque<Line>) -> usize {
    let is_full = |i: &&usize| region.spaces.get(&ahead[**i].symbol.results[0]) == Some(&Space::Full);
    members.iter().filter(is_full).count()
}

/// The members that have one value a row, read no other members than such ones, and are read outside of the region.
fn for_others(region: &Region<'_>, members: &[usize], ahead: &VecDeque<Line>) -> FxHashSet<usize> {
    let mut apart: FxHashSet<ValueId> = FxHashSet::default();
    for i in members {
        let Line { symbol, .. } = &ahead[*i];
        let outside = |id: ValueId| !region.spaces.contains_key(&id) || apart.contains(&id);
        if region.spaces.get(&symbol.results[0]) == Some(&Space::Row) && symbol.operands().all(outside) {
            apart.insert(symbol.results[0]);
        }
    }
    let inside: FxHashSet<usize> = members.iter().copied().collect();
    let lines = ahead.iter().take(WINDOW).enumerate().filter(|(i, _)| !inside.contains(i));
    let mut wanted: FxHashSet<ValueId> = lines.flat_map(|(_, line)| line.symbol.operands()).collect();
    let mut aside = FxHashSet::default();
    for i in members.iter().rev() {
        let Line { symbol, .. } = &ahead[*i];
        if apart.contains(&symbol.results[0]) && wanted.contains(&symbol.results[0]) {
            wanted.extend(symbol.operands());
            aside.insert(*i);
        }
    }
    aside
}

/// The members of a region that starts with `seed`, without the lines `aside`.
fn gathered<'a>(
    limits: Limits,
    ahead: &VecDeque<Line>,
    seed: &BoundSymbol,
    mut region: Region<'a>,
    aside: &FxHashSet<usize>,
) -> (Region<'a>, Vec<usize>) {
    // Values computed outside from what the region computes: a member must not read them.
    let mut tainted: FxHashSet<ValueId> = FxHashSet::default();
    // A collective behind one that reads the region waits for the region too.
    let mut ordered_tainted = false;
    for (i, Line { symbol, kind }) in ahead.iter().take(WINDOW).enumerate() {
        let clean = !symbol.operands().any(|id| tainted.contains(&id)) && may_join(seed, symbol);
        let space = (clean && region.members.len() < limits.symbols && !aside.contains(&i))
            .then(|| kind.and_then(|kind| region.admits(symbol, kind)))
            .flatten();
        match space {
            Some(space) => {
                region.spaces.insert(symbol.results[0], space);
                region.members.push(i);
            }
            None => {
                let depends = !clean
                    || symbol.operands().any(|id| region.spaces.contains_key(&id))
                    || (ordered_tainted && symbol.is_ordered());
                if depends {
                    ordered_tainted |= symbol.is_ordered();
                    tainted.extend(symbol.results.iter().copied());
                }
            }
        }
    }
    let mut members = connected(&region, ahead);
    // A broadcast that no member reads can be a view of what the region gives. A small one is written: a kernel that
    // takes no views would need a copy.
    let read: FxHashSet<ValueId> = members.iter().flat_map(|i| ahead[*i].symbol.operands()).collect();
    members.retain(|i| {
        let Line { symbol, kind } = &ahead[*i];
        let small = || region.block.meta(symbol.results[0]).len() < LARGE;
        *kind != Some(Kind::Broadcast) || read.contains(&symbol.results[0]) || small()
    });
    (region, members)
}

/// Those members that share a value with the first one, directly or through others.
fn connected(region: &Region<'_>, ahead: &VecDeque<Line>) -> Vec<usize> {
    let (block, members) = (region.block, &region.members);
    let mut group: Vec<usize> = (0..members.len()).collect();
    fn root(group: &mut [usize], mut i: usize) -> usize {
        while group[i] != i {
            group[i] = group[group[i]];
            i = group[i];
        }
        i
    }
    let mut owner: FxHashMap<ValueId, usize> = FxHashMap::default();
    for (position, i) in members.iter().enumerate() {
        let symbol = &ahead[*i].symbol;
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            // Numbers from outside are read by everyone and connect nothing.
            let number = block.meta(id).len() <= 1;
            if number && !owner.contains_key(&id) && !symbol.results.contains(&id) {
                continue;
            }
            match owner.get(&id).copied() {
                Some(other) => {
                    let (a, b) = (root(&mut group, other), root(&mut group, position));
                    group[a.max(b)] = a.min(b);
                }
                None => {
                    owner.insert(id, position);
                }
            }
        }
    }
    (0..members.len()).filter(|i| root(&mut group, *i) == 0).map(|i| members[i]).collect()
}

/// Puts one region in the place of its members: what it does not feed goes before it, what it feeds after it; all of
/// these stay ahead, since other regions may start among them. `reads` counts the reads of each value.
fn write(block: &Block, limits: Limits, ahead: &mut VecDeque<Line>, members: &[usize], reads: &[u32]) {
    let mut defined: FxHashSet<ValueId> = FxHashSet::default();
    let mut fed: FxHashSet<ValueId> = FxHashSet::default();
    let (mut before, mut inside, mut after) = (Vec::new(), Vec::new(), Vec::new());
    // Collectives keep their order: one that is independent of the region stays behind one that is not.
    let mut ordered_after = false;
    let mut next_member = members.iter().copied().peekable();
    for (i, line) in ahead.drain(..=members[members.len() - 1]).enumerate() {
        if next_member.next_if_eq(&i).is_some() {
            defined.extend(line.symbol.results.iter().copied());
            inside.push(BoundSymbol { executor: Some(limits.executor), ..line.symbol });
        } else if line.symbol.operands().any(|id| defined.contains(&id) || fed.contains(&id))
            || (ordered_after && line.symbol.is_ordered())
        {
            ordered_after |= line.symbol.is_ordered();
            fed.extend(line.symbol.results.iter().copied());
            after.push(line);
        } else {
            before.push(line);
        }
    }
    let mut inputs: Vec<ValueId> = Vec::new();
    let mut read_inside: FxHashMap<ValueId, u32> = FxHashMap::default();
    for id in inside.iter().flat_map(BoundSymbol::operands) {
        if defined.contains(&id) {
            *read_inside.entry(id).or_default() += 1;
        } else if !inputs.contains(&id) {
            inputs.push(id);
        }
    }
    let read_outside = |id: &ValueId| reads[id.index()] > read_inside.get(id).copied().unwrap_or(0);
    let outputs: Results =
        inside.iter().flat_map(|symbol| symbol.results.iter().copied()).filter(read_outside).collect();
    let place = inside.first().and_then(|symbol| symbol.place);
    let pass = inside.last().map_or(Pass::Forward, |symbol| symbol.pass);
    let body = closed(block, &inputs, &inside, &outputs);
    let region = BoundSymbol {
        callee: Callee::Region { executor: limits.executor },
        arguments: vec![Arg::List(inputs)],
        results: outputs,
        body: Some(Arc::new(body)),
        pass,
        executor: Some(limits.executor),
        schedule: Default::default(),
        refusals: Vec::new(),
        place,
    };
    for line in before.into_iter().chain([Line { symbol: region, kind: None }]).chain(after).rev() {
        ahead.push_front(line);
    }
}

/// The symbols of a region as a block of their own, with the values they use and no others.
pub fn closed(block: &Block, inputs: &[ValueId], symbols: &[BoundSymbol], outputs: &Results) -> Block {
    let mut body = Block::default();
    let mut own: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut define = |body: &mut Block, id: ValueId| {
        let value = block.value(id);
        let new = body.define(value.name.clone(), value.meta.clone());
        own.insert(id, new);
        new
    };
    body.parameters = inputs.iter().map(|id| define(&mut body, *id)).collect();
    let results: Vec<Results> =
        symbols.iter().map(|symbol| symbol.results.iter().map(|id| define(&mut body, *id)).collect()).collect();
    let mapped = |id: &ValueId| own.get(id).copied().unwrap_or(ValueId(u32::MAX));
    body.symbols = symbols
        .iter()
        .zip(results)
        .map(|(symbol, results)| BoundSymbol {
            arguments: map_arguments(&symbol.arguments, mapped),
            results,
            body: None,
            pass: Pass::Forward,
            ..symbol.clone()
        })
        .collect();
    body.results = outputs.iter().map(mapped).collect();
    body
}

/// The shape that a region iterates over: that of the operand of a reduction, otherwise of the first symbol's result.
pub fn iteration_shape(body: &Block) -> Option<Vec<usize>> {
    let reduced = body.symbols.iter().find(|symbol| {
        matches!(symbol.executor.and_then(|executor| kind_of(body, symbol, executor)), Some(Kind::Reduce(_)))
    });
    let value = match reduced {
        Some(symbol) => symbol.operands().next()?,
        None => body
            .symbols
            .iter()
            .filter_map(|symbol| symbol.results.first().copied())
            .max_by_key(|id| (body.meta(*id).rank(), body.meta(*id).shape().to_vec()))?,
    };
    Some(body.meta(value).shape().to_vec())
}
