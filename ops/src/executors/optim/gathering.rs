//! Updates of parameters that do not depend on each other become one region, and with them what only widens a gradient for its
//! update: the kernel reads gradients of 16 bits as they are.

use std::sync::Arc;

use fulgurite::rules::Arg;
use fulgurite::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use fulgurite::transforms::Fuel;
use rustc_hash::{FxHashMap, FxHashSet};

use super::optim;
use crate::executors::regions::closed;
use crate::executors::widening::widened;
use crate::optim::adamw::ARGUMENTS;

fn is_update(symbol: &BoundSymbol) -> bool {
    let update = symbol.operator().is_some_and(|def| def.name == crate::optim::adamw::OPERATOR.name);
    update && symbol.executor == Some(optim::EXECUTOR.name)
}

/// The symbols among `lines` that widen a gradient which nobody reads but one of `updates`.
fn widenings(block: &Block, lines: &[BoundSymbol], updates: &[BoundSymbol]) -> Vec<usize> {
    let gradients: FxHashSet<ValueId> = updates.iter().map(|update| *ARGUMENTS.grad.read(&update.arguments)).collect();
    let mut readers: FxHashMap<ValueId, usize> = FxHashMap::default();
    for id in block.symbols.iter().flat_map(BoundSymbol::operands).chain(block.results.iter().copied()) {
        *readers.entry(id).or_default() += 1;
    }
    let alone = |id: ValueId| gradients.contains(&id) && readers.get(&id) == Some(&1);
    let found = lines.iter().enumerate().filter(|(_, symbol)| widened(block, symbol).is_some_and(|(_, to)| alone(to)));
    found.map(|(at, _)| at).collect()
}

/// Puts all updates that this executor claimed into regions, each with as many as are independent of each other.
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

/// What stands before the first region of `lines`, the region, and what stands after it; `None` if no two updates can be
/// gathered.
fn gathered(block: &Block, lines: &[BoundSymbol]) -> Option<(Vec<BoundSymbol>, BoundSymbol, Vec<BoundSymbol>)> {
    let mut members: Vec<BoundSymbol> = Vec::new();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    // What is computed from the members' results, and these themselves.
    let mut fed: FxHashSet<ValueId> = FxHashSet::default();
    for symbol in lines {
        let depends = symbol.operands().any(|id| fed.contains(&id));
        if depends || (is_update(symbol) && !members.is_empty()) {
            fed.extend(symbol.results.iter().copied());
        }
        match (depends, is_update(symbol)) {
            (true, _) => after.push(symbol.clone()),
            (false, true) => {
                fed.extend(symbol.results.iter().copied());
                members.push(symbol.clone());
            }
            (false, false) => before.push(symbol.clone()),
        }
    }
    if members.len() < 2 {
        return None;
    }
    let place = members[0].place;
    let results: Results = members.iter().flat_map(|symbol| symbol.results.iter().copied()).collect();
    let widening = widenings(block, &before, &members);
    let ours = |symbol: &BoundSymbol| BoundSymbol { executor: Some(optim::EXECUTOR.name), ..symbol.clone() };
    let mut own: Vec<BoundSymbol> = widening.iter().map(|at| ours(&before[*at])).collect();
    for at in widening.iter().rev() {
        before.remove(*at);
    }
    let mut seen: FxHashSet<ValueId> = own.iter().flat_map(|symbol| symbol.results.iter().copied()).collect();
    own.append(&mut members);
    let inputs: Vec<ValueId> = own.iter().flat_map(BoundSymbol::operands).filter(|id| seen.insert(*id)).collect();
    let region = BoundSymbol {
        callee: Callee::Region { executor: optim::EXECUTOR.name },
        body: Some(Arc::new(closed(block, &inputs, &own, &results))),
        arguments: vec![Arg::List(inputs)],
        results,
        executor: Some(optim::EXECUTOR.name),
        refusals: Vec::new(),
        place,
    };
    Some((before, region, after))
}
