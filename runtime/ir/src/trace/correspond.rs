//! Which line of one program is which of another: lines that compute the same of the same, whatever they are called;
//! of the others those that define the same name.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::print::print_symbol;
use super::{Block, BoundSymbol, Callee, ValueId};
use crate::argument::{Arg, map_arguments};
use crate::meta::TensorMeta;

/// For a block the lines and values of an earlier one that its own were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Correspondence {
    /// For each line the earlier line.
    pub symbols: Vec<Option<usize>>,
    /// For each value the earlier value.
    pub values: Vec<Option<ValueId>>,
}

impl Correspondence {
    /// Matches the lines of two programs, whose inputs are matched by their names, then by their places.
    pub fn of(before: &Block, after: &Block) -> Correspondence {
        let names: FxHashMap<&str, ValueId> = before.parameters.iter().map(|id| (name(before, *id), *id)).collect();
        let mut inputs: Vec<Option<ValueId>> =
            after.parameters.iter().map(|id| names.get(name(after, *id)).copied()).collect();
        for (i, found) in inputs.clone().into_iter().enumerate() {
            let Some(at) = before.parameters.get(i).filter(|at| found.is_none() && !inputs.contains(&Some(**at)))
            else {
                continue;
            };
            let alike = meta(before, *at) == meta(after, after.parameters[i]);
            inputs[i] = alike.then_some(*at);
        }
        Correspondence::with(before, after, &inputs)
    }

    /// Matches the lines of the bodies of two lines that were matched. Parameters are those of the operands.
    pub fn of_bodies(&self, was: &BoundSymbol, is: &BoundSymbol, before: &Block, after: &Block) -> Correspondence {
        let operands: Vec<ValueId> = was.operands().collect();
        let now: Vec<ValueId> = is.operands().collect();
        // The parameter of the same operand, which may have moved; of equal operands the one at the same place. Bodies
        // of traces that are not valid may have more parameters than their line has operands.
        let place = |i: usize| {
            let at = now.get(i).and_then(|id| self.values.get(id.index()).copied().flatten());
            let same = at.filter(|at| operands.get(i) != Some(at));
            let moved = same.and_then(|at| operands.iter().position(|operand| *operand == at));
            before.parameters.get(moved.unwrap_or(i)).copied()
        };
        let inputs: Vec<Option<ValueId>> = (0..after.parameters.len()).map(place).collect();
        Correspondence::with(before, after, &inputs)
    }

    fn with(before: &Block, after: &Block, inputs: &[Option<ValueId>]) -> Correspondence {
        let mut matching = Matching::of(before, after);
        for (id, input) in after.parameters.iter().zip(inputs) {
            if let (Some(value), Some(_)) = (matching.found.values.get_mut(id.index()), input) {
                *value = *input;
            }
        }
        matching.run();
        matching.found
    }

    /// The later block with the names of the earlier one; values that are new have names that no text has.
    pub fn renamed(&self, before: &Block, after: &Block) -> Block {
        let mut renamed = after.clone();
        for (value, found) in renamed.values.iter_mut().zip(&self.values) {
            value.name = match found.and_then(|id| before.values.get(id.index())) {
                Some(old) => old.name.clone(),
                None => format!("{}\u{0}", value.name).into(),
            };
        }
        renamed
    }
}

/// What a line computes: what it calls, of which earlier values, with which attributes, with results of which types.
type Key = (String, Vec<Arg<u32>>, Vec<Option<TensorMeta>>);

struct Matching<'a> {
    before: &'a Block,
    after: &'a Block,
    found: Correspondence,
    /// The earlier lines by what they compute, and by their titles.
    computing: FxHashMap<Key, Vec<usize>>,
    defining: FxHashMap<Cow<'a, str>, Vec<usize>>,
    /// The title of each later line.
    titles: Vec<Option<Cow<'a, str>>>,
    taken: Vec<bool>,
    /// What later lines define: an earlier line of such a name waits for that line.
    later: FxHashMap<&'a str, usize>,
    /// The later lines that read each value, once for each time that they read it.
    readers: Vec<Vec<usize>>,
    /// How many operands of each later line have no earlier value yet. A line is looked at when its last one has.
    missing: Vec<usize>,
}

