//! Forward and backward as two programs.

use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::BACKWARD;
use crate::argument::map_arguments;
use crate::trace::{Block, BoundSymbol, Input, InputRole, Output, Pass, Results, StageName, Trace, ValueId};
use crate::transforms::dce;

/// As [`split`], for two programs that are run one after the other: of what the forward pass makes only those values
/// are saved that cost something to make. Numbers that the program knows, and views, are made again of what they are
/// made of. Where views are read of a value, and nothing else, they are saved instead of it if they are much smaller.
pub fn split_programs(joint: &Trace, outputs: usize) -> (Trace, Trace) {
    split(&with_views_again(joint, outputs), outputs)
}

/// The joint trace in which the backward pass has copies of its own of the numbers and views that it reads of the
/// forward pass.
fn with_views_again(joint: &Trace, outputs: usize) -> Trace {
    let source = &joint.block;
    let forward = forward_symbols(source, outputs);
    let mut producers: Vec<Option<usize>> = vec![None; source.values.len()];
    for (i, symbol) in source.symbols.iter().enumerate() {
        symbol.results.iter().for_each(|id| producers[id.index()] = Some(i));
    }
    let numbers = numbers_of(source);
    let repeatable: Vec<bool> = source
        .symbols
        .iter()
        .zip(numbers)
        .map(|(symbol, number)| {
            let cheap =
                symbol.operator().is_some_and(|def| LayoutRules::of(def).view.is_some() && def.effects.mergeable());
            let number = number && symbol.operator().is_some_and(|def| def.effects.mergeable());
            (cheap || number) && symbol.results.len() == 1
        })
        .collect();
    let parts = parts_to_save(source, outputs, &forward, &producers, &repeatable);
    let mut again = Again {
        source,
        parts,
        block: Block { symbols: Vec::with_capacity(source.symbols.len()), ..source.clone() },
        producers,
        forward: &forward,
        repeatable,
        copies: vec![None; source.values.len()],
        names: source.values.iter().map(|value| value.name.clone()).collect(),
    };
    for (i, symbol) in source.symbols.iter().enumerate() {
        let arguments = match forward[i] {
            true => symbol.arguments.clone(),
            false => map_arguments(&symbol.arguments, |id| again.read(*id)),
        };
        again.block.symbols.push(BoundSymbol { arguments, ..symbol.clone() });
    }
    for i in outputs..source.results.len() {
        again.block.results[i] = again.read(source.results[i]);
    }
    let block = again.block.canonical();
    Trace { block, ..joint.clone() }
}

/// Which symbols compute numbers that the program knows: from nothing, or from such numbers.
fn numbers_of(block: &Block) -> Vec<bool> {
    let mut known = vec![false; block.values.len()];
    block
        .symbols
        .iter()
        .map(|symbol| {
            let number = symbol.operands().all(|id| known[id.index()]);
            symbol.results.iter().for_each(|id| known[id.index()] = number);
            number
        })
        .collect()
}

/// Views are saved, each in memory of its own, instead of the value that they show parts of if they take up no more
/// than this part of its memory together.
const PART: usize = 2;

/// Views of the forward pass that are saved instead of what they show, by value.
fn parts_to_save(
    source: &Block,
    outputs: usize,
    forward: &[bool],
    producers: &[Option<usize>],
    repeatable: &[bool],
) -> Vec<bool> {
    let again = |id: ValueId| producers[id.index()].filter(|i| forward[*i] && repeatable[*i]);
    let bytes = |id: ValueId| source.meta(id).bytes();
    // By the value that is shown: its parts that the backward pass reads, or `None` if it reads more than parts.
    let mut shown: FxHashMap<ValueId, Option<Vec<ValueId>>> = FxHashMap::default();
    let backward = source.symbols.iter().enumerate().filter(|(i, _)| !forward[*i]);
    for id in backward.flat_map(|(_, symbol)| symbol.operands()).chain(source.results[outputs..].iter().copied()) {
        let (mut root, mut least) = (id, id);
        while let Some(next) = again(root).and_then(|maker| source.symbols[maker].operands().next()) {
            root = next;
            if bytes(root) <= bytes(least) {
                least = root;
            }
        }
        // A number is made again of nothing.
        if again(root).is_some() {
            continue;
        }
        let parts = shown.entry(root).or_insert_with(|| Some(Vec::new()));
        match parts {
            _ if least == root => *parts = None,
            Some(parts) if !parts.contains(&least) => parts.push(least),
            _ => {}
        }
    }
    let mut save = vec![false; source.values.len()];
    for (root, parts) in shown {
        let parts = parts.unwrap_or_default();
        if parts.iter().map(|id| bytes(*id)).sum::<usize>().saturating_mul(PART) <= bytes(root) {
            parts.iter().for_each(|id| save[id.index()] = true);
        }
    }
    save
}

/// Writes copies of numbers and views where the backward pass first reads them.
struct Again<'a> {
    source: &'a Block,
    /// Views that are saved as they are.
    parts: Vec<bool>,
    block: Block,
    producers: Vec<Option<usize>>,
    forward: &'a [bool],
    repeatable: Vec<bool>,
    copies: Vec<Option<ValueId>>,
    names: FxHashSet<Arc<str>>,
}

