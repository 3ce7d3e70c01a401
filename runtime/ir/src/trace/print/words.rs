//! Words and names.

use super::super::implied::{MAX_RELATIVE, scope_of, word_of};
use super::super::trees::{Trees, counted, next_name};
use super::super::{Block, BoundSymbol, ValueId};
use crate::trace::word::word_length;

/// Fewer names that count on are written one by one.
const FEWEST: usize = 3;
/// More names than this are not written as one.
pub(in crate::trace) const MAX_RUN: usize = 4096;

/// Words that no name may be without quotes.
const RESERVED: [&str; 10] = ["by", "del", "false", "inf", "nan", "none", "refused", "return", "true", "yield"];

/// Whether a word reads as a number.
pub(in crate::trace) fn is_numeric(word: &str) -> bool {
    word.as_bytes().first().is_some_and(u8::is_ascii_digit) && word.parse::<f64>().is_ok()
}

/// Whether a word is a keyword or a literal, so that a name that equals it is quoted.
pub(in crate::trace) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && word_length(text) == text.len()
}

/// A name where a number or a keyword is allowed: bare if possible, else quoted.
pub(super) fn name(text: &str) -> String {
    if is_word(text) && !is_numeric(text) && !is_reserved(text) { text.into() } else { format!("{text:?}") }
}

/// A name where only a name is allowed.
pub(super) fn label(text: &str) -> String {
    if is_word(text) { text.into() } else { format!("{text:?}") }
}

/// What an operator is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// By its name, in a message.
    Plainly,
    /// By its name, in a text that is read back.
    InFull,
    /// By one word, where that is enough.
    Shortly,
}

/// What a line calls an operator.
pub(super) fn operator_name(text: &str, called: Called) -> String {
    let bare = |word: &str| is_word(word) && !is_numeric(word) && !is_reserved(word) && !is_call(word);
    match word_of(text).filter(|word| called == Called::Shortly && bare(word)) {
        Some(word) => word.to_owned(),
        None if is_call(text) => format!("{text:?}"),
        // The word alone calls a prim.
        None if called != Called::Plainly && bare(text) && word_of(text).is_none() && !text.contains("::") => {
            format!("::{text}")
        }
        None => name(text),
    }
}

/// Whether a word before parentheses is no operator.
fn is_call(word: &str) -> bool {
    matches!(word, "checkpoint" | "region" | "value_and_grad")
}

/// What is left of `name` below `scope`, if it can be written so.
pub(super) fn below<'a>(name: &'a str, scope: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(scope)?.strip_prefix('.')?;
    (!scope.is_empty() && name.len() <= MAX_RELATIVE && is_word(rest)).then_some(rest)
}

/// How the names of a block are written.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) block: &'a Block,
    /// The scope that names are relative to, written `.rest`.
    pub(super) scope: &'a str,
    /// The inputs, which the lists of a short text are written by; none where names are in full.
    pub(super) trees: Option<&'a Trees>,
}

impl<'a> Names<'a> {
    /// Names in full.
    pub(super) fn full(block: &'a Block) -> Names<'a> {
        Names { block, scope: "", trees: None }
    }

    /// Whether the text leaves out what follows from the rest of it.
    pub(super) fn short(&self) -> bool {
        self.trees.is_some()
    }

    pub(super) fn one(&self, id: ValueId) -> String {
        self.within(id, self.scope)
    }

    /// A name in a list, after `previous`.
    pub(super) fn after(&self, previous: Option<ValueId>, id: ValueId) -> String {
        let previous = previous.filter(|_| self.short()).and_then(|id| self.block.values.get(id.index()));
        let scope = previous.map_or("", |value| scope_of(&value.name));
        self.within(id, if scope.is_empty() { self.scope } else { scope })
    }

    /// The names of a list.
    pub(super) fn list(&self, ids: &[ValueId]) -> Vec<String> {
        let previous = |i: usize| i.checked_sub(1).map(|before| ids[before]);
        ids.iter().enumerate().map(|(i, id)| self.after(previous(i), *id)).collect()
    }

    /// The first of `ids`, after `previous`, with those behind it that the text names together, and how many they are:
    /// `mul to .9`, or, with `trees`, `params.*`.
    pub(super) fn run(&self, previous: Option<ValueId>, ids: &[ValueId], trees: Option<&Trees>) -> (String, usize) {
        let first = self.after(previous, ids[0]);
        let Some(inputs) = self.trees.filter(|inputs| !inputs.are_apart()) else { return (first, 1) };
        // A value that the block does not have is called as no other.
        let name = |i: usize| self.block.values.get(ids[i].index()).map_or("", |value| &*value.name);
        if let Some((pattern, count)) = trees.and_then(|trees| trees.pattern(ids.len(), name)) {
            inputs.tell(count);
            return (format!("{pattern}.*"), count);
        }
        let follows = |i: &usize| name(*i).len() <= MAX_RELATIVE && next_name(name(i - 1)).as_deref() == Some(name(*i));
        let count = 1 + (1..ids.len().min(MAX_RUN)).take_while(follows).count();
        if count < FEWEST {
            return (first, 1);
        }
        inputs.tell(count);
        (format!("{first} to .{}", counted(name(count - 1)).1), count)
    }

    /// The names of a list.
    pub(super) fn runs(&self, ids: &[ValueId]) -> Vec<String> {
        let (mut texts, mut at) = (Vec::new(), 0);
        while at < ids.len() {
            let (text, count) = self.run(at.checked_sub(1).map(|before| ids[before]), &ids[at..], None);
            texts.push(text);
            at += count;
        }
        texts
    }

    fn within(&self, id: ValueId, scope: &str) -> String {
        // A number past the end has no name; the verifier says so, and its message needs a line.
        let Some(value) = self.block.values.get(id.index()) else { return format!("?{}", id.0) };
        below(&value.name, scope).map_or_else(|| name(&value.name), |rest| format!(".{rest}"))
    }
}

/// The scope that the names of a body's `lines` are written below: the one that shortens their text most. Empty if none
/// does.
pub(super) fn scope_of_lines<'a>(body: &'a Block, lines: &[&BoundSymbol]) -> &'a str {
    let mut saved: rustc_hash::FxHashMap<&str, usize> = rustc_hash::FxHashMap::default();
    let read = lines.iter().flat_map(|symbol| symbol.operands().chain(symbol.results.iter().copied()));
    for value in read.filter_map(|id| body.values.get(id.index())).filter(|value| value.name.len() <= MAX_RELATIVE) {
        for (dot, _) in value.name.match_indices('.').filter(|(dot, _)| is_word(&value.name[dot + 1..])) {
            *saved.entry(&value.name[..dot]).or_default() += dot;
        }
    }
    // The scope itself is written once, and costs some words more.
    let worth = saved.into_iter().filter(|(scope, bytes)| *bytes > scope.len() + " in ".len());
    worth.max_by_key(|(scope, bytes)| (*bytes, *scope)).map_or("", |(scope, _)| scope)
}