impl<'a> Matching<'a> {
    fn of(before: &'a Block, after: &'a Block) -> Matching<'a> {
        let mut computing: FxHashMap<Key, Vec<usize>> = FxHashMap::default();
        let mut defining: FxHashMap<Cow<str>, Vec<usize>> = FxHashMap::default();
        for (i, symbol) in before.symbols.iter().enumerate() {
            computing.entry(key(before, symbol, Some)).or_default().push(i);
            if let Some(title) = title(before, symbol) {
                defining.entry(title).or_default().push(i);
            }
        }
        let (mut later, mut readers) = (FxHashMap::default(), vec![Vec::new(); after.values.len()]);
        for (i, symbol) in after.symbols.iter().enumerate() {
            if let Some(first) = symbol.results.first() {
                later.insert(name(after, *first), i);
            }
            for id in symbol.operands() {
                if let Some(readers) = readers.get_mut(id.index()) {
                    readers.push(i);
                }
            }
        }
        let found = Correspondence { symbols: vec![None; after.symbols.len()], values: vec![None; after.values.len()] };
        let (taken, missing) = (vec![false; before.symbols.len()], vec![0; after.symbols.len()]);
        let titles = after.symbols.iter().map(|symbol| title(after, symbol)).collect();
        Matching { before, after, found, computing, defining, titles, taken, later, readers, missing }
    }

    fn run(&mut self) {
        let all = self.after.symbols.len();
        for (missing, symbol) in self.missing.iter_mut().zip(&self.after.symbols) {
            *missing = symbol.operands().filter(|id| known(&self.found, *id).is_none()).count();
        }
        // What computes the same under the same name, then whatever computes the same.
        for strict in [true, false] {
            (0..all).for_each(|i| self.exactly(i, strict));
        }
        // A changed line is the one that defines the same name; what reads it may compute the same again.
        for i in 0..all {
            if self.found.symbols[i].is_none()
                && let Some(title) = &self.titles[i]
                && let Some(same) = self.defining.get(title)
                && let Some(at) = same.iter().copied().find(|at| !self.taken[*at])
            {
                self.take(i, at);
            }
        }
        (0..all).for_each(|i| self.exactly(i, false));
    }

    /// Matches a later line with one that computes the same; of several with the one of its name. A strict match leaves
    /// alone what another later line may have by its name.
    fn exactly(&mut self, i: usize, strict: bool) {
        let symbol = &self.after.symbols[i];
        if self.found.symbols[i].is_some() || self.missing[i] > 0 {
            return;
        }
        let key = key(self.after, symbol, |id| known(&self.found, id));
        let Some(candidates) = self.computing.get(&key) else { return };
        let free = || candidates.iter().copied().filter(|at| !self.taken[*at]);
        let own = symbol.results.first().map(|id| name(self.after, *id));
        let first = |at: usize| self.before.symbols[at].results.first().map(|id| name(self.before, *id));
        let named = free().find(|at| own == first(*at));
        let waited_for = |at: usize| {
            let later = first(at).and_then(|name| self.later.get(name));
            strict && later.is_some_and(|later| self.found.symbols[*later].is_none())
        };
        if let Some(at) = named.or_else(|| free().find(|at| !waited_for(*at))) {
            self.take(i, at);
        }
    }

    /// Matches two lines, and then the lines that read their results.
    fn take(&mut self, i: usize, at: usize) {
        let mut waiting = vec![(i, at)];
        while let Some((i, at)) = waiting.pop() {
            if self.found.symbols[i].is_some() || self.taken[at] {
                continue;
            }
            self.found.symbols[i] = Some(at);
            self.taken[at] = true;
            let (was, is) = (&self.before.symbols[at], &self.after.symbols[i]);
            let mut ready = Vec::new();
            for (old, new) in was.results.iter().zip(&is.results) {
                let Some(value) = self.found.values.get_mut(new.index()) else { continue };
                if value.replace(*old).is_some() {
                    continue;
                }
                for reader in &self.readers[new.index()] {
                    self.missing[*reader] -= 1;
                    if self.missing[*reader] == 0 {
                        ready.push(*reader);
                    }
                }
            }
            for reader in ready {
                // By its own name alone: others may have more of a right to what it would take.
                let Some(title) = &self.titles[reader] else { continue };
                let Some(old) = self.defining.get(title).and_then(|same| same.first().copied()) else { continue };
                let now = key(self.after, &self.after.symbols[reader], |id| known(&self.found, id));
                if now == key(self.before, &self.before.symbols[old], Some) {
                    waiting.push((reader, old));
                }
            }
        }
    }
}

/// The earlier value of a later one.
fn known(found: &Correspondence, id: ValueId) -> Option<ValueId> {
    found.values.get(id.index()).copied().flatten()
}

