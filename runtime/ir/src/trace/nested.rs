//! Views that are written inside the line that reads them: `matmul(reshape(x, shape=[16, 48]), w)`.
//!
//! The text has neither name nor type of such a view. Both follow: it is called after the first result of its reader
//! and the parameter that takes it, its rules say its type, and it is computed right before its reader. Where deletes
//! are in the program, it ends there.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Block, BoundSymbol, Callee, Pass, ValueId};
use crate::argument::Arg;
use crate::operator::{OperatorDef, RuleSet};
use crate::strided::LayoutRules;
use crate::tracer::infer;

/// Calls within one line nest no deeper.
pub const DEEPEST: usize = 4;

/// What a view is called that parameter `param` of the reader whose first result is `reader` takes; `item` is its place
/// in a list.
pub fn name_of(reader: &str, param: &str, item: Option<usize>) -> Arc<str> {
    match item {
        Some(item) => format!("{reader}.{param}.{item}").into(),
        None => format!("{reader}.{param}").into(),
    }
}

/// The tensors that a call of an operator reads, each with its parameter and its place in a list.
pub fn places<'a>(
    def: &'static OperatorDef,
    arguments: &'a [Arg<ValueId>],
) -> impl DoubleEndedIterator<Item = (&'static str, Option<usize>, ValueId)> + 'a {
    def.params.iter().zip(arguments).flat_map(|(param, argument)| {
        let list = matches!(argument, Arg::List(_));
        argument.tensors().iter().enumerate().map(move |(i, id)| (param.name, list.then_some(i), *id))
    })
}

/// Whether an operator may be called inside a line.
pub fn is_view(def: &'static OperatorDef) -> bool {
    LayoutRules::of(def).view.is_some()
}

/// Which symbols of a block are written inside others.
pub struct Nested {
    inside: Vec<bool>,
    /// The symbol that defines a value.
    by: FxHashMap<ValueId, usize>,
    /// How often symbols read a value; what is returned counts twice, so that it is never inside.
    reads: FxHashMap<ValueId, usize>,
}

impl Nested {
    /// No symbol is inside another.
    pub fn none(block: &Block) -> Nested {
        Nested { inside: vec![false; block.symbols.len()], by: FxHashMap::default(), reads: FxHashMap::default() }
    }

    /// The views of `block` that `executor` computes and that are written inside others. Of regions, `short` has those
    /// that are written short, with what is nested in their bodies. With `deletes`, views end behind their readers.
    pub fn new(block: &Block, executor: &str, short: &FxHashMap<usize, (&Block, Nested)>, deletes: bool) -> Nested {
        let mut nested = Nested::none(block);
        for (i, symbol) in block.symbols.iter().enumerate() {
            nested.by.extend(symbol.results.iter().map(|id| (*id, i)));
            if symbol.callee != Callee::Delete {
                symbol.operands().for_each(|id| *nested.reads.entry(id).or_default() += 1);
            }
        }
        block.results.iter().for_each(|id| *nested.reads.entry(*id).or_default() += 2);
        // From the last line, so that a view inside a line is found before it is asked for what is inside it alone.
        for at in (0..block.symbols.len()).rev() {
            if nested.inside[at] {
                continue;
            }
            let dying = deletes.then(|| dying(block, at));
            let mut end = at;
            let around = Around { block, executor, pass: block.symbols[at].pass, dying: dying.as_deref() };
            match short.get(&at) {
                Some((body, inner)) => nested.find_in_region(&around, at, (body, inner), &mut end),
                None => nested.find_in_call(&around, at, &mut end, 0),
            }
        }
        nested
    }

    /// Whether symbol `at` is written inside another.
    pub fn contains(&self, at: usize) -> bool {
        self.inside[at]
    }

    /// The symbol that is written in place of value `id`.
    pub fn symbol_of(&self, id: ValueId) -> Option<usize> {
        self.by.get(&id).copied().filter(|at| self.inside[*at])
    }

    /// The symbols of a block in the order of the text, each operand where it is read: a reader's, then those of what
    /// is inside it.
    pub fn occurrences<'a>(&self, block: &'a Block) -> Vec<(&'a BoundSymbol, ValueId)> {
        let mut found = Vec::new();
        for (at, symbol) in block.symbols.iter().enumerate() {
            if !self.inside[at] {
                self.occur(block, symbol, &mut found);
            }
        }
        found
    }

    fn occur<'a>(&self, block: &'a Block, symbol: &'a BoundSymbol, found: &mut Vec<(&'a BoundSymbol, ValueId)>) {
        for id in symbol.operands() {
            match self.symbol_of(id) {
                Some(at) => self.occur(block, &block.symbols[at], found),
                None => found.push((symbol, id)),
            }
        }
    }

    /// Finds what is inside the call `at`: the symbols right before it, from the last.
    fn find_in_call(&mut self, around: &Around<'_>, at: usize, end: &mut usize, depth: usize) {
        let symbol = &around.block.symbols[at];
        let Some(def) = symbol.operator() else { return };
        let Some(reader) = symbol.results.first().and_then(|id| around.block.values.get(id.index())) else { return };
        for (param, item, id) in places(def, &symbol.arguments).rev() {
            self.take(around, id, &name_of(&reader.name, param, item), end, depth);
        }
    }

    /// Finds what is inside the lines of a region's body.
    fn find_in_region(&mut self, around: &Around<'_>, at: usize, (body, inner): (&Block, &Nested), end: &mut usize) {
        let operands: FxHashMap<ValueId, ValueId> =
            body.parameters.iter().copied().zip(around.block.symbols[at].operands()).collect();
        let occurrences = inner.occurrences(body);
        let mut times: FxHashMap<ValueId, usize> = FxHashMap::default();
        occurrences.iter().for_each(|(_, id)| *times.entry(*id).or_default() += 1);
        for (line, id) in occurrences.iter().rev().filter(|(_, id)| times[id] == 1) {
            let Some(operand) = operands.get(id) else { continue };
            let (Some(def), Some(first)) = (line.operator(), line.results.first()) else { continue };
            let Some((param, item, _)) = places(def, &line.arguments).find(|(_, _, read)| read == id) else { continue };
            self.take(around, *operand, &name_of(&body.value(*first).name, param, item), end, 0);
        }
    }

    /// Takes the symbol before `end` inside, if it is the view `id`, called `name`.
    fn take(&mut self, around: &Around<'_>, id: ValueId, name: &str, end: &mut usize, depth: usize) {
        let Some(at) = end.checked_sub(1).filter(|_| depth < DEEPEST) else { return };
        let symbol = &around.block.symbols[at];
        if symbol.results[..] != [id] || self.reads.get(&id) != Some(&1) || !around.allows(symbol, id, name) {
            return;
        }
        self.inside[at] = true;
        *end = at;
        self.find_in_call(around, at, end, depth + 1);
    }
}

