//! What a forward program saves for its backward program, in the type that it was computed in.
//!
//! Mixed precision computes a loss in f32 of the logits that a product gave in bf16. The derivative reads them in f32,
//! so that the forward program would save them with twice their bytes, beside the product's own. Here the backward pass
//! has a conversion of its own, and what is saved is what was converted. The bits are the same, and the conversion goes
//! into the kernel that reads it. Logits are the largest values of a language model's step.

use std::sync::Arc;

use fulgurite::argument::map_arguments;
use fulgurite::compile::{Place, UserTransform};
use fulgurite::operator::{Role, RuleSet};
use fulgurite::registry::role;
use fulgurite::strided::LayoutRules;
use fulgurite::trace::{Block, BoundSymbol, Pass, Results, Trace, ValueId};
use fulgurite::transforms::recompute::FROM_BYTES;

/// The transform of programs that become forward and backward.
pub(crate) fn narrow() -> UserTransform {
    UserTransform::new("narrow", |trace: &Trace| Ok(narrowed(trace))).at(Place::AfterAutodiff)
}

/// The differentiated trace whose backward pass converts again what the forward pass converted to a wider type, if that
/// is large, and nobody but the backward pass needs it behind the forward pass.
fn narrowed(trace: &Trace) -> Trace {
    let source = &trace.block;
    let forward = forward_lines(source);
    let again = again(source, &forward);
    if !again.contains(&true) {
        return trace.clone();
    }
    let mut producers = vec![None; source.values.len()];
    for (i, symbol) in source.symbols.iter().enumerate() {
        symbol.results.iter().for_each(|id| producers[id.index()] = Some(i));
    }
    let copies = vec![None; source.values.len()];
    let block = Block { symbols: Vec::with_capacity(source.symbols.len()), ..source.clone() };
    let mut writer = Writer { source, again, producers, copies, block };
    for (symbol, forward) in source.symbols.iter().zip(forward) {
        let arguments = match forward {
            true => symbol.arguments.clone(),
            false => map_arguments(&symbol.arguments, |id| writer.read(*id)),
        };
        writer.block.symbols.push(BoundSymbol { arguments, ..symbol.clone() });
    }
    Trace { block: writer.block.canonical(), ..trace.clone() }
}

/// Which lines the forward program will have: those that the function's own results need. Others that were written for
/// the forward pass, such as statistics that gradients alone read, become lines of the backward program.
fn forward_lines(block: &Block) -> Vec<bool> {
    let mut needed = vec![false; block.values.len()];
    block.results.iter().for_each(|id| needed[id.index()] = true);
    let mut forward = vec![false; block.symbols.len()];
    for (i, symbol) in block.symbols.iter().enumerate().rev() {
        let effect = || symbol.operator().is_some_and(|def| !def.effects.removable());
        forward[i] = symbol.pass == Pass::Forward && (symbol.results.iter().any(|id| needed[id.index()]) || effect());
        if forward[i] {
            symbol.operands().for_each(|id| needed[id.index()] = true);
        }
    }
    forward
}

/// Whether a line is a view that may be made twice.
fn is_view(symbol: &BoundSymbol) -> bool {
    symbol.operator().is_some_and(|def| LayoutRules::of(def).view.is_some() && def.effects.mergeable())
}

/// For each value whether the backward pass makes it again: results of such conversions, and views of them.
fn again(block: &Block, forward: &[bool]) -> Vec<bool> {
    let Ok(convert) = role(Role::Convert) else { return vec![false; block.values.len()] };
    let bytes = |id: ValueId| block.meta(id).bytes() as u64;
    // The value all of whose elements each one shows.
    let mut whole: Vec<ValueId> = (0..block.values.len() as u32).map(ValueId).collect();
    let mut read = vec![false; block.values.len()];
    for (symbol, forward) in block.symbols.iter().zip(forward) {
        if !forward {
            symbol.operands().for_each(|id| read[whole[id.index()].index()] = true);
        } else if let (true, Some(operand), [result]) = (is_view(symbol), symbol.operands().next(), &symbol.results[..])
            && block.meta(operand).len() == block.meta(*result).len()
        {
            whole[result.index()] = whole[operand.index()];
        }
    }
    // What is returned is there in any case, and what it is a view of.
    let mut returned = vec![false; block.values.len()];
    block.results.iter().for_each(|id| returned[id.index()] = true);
    for symbol in block.symbols.iter().rev().filter(|symbol| is_view(symbol)) {
        if symbol.results.iter().any(|id| returned[id.index()]) {
            symbol.operands().for_each(|id| returned[id.index()] = true);
        }
    }
    let converts = |symbol: &BoundSymbol| symbol.operator().is_some_and(|def| std::ptr::eq(def, convert));
    let of = |operand: ValueId, result: ValueId| (operand, block.meta(result).dtype());
    // Two conversions of one value become one later.
    let given_out: Vec<_> = (block.symbols.iter().filter(|symbol| converts(symbol)))
        .filter_map(|symbol| Some((symbol.operands().next()?, *symbol.results.first()?)))
        .filter(|(_, result)| returned[result.index()])
        .map(|(operand, result)| of(operand, result))
        .collect();
    let mut again = vec![false; block.values.len()];
    for (symbol, _) in block.symbols.iter().zip(forward).filter(|(_, forward)| **forward) {
        let (Some(operand), [result]) = (symbol.operands().next(), &symbol.results[..]) else { continue };
        let wider = converts(symbol) && bytes(operand) < bytes(*result) && bytes(*result) >= FROM_BYTES;
        let wanted = wider && read[result.index()] && !given_out.contains(&of(operand, *result));
        again[result.index()] = wanted || (is_view(symbol) && again[operand.index()]);
    }
    again
}

/// Writes conversions and views again where the backward pass first reads them.
struct Writer<'a> {
    source: &'a Block,
    again: Vec<bool>,
    producers: Vec<Option<usize>>,
    copies: Vec<Option<ValueId>>,
    block: Block,
}

impl Writer<'_> {
    /// The value as the backward pass reads it.
    fn read(&mut self, id: ValueId) -> ValueId {
        if let Some(copy) = self.copies[id.index()] {
            return copy;
        }
        let Some(producer) = self.producers[id.index()].filter(|_| self.again[id.index()]) else { return id };
        let symbol = &self.source.symbols[producer];
        let arguments = map_arguments(&symbol.arguments, |id| self.read(*id));
        let value = self.source.value(id);
        let mut name: Arc<str> = format!("grad.again.{}", value.name).into();
        while self.block.values.iter().any(|value| value.name == name) {
            name = format!("{name}.wide").into();
        }
        let copy = self.block.define(name, value.meta.clone());
        self.copies[id.index()] = Some(copy);
        let results = Results::from_slice(&[copy]);
        self.block.symbols.push(BoundSymbol { arguments, results, pass: Pass::Recomputed, ..symbol.clone() });
        copy
    }
}