fn key(block: &Block, symbol: &BoundSymbol, value: impl Fn(ValueId) -> Option<ValueId>) -> Key {
    let arguments = map_arguments(&symbol.arguments, |id| value(*id).map_or(u32::MAX, |id| id.0));
    let types = symbol.results.iter().map(|id| meta(block, *id).cloned()).collect();
    let mut called = symbol.name().to_owned();
    match (&symbol.callee, &symbol.body) {
        // What a region computes is in its body alone.
        (Callee::Region { .. }, Some(body)) => {
            body.symbols.iter().for_each(|line| called.extend([" ", line.name()]));
        }
        (Callee::ValueAndGrad { wrt }, _) => called += &format!(" {wrt:?}"),
        _ => {}
    }
    (called, arguments, types)
}

/// What a line is found by if it computes something else: the first name it defines, or the text of one that defines
/// none. The end of values' lives is found by these values alone.
fn title<'a>(block: &'a Block, symbol: &BoundSymbol) -> Option<Cow<'a, str>> {
    match symbol.results.first() {
        Some(first) => Some(name(block, *first).into()),
        None if symbol.callee == Callee::Delete => None,
        // No name has a newline without being quoted.
        None => Some(format!("\n{}", print_symbol(block, &BoundSymbol { executor: None, ..symbol.clone() })).into()),
    }
}

fn name(block: &Block, id: ValueId) -> &str {
    block.values.get(id.index()).map_or("?", |value| &value.name)
}

fn meta(block: &Block, id: ValueId) -> Option<&TensorMeta> {
    block.values.get(id.index()).map(|value| &value.meta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;
    use crate::trace::test_support::{GOOD, Generator, Random};

    /// The names before of the lines after.
    fn matched(before: &str, after: &str) -> Vec<Option<String>> {
        let trace = |lines: &str| {
            parse(&format!("# fulgurite trace 2\ntrace f for cpu (x: f32[8], y: f32[8]) {{\n{lines}}}\n"))
                .unwrap()
                .block
        };
        let (before, after) = (trace(before), trace(after));
        let found = Correspondence::of(&before, &after);
        let first = |at: usize| before.symbols[at].results.first().map_or("", |id| name(&before, *id)).to_owned();
        found.symbols.iter().map(|at| at.map(first)).collect()
    }

    fn some(names: &[&str]) -> Vec<Option<String>> {
        names.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect()
    }

    #[test]
    fn a_program_corresponds_to_itself() {
        let trace = parse(GOOD).unwrap();
        let found = Correspondence::of(&trace.block, &trace.block);
        assert!(found.symbols.iter().enumerate().all(|(i, at)| *at == Some(i)), "{found:?}");
        for seed in 0..100 {
            let trace = Generator { random: Random(seed) }.trace();
            let found = Correspondence::of(&trace.block, &trace.block);
            assert!(found.symbols.iter().all(Option::is_some), "seed {seed}: {trace}");
            assert_eq!(found.renamed(&trace.block, &trace.block).values, trace.block.values);
        }
    }

    #[test]
    fn other_names_of_the_same_are_seen() {
        let before = "  a = tt::exp(x)\n  b = tt::exp(a)\n  return out = b\n";
        assert_eq!(matched(before, "  p = tt::exp(x)\n  q = tt::exp(p)\n  return out = q\n"), some(&["a", "b"]));
        // Names that are shifted by one belong to other lines.
        let after = "  a = tt::exp(y)\n  b = tt::exp(x)\n  c = tt::exp(b)\n  return out = c\n";
        assert_eq!(matched(before, after), some(&["", "a", "b"]));
    }

    #[test]
    fn a_changed_line_keeps_its_name_and_its_readers() {
        let before = "  a = tt::exp(x)\n  b = tt::exp(a)\n  c = tt::exp(b)\n  return out = c\n";
        let after = "  a = tt::exp(y)\n  b = tt::exp(a)\n  d = tt::exp(b)\n  return out = d\n";
        assert_eq!(matched(before, after), some(&["a", "b", "c"]));
    }

    /// With every operand looked at anew for each of them this takes minutes.
    #[test]
    fn a_line_that_reads_every_value_is_looked_at_once() {
        let lines: String = (0..20_000).map(|i| format!("  v{i} = tt::exp(x)\n")).collect();
        let all = (0..20_000).map(|i| format!("v{i}")).collect::<Vec<_>>().join(", ");
        let ended = format!("{lines}  last = tt::exp(y); del {all}\n  return out = last\n");
        let found = matched(&ended, &ended.replace("last", "end"));
        assert_eq!(found[20_000], Some("last".to_owned()));
        assert_eq!(found.len(), 20_002);
    }
}