/// What the views of a block must fit.
struct Around<'a> {
    block: &'a Block,
    executor: &'a str,
    /// The pass of the line.
    pass: Pass,
    /// What ends behind the line, if anything ends in this program.
    dying: Option<&'a [ValueId]>,
}

impl Around<'_> {
    fn allows(&self, symbol: &BoundSymbol, id: ValueId, name: &str) -> bool {
        let Some(def) = symbol.operator().filter(|def| is_view(def)) else { return false };
        let same = symbol.executor == Some(self.executor) && symbol.pass == self.pass;
        let plain = same && symbol.body.is_none() && symbol.refusals.is_empty();
        let plain = plain && symbol.schedule.is_plain();
        let ends = self.dying.is_none_or(|dying| dying.binary_search(&id).is_ok());
        let value = self.block.value(id);
        let known = symbol.operands().all(|id| id.index() < self.block.values.len());
        plain && ends && known && &*value.name == name && meta(def, self.block, symbol).as_ref() == Some(&value.meta)
    }
}

/// The type of the one result of a call, by its rules.
fn meta(def: &'static OperatorDef, block: &Block, symbol: &BoundSymbol) -> Option<crate::meta::TensorMeta> {
    let (metas, _) = infer(def, &block.argument_metas(symbol)).ok()?;
    <[_; 1]>::try_from(metas).ok().map(|[meta]| meta)
}

/// The values that end behind symbol `at`, if the text can say so: they are listed in their order.
fn dying(block: &Block, at: usize) -> Vec<ValueId> {
    let Some(delete) = block.symbols.get(at + 1).filter(|symbol| symbol.callee == Callee::Delete) else {
        return Vec::new();
    };
    let tensors = delete.arguments.iter().all(|argument| matches!(argument, Arg::Tensor(_)));
    let ids: Vec<ValueId> = delete.operands().collect();
    if tensors && ids.is_sorted_by(|a, b| a < b) { ids } else { Vec::new() }
}
