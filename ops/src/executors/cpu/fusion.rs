//! Fusion on the host: elementwise arithmetic, broadcasts and row reductions become one pass over memory.
//!
//! A region has an *iteration shape*. Its values are *full* (of that shape) or *rows* (one value for each row, with the last
//! extent missing or one). Rows come from reductions over the last dimension, and `broadcast_in_dim` makes them full again.

use std::sync::Arc;

use fulgurite::argument::map_arguments;
use fulgurite::executor::{HostKernel, Strided};
use fulgurite::rules::fulgurite_kernels::Reduction;
use fulgurite::rules::fulgurite_kernels::fused::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
use fulgurite::rules::fulgurite_kernels::scalar::ScalarNode;
use fulgurite::rules::*;
use fulgurite::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use fulgurite::transforms::Fuel;
use fulgurite::{DType, TensorMeta};
use rustc_hash::{FxHashMap, FxHashSet};

/// The executor's name.
const CPU: &str = "cpu";
/// How many symbols after a region's first one are looked at.
const WINDOW: usize = 160;
/// The largest region; beyond it tiles no longer fit the cache.
const LARGEST: usize = 48;

/// What a fusable symbol does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Arithmetic from a `scalar` rule.
    Elementwise,
    /// `prims::convert_element_type`.
    Convert,
    /// `prims::sum`, `amax`, `amin` over the last dimension.
    Reduce(Reduction),
    /// `prims::reshape` that adds or removes a last extent of one.
    Reshape,
    /// `prims::broadcast_in_dim` from rows.
    Broadcast,
}

/// Whether a value has an element for each element of the iteration, or one for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Full,
    Row,
}

fn kind_of(block: &Block, symbol: &BoundSymbol) -> Option<Kind> {
    let def = symbol.operator()?;
    if symbol.executor != Some(CPU) || symbol.results.len() != 1 {
        return None;
    }
    let operand = symbol.operands().next()?;
    let shape = block.meta(operand).shape();
    let reduction = |reduction| {
        let dims = attribute(symbol, "dims")?;
        (dims == [shape.len() as i64 - 1] && !shape.is_empty() && block.meta(symbol.results[0]).dtype() != DType::Bool)
            .then_some(Kind::Reduce(reduction))
    };
    match def.name {
        "prims::convert_element_type" => Some(Kind::Convert),
        "prims::sum" => reduction(Reduction::Sum),
        "prims::amax" => reduction(Reduction::Max),
        "prims::amin" => reduction(Reduction::Min),
        "prims::reshape" => Some(Kind::Reshape),
        "prims::broadcast_in_dim" => Some(Kind::Broadcast),
        _ => def.scalar.map(|_| Kind::Elementwise),
    }
}

fn attribute(symbol: &BoundSymbol, name: &str) -> Option<Vec<i64>> {
    match symbol.arguments.get(symbol.operator()?.param(name)?)? {
        Arg::Attribute(attribute) => Vec::<i64>::from_attribute(attribute),
        _ => None,
    }
}

/// Whether `shape` is that of one value a row: the last extent missing, or one.
fn is_row_shape(shape: &[usize], iteration: &[usize]) -> bool {
    let Some((_, outer)) = iteration.split_last() else { return false };
    shape == outer || (shape.len() == iteration.len() && shape.split_last() == Some((&1, outer)))
}

/// A region being gathered.
struct Region<'a> {
    block: &'a Block,
    iteration: Vec<usize>,
    /// Indices of the members' symbols, in order.
    members: Vec<usize>,
    /// The space of each value that a member defines. (Regions see few of a program's values.)
    spaces: FxHashMap<ValueId, Space>,
}

