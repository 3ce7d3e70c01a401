//! Updates of parameters that do not depend on each other become one region, and with them what only widens a gradient
//! for its update: the kernel reads gradients of 16 bits as they are.

use std::sync::Arc;

use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::rules::{Arg, Claim};
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, Results, ValueId, print_symbol};
use rustc_hash::{FxHashMap, FxHashSet};

use super::adamw::is_update;
use super::optim;
use fulgurite_executor_regions::grouping::closed;
use fulgurite_executor_regions::widening::widened;
use fulgurite_ops::optim::adamw::ARGUMENTS;

fn is_our_update(symbol: &BoundSymbol) -> bool {
    is_update(symbol) && symbol.executor == Some(optim::EXECUTOR.name)
}

/// The symbols among `lines` that widen a gradient whose only reader is one of `updates`.
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

/// Whether a region is a list of updates that do not read each other's results, and before them what widens their
/// gradients: what the kernels take it for.
pub fn admits(body: &Block) -> Claim {
    let mut widened_values: FxHashSet<ValueId> = FxHashSet::default();
    let mut written: Vec<ValueId> = Vec::new();
    for symbol in &body.symbols {
        let outside = |id: &ValueId| body.parameters.contains(id);
        if symbol.executor != Some(optim::EXECUTOR.name) {
            return Err(format!("'{}' is not claimed by it", print_symbol(body, symbol)));
        }
        if let Some((from, to)) = widened(body, symbol) {
            if !outside(&from) {
                return Err(format!("'{}' widens what the region computes", print_symbol(body, symbol)));
            }
            widened_values.insert(to);
            continue;
        }
        if !is_our_update(symbol) {
            return Err(format!("'{}' is no update of a parameter", print_symbol(body, symbol)));
        }
        let gradient = *ARGUMENTS.grad.read(&symbol.arguments);
        for id in symbol.operands() {
            let reads_gradient = id == gradient && widened_values.contains(&id);
            if !outside(&id) && !reads_gradient {
                return Err(format!("'{}' reads what another line computes", print_symbol(body, symbol)));
            }
        }
        if symbol.operands().filter(|id| *id == gradient).count() > 1 && widened_values.contains(&gradient) {
            return Err(format!("'{}' reads its widened gradient as something else", print_symbol(body, symbol)));
        }
        written.extend(symbol.results.iter().copied());
    }
    if written != body.results {
        return Err("it does not give the results of its updates, in their order".into());
    }
    Ok(())
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
    let mut members: Vec<BoundSymbol> = Vec::new();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    // What is computed from the members' results, and these themselves.
    let mut fed: FxHashSet<ValueId> = FxHashSet::default();
    let mut ordered_after = false;
    for symbol in lines {
        // Collectives keep their order.
        let depends = symbol.operands().any(|id| fed.contains(&id))
            || (ordered_after && symbol.is_ordered() && !is_our_update(symbol));
        ordered_after |= depends && symbol.is_ordered();
        if depends || (is_our_update(symbol) && !members.is_empty()) {
            fed.extend(symbol.results.iter().copied());
        }
        match (depends, is_our_update(symbol)) {
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
    let (place, pass) = (members[0].place, members[members.len() - 1].pass);
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
        pass,
        executor: Some(optim::EXECUTOR.name),
        schedule: Default::default(),
        refusals: Vec::new(),
        place,
    };
    Some((before, region, after))
}
