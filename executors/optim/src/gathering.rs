//! Updates of parameters that do not depend on each other become one region, with what only scales gradients for them
//! and what only widens these: the kernels read gradients of 16 bits as they are. What rounds the new parameters to 16
//! bits comes with them: they are written in both types at once. A norm of gradients that are widened becomes a region
//! too, so that nobody needs them widened.

use std::sync::Arc;

use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::rules::Arg;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::clipping::{grad_norm, scale_all};
use super::optim;
use super::region::{is_norm, is_scale, is_update};
use fulgurite_executor_regions::grouping::closed;
use fulgurite_executor_regions::widening::{narrowed, widened};
use fulgurite_ops::optim::adamw::ARGUMENTS;

/// For each value, how many lines and results of the block read it.
struct Readers(FxHashMap<ValueId, usize>);

impl Readers {
    fn of(block: &Block) -> Readers {
        let mut readers: FxHashMap<ValueId, usize> = FxHashMap::default();
        for id in block.symbols.iter().flat_map(BoundSymbol::operands).chain(block.results.iter().copied()) {
            *readers.entry(id).or_default() += 1;
        }
        Readers(readers)
    }

    /// Whether a value has no readers but these, of which some read it.
    fn are_among(&self, id: ValueId, known: &FxHashMap<ValueId, usize>) -> bool {
        known.get(&id).is_some_and(|count| self.0.get(&id) == Some(count))
    }
}

/// How often each value is read as a gradient.
fn counted(ids: impl IntoIterator<Item = ValueId>) -> FxHashMap<ValueId, usize> {
    let mut counts: FxHashMap<ValueId, usize> = FxHashMap::default();
    ids.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
    counts
}

fn of_updates(updates: &[BoundSymbol]) -> impl Iterator<Item = ValueId> + '_ {
    updates.iter().map(|update| *ARGUMENTS.grad.read(&update.arguments))
}

fn of_scale(scale: &BoundSymbol) -> &[ValueId] {
    scale_all::ARGUMENTS.grads.read(&scale.arguments)
}

fn of_norm(norm: &BoundSymbol) -> &[ValueId] {
    grad_norm::ARGUMENTS.grads.read(&norm.arguments)
}

/// Groups all updates that this executor claimed into regions of mutually independent updates.
pub fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
    let mut fused = Block { symbols: Vec::with_capacity(block.symbols.len()), ..block.clone() };
    let mut ahead = block.symbols.clone();
    while let Some((before, region, after)) = gathered(block, &ahead).filter(|_| fuel.burn()) {
        fused.symbols.extend(before);
        fused.symbols.push(region);
        ahead = after;
    }
    fused.symbols.extend(ahead);
    fused
}