impl<'a> Region<'a> {
    /// The space of a member's result if `symbol` can join, given what the region computes already.
    fn admits(&self, symbol: &BoundSymbol, kind: Kind) -> Option<Space> {
        let result = self.block.meta(symbol.results[0]).shape();
        let inside = |id: ValueId| self.spaces.get(&id).copied();
        // An outside operand is read in the space that its shape allows.
        let space = |id: ValueId| {
            inside(id).or_else(|| {
                let shape = self.block.meta(id).shape();
                if shape == self.iteration {
                    Some(Space::Full)
                } else {
                    is_row_shape(shape, &self.iteration).then_some(Space::Row)
                }
            })
        };
        let operand = symbol.operands().next()?;
        match kind {
            Kind::Elementwise | Kind::Convert => {
                let spaces: Vec<Space> = symbol.operands().map(space).collect::<Option<_>>()?;
                let full = spaces.contains(&Space::Full);
                // Operands have one shape; a mixture would be a row shape that equals the iteration shape by chance.
                (spaces.iter().all(|s| *s == spaces[0])).then_some(if full { Space::Full } else { Space::Row })
            }
            Kind::Reduce(_) => (space(operand)? == Space::Full).then_some(Space::Row),
            Kind::Reshape => {
                (inside(operand)? == Space::Row && is_row_shape(result, &self.iteration)).then_some(Space::Row)
            }
            Kind::Broadcast => {
                let rank = self.block.meta(operand).rank() as i64;
                let dims = attribute(symbol, "dims")?;
                let aligned = dims == (0..rank).collect::<Vec<_>>();
                (inside(operand)? == Space::Row && result == self.iteration && aligned).then_some(Space::Full)
            }
        }
    }
}

/// Groups the symbols that this executor claimed into regions.
pub fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
    let mut block = block.clone();
    // How often each value is read. Regions gather reads, but a value that was read outside stays read outside.
    let mut reads = vec![0u32; block.values.len()];
    for id in block.symbols.iter().flat_map(BoundSymbol::operands).chain(block.results.iter().copied()) {
        reads[id.index()] += 1;
    }
    // What each symbol does, kept in step with the symbols.
    let mut kinds: Vec<Option<Kind>> = block.symbols.iter().map(|symbol| kind_of(&block, symbol)).collect();
    let mut at = 0;
    while at < block.symbols.len() {
        match gather(&block, &kinds, at) {
            Some(members) if fuel.burn() => at = write(&mut block, &mut kinds, &members, &reads),
            _ => at += 1,
        }
    }
    block
}

/// The members of a region that starts with symbol `first`, if it is worth one.
fn gather(block: &Block, kinds: &[Option<Kind>], first: usize) -> Option<Vec<usize>> {
    let seed = &block.symbols[first];
    let kind = kinds[first]?;
    let operand = seed.operands().next()?;
    let iteration = match kind {
        Kind::Elementwise | Kind::Convert => block.meta(seed.results[0]).shape(),
        Kind::Reduce(_) => block.meta(operand).shape(),
        Kind::Reshape | Kind::Broadcast => return None,
    };
    // Of no elements nothing is saved, and a reduction of nothing still has results to write.
    if iteration.contains(&0) {
        return None;
    }
    let mut region = Region { block, iteration: iteration.to_vec(), members: Vec::new(), spaces: FxHashMap::default() };
    // Values computed outside from what the region computes: a member must not read them.
    let mut tainted: FxHashSet<ValueId> = FxHashSet::default();
    let end = (first + WINDOW).min(block.symbols.len());
    for (i, (symbol, kind)) in (first..).zip(block.symbols[first..end].iter().zip(&kinds[first..end])) {
        let clean = !symbol.operands().any(|id| tainted.contains(&id));
        let space = (clean && region.members.len() < LARGEST)
            .then(|| kind.and_then(|kind| region.admits(symbol, kind)))
            .flatten();
        match space {
            Some(space) => {
                region.spaces.insert(symbol.results[0], space);
                region.members.push(i);
            }
            None => {
                let depends = !clean || symbol.operands().any(|id| region.spaces.contains_key(&id));
                if depends {
                    tainted.extend(symbol.results.iter().copied());
                }
            }
        }
    }
    let members = connected(block, &region.members);
    let work = members.iter().filter(|i| !matches!(kinds[**i], Some(Kind::Reshape | Kind::Broadcast) | None)).count();
    (work >= 2).then_some(members)
}