impl Again<'_> {
    /// The value as the backward pass reads it.
    fn read(&mut self, id: ValueId) -> ValueId {
        if let Some(copy) = self.copies[id.index()] {
            return copy;
        }
        let saved = self.parts[id.index()];
        let producer = self.producers[id.index()].filter(|i| !saved && self.forward[*i] && self.repeatable[*i]);
        let Some(producer) = producer else { return id };
        let symbol = &self.source.symbols[producer];
        let arguments = map_arguments(&symbol.arguments, |id| self.read(*id));
        let value = self.source.value(id);
        let mut name: Arc<str> = format!("{BACKWARD}.again.{}", value.name).into();
        while !self.names.insert(name.clone()) {
            name = format!("{name}.view").into();
        }
        let copy = self.block.define(name, value.meta.clone());
        self.copies[id.index()] = Some(copy);
        let results = Results::from_slice(&[copy]);
        self.block.symbols.push(BoundSymbol { arguments, results, pass: Pass::Recomputed, ..symbol.clone() });
        copy
    }
}

/// Which symbols the first `outputs` results need, and those that have an effect of their own in the forward pass.
fn forward_symbols(block: &Block, outputs: usize) -> Vec<bool> {
    let mut needed = vec![false; block.values.len()];
    block.results[..outputs].iter().for_each(|id| needed[id.index()] = true);
    let mut forward = vec![false; block.symbols.len()];
    for (i, symbol) in block.symbols.iter().enumerate().rev() {
        // What has an effect of its own is done where the author wrote it.
        let effect = symbol.pass == Pass::Forward && symbol.operator().is_some_and(|def| !def.effects.removable());
        forward[i] = effect || symbol.results.iter().any(|id| needed[id.index()]);
        if forward[i] {
            symbol.operands().for_each(|id| needed[id.index()] = true);
        }
    }
    forward
}

/// Splits a joint trace into forward and backward. `outputs` is how many results of the joint trace are the function's
/// own. The forward trace returns these and the values it saves; the backward trace takes the saved values and the
/// cotangents.
pub fn split(joint: &Trace, outputs: usize) -> (Trace, Trace) {
    let block = &joint.block;
    let forward_results = &block.results[..outputs];
    let forward_symbols = forward_symbols(block, outputs);
    let cotangent: Vec<bool> = joint.inputs.iter().map(|input| input.role == InputRole::Cotangent).collect();
    let mut is_parameter = vec![None; block.values.len()];
    for (i, id) in block.parameters.iter().enumerate() {
        is_parameter[id.index()] = Some(i);
    }
    let backward_body: Vec<&BoundSymbol> =
        block.symbols.iter().enumerate().filter(|(i, _)| !forward_symbols[*i]).map(|(_, symbol)| symbol).collect();
    let mut defined = vec![false; block.values.len()];
    let (mut saved, mut is_saved): (Vec<ValueId>, Vec<bool>) = (Vec::new(), vec![false; block.values.len()]);
    let mut need = |id: ValueId, defined: &[bool]| {
        let is_cotangent = is_parameter[id.index()].is_some_and(|i| cotangent[i]);
        if !defined[id.index()] && !is_cotangent && !std::mem::replace(&mut is_saved[id.index()], true) {
            saved.push(id);
        }
    };
    // Symbols that nobody reads have no business in the backward trace.
    let live = dce::live(Block {
        values: block.values.clone(),
        parameters: Vec::new(),
        symbols: backward_body.into_iter().cloned().collect(),
        results: block.results[outputs..].to_vec(),
    });
    for symbol in &live.symbols {
        symbol.operands().for_each(|id| need(id, &defined));
        symbol.results.iter().for_each(|id| defined[id.index()] = true);
    }
    live.results.iter().for_each(|id| need(*id, &defined));

    let name = |id: &ValueId| block.value(*id).name.to_string();
    let plain: Vec<usize> = (0..block.parameters.len()).filter(|i| !cotangent[*i]).collect();
    let cotangents: Vec<usize> = (0..block.parameters.len()).filter(|i| cotangent[*i]).collect();
    let forward_block = Block {
        values: block.values.clone(),
        parameters: plain.iter().map(|i| block.parameters[*i]).collect(),
        symbols: block
            .symbols
            .iter()
            .enumerate()
            .filter(|(i, _)| forward_symbols[*i])
            .map(|(_, s)| s.clone())
            .collect(),
        results: forward_results.iter().chain(&saved).copied().collect(),
    };
    let mut forward = joint.at_stage(StageName::Split, forward_block);
    forward.name = format!("{}.forward", joint.name);
    forward.inputs = plain.iter().map(|i| joint.inputs[*i].clone()).collect();
    forward.outputs = joint.outputs[..outputs].to_vec();
    forward.outputs.extend(saved.iter().map(|id| Output { path: format!("saved.{}", name(id)) }));
    let backward_block = Block {
        values: block.values.clone(),
        parameters: saved.iter().copied().chain(cotangents.iter().map(|i| block.parameters[*i])).collect(),
        symbols: live.symbols,
        results: live.results,
    };
    let mut backward = joint.at_stage(StageName::Split, backward_block);
    backward.name = format!("{}.backward", joint.name);
    // An argument that is saved comes with its own strides.
    let strides = |id: &ValueId| is_parameter[id.index()].and_then(|i| joint.inputs[i].strides.clone());
    backward.inputs = saved
        .iter()
        .map(|id| Input { role: InputRole::Saved, donated: false, strides: strides(id) })
        .chain(cotangents.iter().map(|i| joint.inputs[*i].clone()))
        .collect();
    backward.outputs = joint.outputs[outputs..].to_vec();
    (forward, backward)
}
