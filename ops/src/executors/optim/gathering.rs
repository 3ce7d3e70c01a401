//! Updates of parameters that do not depend on each other become one region.

use std::sync::Arc;

use fulgurite::rules::Arg;
use fulgurite::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use fulgurite::transforms::Fuel;
use rustc_hash::FxHashSet;

use super::optim;
use crate::executors::regions::closed;

fn is_update(symbol: &BoundSymbol) -> bool {
    let update = symbol.operator().is_some_and(|def| def.name == crate::optim::adamw::OPERATOR.name);
    update && symbol.executor == Some(optim::EXECUTOR.name)
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
    let mut seen: FxHashSet<ValueId> = FxHashSet::default();
    let inputs: Vec<ValueId> = members.iter().flat_map(BoundSymbol::operands).filter(|id| seen.insert(*id)).collect();
    let results: Results = members.iter().flat_map(|symbol| symbol.results.iter().copied()).collect();
    let region = BoundSymbol {
        callee: Callee::Region { executor: optim::EXECUTOR.name },
        body: Some(Arc::new(closed(block, &inputs, &members, &results))),
        arguments: vec![Arg::List(inputs)],
        results,
        executor: Some(optim::EXECUTOR.name),
        refusals: Vec::new(),
        place: members[0].place,
    };
    Some((before, region, after))
}