/// Those members that share a value with the first one, directly or through others.
fn connected(block: &Block, members: &[usize]) -> Vec<usize> {
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
        let symbol = &block.symbols[*i];
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            // Numbers from outside are read by everyone and connect nothing.
            if block.meta(id).len() <= 1 && !owner.contains_key(&id) && !symbol.results.contains(&id) {
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

/// Puts one region in the place of its members. What it does not feed goes before it, what it feeds after it. `reads` counts
/// the reads of each value. Returns the index after the region.
fn write(block: &mut Block, kinds: &mut Vec<Option<Kind>>, members: &[usize], reads: &[u32]) -> usize {
    let (first, last) = (members[0], members[members.len() - 1]);
    let mut defined: FxHashSet<ValueId> = FxHashSet::default();
    let mut fed: FxHashSet<ValueId> = FxHashSet::default();
    let (mut before, mut inside, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kinds_before, mut kinds_after) = (Vec::new(), Vec::new());
    let old_kinds: Vec<Option<Kind>> = kinds.splice(first..=last, std::iter::empty()).collect();
    let mut next_member = members.iter().copied().peekable();
    let symbols: Vec<BoundSymbol> = block.symbols.splice(first..=last, std::iter::empty()).collect();
    for ((i, symbol), kind) in (first..).zip(symbols).zip(old_kinds) {
        if next_member.next_if_eq(&i).is_some() {
            defined.extend(symbol.results.iter().copied());
            inside.push(symbol);
        } else if symbol.operands().any(|id| defined.contains(&id) || fed.contains(&id)) {
            fed.extend(symbol.results.iter().copied());
            after.push(symbol);
            kinds_after.push(kind);
        } else {
            before.push(symbol);
            kinds_before.push(kind);
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
    let body = closed(block, &inputs, &inside, &outputs);
    let region = BoundSymbol {
        callee: Callee::Region { executor: CPU },
        arguments: vec![Arg::List(inputs)],
        results: outputs,
        body: Some(Arc::new(body)),
        executor: Some(CPU),
        refusals: Vec::new(),
        place: inside.first().and_then(|symbol| symbol.place),
    };
    let next = first + before.len() + 1;
    kinds.splice(first..first, kinds_before.into_iter().chain(std::iter::once(None)).chain(kinds_after));
    block.symbols.splice(first..first, before.into_iter().chain(std::iter::once(region)).chain(after));
    next
}

/// The symbols of a region as a block of their own, with the values they use and no others.
fn closed(block: &Block, inputs: &[ValueId], symbols: &[BoundSymbol], outputs: &Results) -> Block {
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
            ..symbol.clone()
        })
        .collect();
    body.results = outputs.iter().map(mapped).collect();
    body
}

/// The kernel of a region: its body as a fused program for the layouts at hand.
pub fn prepare_region(body: &Block, operands: &[Strided], results: &[Strided]) -> Result<HostKernel> {
    let broken = |what: &str| Failure::new("Region", format!("a region of the cpu executor {what}"));
    let iteration = iteration_shape(body).ok_or_else(|| broken("is empty"))?;
    let mut nodes: Vec<FusedNode> = Vec::new();
    let mut known: Vec<Option<u32>> = vec![None; body.values.len()];
    let mut push = |node: FusedNode| {
        nodes.push(node);
        (nodes.len() - 1) as u32
    };
    for (i, parameter) in body.parameters.iter().enumerate() {
        known[parameter.index()] = Some(push(FusedNode::Input(i as u32)));
    }
    for symbol in &body.symbols {
        let kind = kind_of(body, symbol).ok_or_else(|| broken("holds a symbol that cannot be fused"))?;
        let arguments: Vec<u32> = symbol
            .operands()
            .map(|id| known[id.index()].ok_or_else(|| broken("reads a value that it does not define")))
            .collect::<Result<_>>()?;
        let dtype = body.meta(symbol.results[0]).dtype();
        let node = match kind {
            Kind::Reshape | Kind::Broadcast => arguments[0],
            Kind::Convert => push(FusedNode::Convert(dtype, arguments[0])),
            Kind::Reduce(reduction) => push(FusedNode::Reduce(reduction, arguments[0])),
            Kind::Elementwise => {
                let rule = symbol.operator().and_then(|def| def.scalar).ok_or_else(|| broken("lost a scalar rule"))?;
                let (program, numbers) = rule(&body.argument_metas(symbol));
                let mut local: Vec<u32> = Vec::with_capacity(program.nodes.len());
                for node in &program.nodes {
                    local.push(match *node {
                        ScalarNode::Input(input) => arguments[input as usize],
                        ScalarNode::Number(number) => push(FusedNode::Constant(numbers[number as usize])),
                        ScalarNode::Constant(value) => push(FusedNode::Constant(value)),
                        ScalarNode::Apply(op, operands) => {
                            // Unused operands are 0, which may not exist yet in this program's numbering.
                            let mut mapped = [0; 3];
                            for (slot, operand) in mapped.iter_mut().zip(operands).take(op.arity()) {
                                *slot = local[operand as usize];
                            }
                            push(FusedNode::Apply(op, mapped))
                        }
                    });
                }
                let result = local[program.results[0] as usize];
                // Narrow integers wrap after every operation, as they do when each result is stored.
                if dtype == DType::I32 || dtype == DType::U8 { push(FusedNode::Convert(dtype, result)) } else { result }
            }
        };
        known[symbol.results[0].index()] = Some(node);
    }
    let outputs: Vec<(u32, DType)> = body
        .results
        .iter()
        .map(|id| {
            Ok((
                known[id.index()].ok_or_else(|| broken("returns a value that it does not define"))?,
                body.meta(*id).dtype(),
            ))
        })
        .collect::<Result<_>>()?;
    let program =
        FusedProgram { input_dtypes: operands.iter().map(|operand| operand.meta.dtype()).collect(), nodes, outputs };
    let inputs: Vec<(Vec<usize>, Vec<isize>)> =
        operands.iter().map(|operand| (iteration.clone(), seen_in(operand, &iteration))).collect();
    let stored: Vec<(Vec<usize>, Vec<isize>)> = results.iter().map(|result| stored_in(result, &iteration)).collect();
    let input_strides: Vec<&[isize]> = inputs.iter().map(|(_, strides)| &strides[..]).collect();
    let layouts: Vec<OutputLayout<'_>> =
        stored.iter().map(|(shape, strides)| OutputLayout { shape, strides }).collect();
    let kernel = FusedKernel::new(&program, &iteration, &input_strides, &layouts);
    Ok(Box::new(move |operands, results| {
        let lost = || Failure::new("Region", "an operand does not have the layout that the region was compiled for");
        let operands = operands
            .iter()
            .zip(&inputs)
            .map(|(operand, (shape, strides))| operand.reshaped(shape, strides).ok_or_else(lost))
            .collect::<Result<Vec<_>>>()?;
        let mut results = results
            .iter_mut()
            .zip(&stored)
            .map(|(result, (shape, strides))| result.reshaped(shape, strides).ok_or_else(lost))
            .collect::<Result<Vec<_>>>()?;
        kernel.run(&operands, &mut results);
        Ok(())
    }))
}

/// The shape that a region iterates over: that of the operand of a reduction, otherwise of the first symbol's result.
fn iteration_shape(body: &Block) -> Option<Vec<usize>> {
    let reduced = body.symbols.iter().find(|symbol| matches!(kind_of(body, symbol), Some(Kind::Reduce(_))));
    let value = match reduced {
        Some(symbol) => symbol.operands().next()?,
        None => body
            .symbols
            .iter()
            .map(|symbol| symbol.results[0])
            .max_by_key(|id| (body.meta(*id).rank(), body.meta(*id).shape().to_vec()))?,
    };
    Some(body.meta(value).shape().to_vec())
}

/// Strides of an operand seen in the iteration shape; a value per row is repeated along the last dimension.
fn seen_in(operand: &Strided, iteration: &[usize]) -> Vec<isize> {
    let mut strides = operand.strides.clone();
    if operand.meta.shape() != iteration {
        strides.truncate(iteration.len() - 1);
        strides.push(0);
    }
    strides
}

/// Shape and strides of a result in the form that the fused kernel stores.
fn stored_in(result: &Strided, iteration: &[usize]) -> (Vec<usize>, Vec<isize>) {
    let meta: &TensorMeta = &result.meta;
    let (mut shape, mut strides) = (meta.shape().to_vec(), result.strides.clone());
    if shape.len() < iteration.len() {
        shape.push(1);
        strides.push(1);
    }
    (shape, strides)
}
