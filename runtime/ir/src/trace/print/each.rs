//! How lines that are alike but for the inputs below one name are written once: where their names have a star, and
//! which attributes differ.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::implied::{MAX_RELATIVE, scope_of};
use super::super::trees::next_name;
use super::super::{Block, BoundSymbol, ValueId};
use super::fold::{SOFT, comma};
use super::words::{below, is_numeric, is_word, label, name};
use crate::argument::{Arg, Attribute};

/// An attribute with more values than this is not written once.
const MOST_VALUES: usize = 4;

/// Lines that are written as one: how their names and attributes are written that are not alike.
pub(super) struct Each<'a> {
    /// What the inputs are below, one for each line.
    pub(super) root: &'a str,
    /// How many lines they are.
    pub(super) count: usize,
    /// Those of the first line.
    pub(super) results: Vec<String>,
    /// Operands, by those of the first line.
    pub(super) operands: FxHashMap<ValueId, String>,
    /// Attributes, by their places among the arguments.
    pub(super) attributes: FxHashMap<usize, String>,
}

/// What is around `rest(i)` in each of `count` names, if that is the same for all of them.
pub(super) fn around_rests<'a>(
    count: usize,
    rest: impl Fn(usize) -> &'a str,
    name: impl Fn(usize) -> Option<&'a str>,
) -> Option<(&'a str, &'a str)> {
    let first = name(0)?;
    first.match_indices(rest(0)).find_map(|(start, part)| {
        let (before, behind) = (&first[..start], &first[start + part.len()..]);
        let bounded = before.ends_with('.') && (behind.is_empty() || behind.starts_with('.'));
        let words = is_word(before) && (behind.is_empty() || is_word(&behind[1..]));
        let fits = |i: usize| {
            let name = name(i).filter(|name| name.len() <= MAX_RELATIVE)?;
            (name.strip_prefix(before)?.strip_suffix(behind)? == rest(i)).then_some(())
        };
        (bounded && words && (0..count).all(|i| fits(i).is_some())).then_some((before, behind))
    })
}

/// Lines of one block that call one operator, and the inputs below a name, one for each line.
pub(super) struct Lines<'a> {
    pub(super) block: &'a Block,
    pub(super) symbols: &'a [BoundSymbol],
    pub(super) root: &'a str,
    pub(super) inputs: &'a [Arc<str>],
}

impl<'a> Lines<'a> {
    fn rest(&self, i: usize) -> &'a str {
        &self.inputs[i][self.root.len() + 1..]
    }

    fn name(&self, id: ValueId) -> Option<&'a str> {
        self.block.values.get(id.index()).map(|value| &*value.name)
    }

    /// `new.*.mean`: the names of the values that `of` says of each line.
    fn starred(&self, of: impl Fn(&'a BoundSymbol) -> Option<ValueId>) -> Option<String> {
        let name = |i: usize| self.name(of(&self.symbols[i])?);
        let (before, behind) = around_rests(self.symbols.len(), |i| self.rest(i), name)?;
        // A word like `1.` is read as a number.
        (!is_numeric(before)).then(|| format!("{before}*{behind}"))
    }

    /// The results; those behind the first are below the scope of the one before, where they are so in every line.
    pub(super) fn results(&self) -> Option<Vec<String>> {
        let result = |i: usize, at: usize| self.symbols[i].results.get(at).and_then(|id| self.name(*id));
        let follows = |i: usize, at: usize| below(result(i, at)?, scope_of(result(i, at - 1)?));
        let written = |at: usize| {
            let starred = self.starred(|symbol| symbol.results.get(at).copied())?;
            let rest = if at == 0 { None } else { follows(0, at) };
            let every = rest.filter(|_| (1..self.symbols.len()).all(|i| follows(i, at) == rest));
            Some(every.map_or(starred, |rest| format!(".{rest}")))
        };
        (0..self.symbols[0].results.len()).map(written).collect()
    }

    /// The values that `of` says of each line, if they are not all one.
    fn operand(&self, of: impl Fn(&'a BoundSymbol) -> Option<ValueId>) -> Option<String> {
        if let Some(starred) = self.starred(&of) {
            return Some(starred);
        }
        let value = |i: usize| self.name(of(&self.symbols[i])?).filter(|name| name.len() <= MAX_RELATIVE);
        let counts = |i: usize| next_name(value(i - 1)?).filter(|next| Some(&**next) == value(i));
        if !(1..self.symbols.len()).all(|i| counts(i).is_some()) {
            return None;
        }
        let last = value(self.symbols.len() - 1)?;
        Some(format!("{} to .{}", name(value(0)?), &last[last.rfind('.')? + 1..]))
    }

    /// `0.0 but 0.1 for [a, b]`: the attribute that `of` says of each line. The one that most lines have is first.
    fn attribute(&self, of: impl Fn(&'a BoundSymbol) -> Option<&'a Attribute>) -> Option<String> {
        let mut values: Vec<(&Attribute, Vec<String>)> = Vec::new();
        for (i, symbol) in self.symbols.iter().enumerate() {
            let attribute = of(symbol)?;
            let rest = label(self.rest(i));
            match values.iter().position(|(known, _)| *known == attribute) {
                Some(known) => values[known].1.push(rest),
                None if values.len() == MOST_VALUES => return None,
                None => values.push((attribute, vec![rest])),
            }
        }
        // The first of those that are most.
        let most = (0..values.len()).rev().max_by_key(|at| values[*at].1.len())?;
        let (most, _) = values.remove(most);
        let others = values.iter().map(|(value, rests)| format!("{SOFT}but {value} for [{}]", comma(rests)));
        Some(format!("{most}{}", others.collect::<String>()))
    }

    /// How they are written as one, with these results, if they can be.
    pub(super) fn each(&self, results: Vec<String>) -> Option<Each<'a>> {
        let first = &self.symbols[0];
        let (mut operands, mut attributes) = (FxHashMap::default(), FxHashMap::default());
        // Values that are the same in all lines.
        let mut same: Vec<ValueId> = Vec::new();
        for (at, argument) in first.arguments.iter().enumerate() {
            let all = |wanted: &dyn Fn(&Arg<ValueId>) -> bool| {
                self.symbols.iter().all(|symbol| symbol.arguments.get(at).is_some_and(wanted))
            };
            if all(&|other| other == argument) {
                same.extend(argument.tensors());
                continue;
            }
            match argument {
                Arg::Attribute(_) => {
                    let text = self.attribute(|symbol| match symbol.arguments.get(at) {
                        Some(Arg::Attribute(attribute)) => Some(attribute),
                        _ => None,
                    })?;
                    attributes.insert(at, text);
                }
                Arg::Tensor(id) | Arg::Optional(Some(id)) => {
                    let text = self.operand(|symbol| match symbol.arguments.get(at) {
                        Some(Arg::Tensor(id) | Arg::Optional(Some(id))) => Some(*id),
                        _ => None,
                    })?;
                    if operands.insert(*id, text.clone()).is_some_and(|other| other != text) {
                        return None;
                    }
                }
                Arg::Optional(None) | Arg::List(_) => return None,
            }
        }
        let apart = same.iter().all(|id| !operands.contains_key(id));
        apart.then_some(Each { root: self.root, count: self.symbols.len(), results, operands, attributes })
    }
}