/// The lines before the first region of `lines`, the region, and the lines after it; `None` if no two updates can be
/// gathered.
fn gathered(block: &Block, lines: &[BoundSymbol]) -> Option<(Vec<BoundSymbol>, BoundSymbol, Vec<BoundSymbol>)> {
    let mut updates: Vec<BoundSymbol> = Vec::new();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    // What is computed from the updates' results, and these themselves.
    let mut fed: FxHashSet<ValueId> = FxHashSet::default();
    let mut ordered_after = false;
    for symbol in lines {
        // Collectives keep their order.
        let depends = symbol.operands().any(|id| fed.contains(&id))
            || (ordered_after && symbol.is_ordered() && !is_update(symbol));
        ordered_after |= depends && symbol.is_ordered();
        if depends || (is_update(symbol) && !updates.is_empty()) {
            fed.extend(symbol.results.iter().copied());
        }
        match (depends, is_update(symbol)) {
            (true, _) => after.push(symbol.clone()),
            (false, true) => {
                fed.extend(symbol.results.iter().copied());
                updates.push(symbol.clone());
            }
            (false, false) => before.push(symbol.clone()),
        }
    }
    if updates.len() < 2 {
        return None;
    }
    let readers = Readers::of(block);
    let updated = counted(of_updates(&updates));
    let scales = taken(&mut before, |symbol| {
        is_scale(symbol) && symbol.results.iter().all(|result| readers.are_among(*result, &updated))
    });
    // Gradients that the region reads, and those that the norms before it read.
    let own: Vec<ValueId> = of_updates(&updates).chain(scales.iter().flat_map(of_scale).copied()).collect();
    let norms: Vec<usize> = (0..before.len()).filter(|at| is_norm(&before[*at])).collect();
    let normed: Vec<ValueId> = norms.iter().flat_map(|at| of_norm(&before[*at])).copied().collect();
    let read = counted(own.iter().chain(&normed).copied());
    let known = |symbol: &BoundSymbol| widened(block, symbol).filter(|(_, to)| readers.are_among(*to, &read));
    // One kernel sums squares of a single type of 16 bits.
    let dtype = before.iter().find_map(known).map(|(from, _)| block.meta(from).dtype());
    let widenings = taken(&mut before, |symbol| {
        known(symbol).is_some_and(|(from, to)| Some(block.meta(from).dtype()) == dtype || !normed.contains(&to))
    });
    let (place, pass) = (updates[0].place, updates[updates.len() - 1].pass);
    let mut uncopied: FxHashSet<ValueId> = updates.iter().map(|update| update.results[0]).collect();
    // One of each parameter.
    let copies = taken(&mut after, |symbol| narrowed(block, symbol).is_some_and(|(from, _)| uncopied.remove(&from)));
    let own_results = updates.iter().chain(&copies).flat_map(|symbol| symbol.results.iter().copied());
    let results: Results = own_results.collect();
    let of_own: Vec<BoundSymbol> = widenings_of(&widenings, &own);
    let before_and_updates = of_own.into_iter().chain(scales).chain(updates);
    let lines: Vec<BoundSymbol> = before_and_updates.chain(copies.into_iter().map(ours)).collect();
    let region = BoundSymbol { place, pass, ..region_of(block, &lines, results) };
    for norm in before.iter_mut().filter(|symbol| is_norm(symbol)) {
        let of_norm = widenings_of(&widenings, of_norm(norm));
        if !of_norm.is_empty() {
            let (place, pass, results) = (norm.place, norm.pass, norm.results.clone());
            let lines: Vec<BoundSymbol> = of_norm.into_iter().chain([norm.clone()]).collect();
            *norm = BoundSymbol { place, pass, ..region_of(block, &lines, results) };
        }
    }
    Some((before, region, after))
}

/// Takes the lines that `wanted` says out of `lines`.
fn taken(lines: &mut Vec<BoundSymbol>, mut wanted: impl FnMut(&BoundSymbol) -> bool) -> Vec<BoundSymbol> {
    lines.extract_if(.., |symbol| wanted(symbol)).collect()
}

/// Those of `widenings` whose results are among `ids`, as lines of this executor.
fn widenings_of(widenings: &[BoundSymbol], ids: &[ValueId]) -> Vec<BoundSymbol> {
    let ids: FxHashSet<ValueId> = ids.iter().copied().collect();
    let own = widenings.iter().filter(|symbol| ids.contains(&symbol.results[0]));
    own.cloned().map(ours).collect()
}

/// A line as one of this executor.
fn ours(symbol: BoundSymbol) -> BoundSymbol {
    BoundSymbol { executor: Some(optim::EXECUTOR.name), ..symbol }
}

/// A region of these lines, which gives `results`.
fn region_of(block: &Block, lines: &[BoundSymbol], results: Results) -> BoundSymbol {
    let mut seen: FxHashSet<ValueId> = lines.iter().flat_map(|symbol| symbol.results.iter().copied()).collect();
    let inputs: Vec<ValueId> = lines.iter().flat_map(BoundSymbol::operands).filter(|id| seen.insert(*id)).collect();
    let last = &lines[lines.len() - 1];
    BoundSymbol {
        callee: Callee::Region { executor: optim::EXECUTOR.name },
        body: Some(Arc::new(closed(block, &inputs, lines, &results))),
        arguments: vec![Arg::List(inputs)],
        results,
        pass: last.pass,
        executor: Some(optim::EXECUTOR.name),
        schedule: Default::default(),
        refusals: Vec::new(),
        place: last.place,
    }
}
