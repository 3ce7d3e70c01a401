//! Words and names.

use super::super::implied::{MAX_RELATIVE, scope_of};
use super::super::{Block, ValueId};

/// Words that no name may be without quotes.
const RESERVED: [&str; 10] = ["by", "del", "false", "inf", "nan", "none", "refused", "return", "true", "yield"];

/// The bytes of `text` that are one word: letters, digits, `_`, `.`, `-` and `::`, not beginning with `.`, `-` or `:`.
pub(in crate::trace) fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let plain = |i: usize| bytes.get(i).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut end = 0;
    while end < bytes.len() {
        if plain(end) || (end > 0 && matches!(bytes[end], b'.' | b'-')) {
            end += 1;
        } else if end > 0 && bytes[end..].starts_with(b"::") && plain(end + 2) {
            end += 2;
        } else {
            break;
        }
    }
    end
}

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

/// A name that stands where a number or a keyword could: bare if possible, else quoted.
pub(super) fn name(text: &str) -> String {
    if is_word(text) && !is_numeric(text) && !is_reserved(text) { text.into() } else { format!("{text:?}") }
}

/// A name that stands where nothing but a name can.
pub(super) fn label(text: &str) -> String {
    if is_word(text) { text.into() } else { format!("{text:?}") }
}

pub(super) fn operator_name(text: &str) -> String {
    if matches!(text, "region" | "value_and_grad") { format!("{text:?}") } else { name(text) }
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
    /// Whether a name in a list is relative to the scope of the one before it.
    pub(super) chained: bool,
}

impl<'a> Names<'a> {
    /// Names in full.
    pub(super) fn full(block: &'a Block) -> Names<'a> {
        Names { block, scope: "", chained: false }
    }

    pub(super) fn one(&self, id: ValueId) -> String {
        self.within(id, self.scope)
    }

    /// A name in a list, after `previous`.
    pub(super) fn after(&self, previous: Option<ValueId>, id: ValueId) -> String {
        let previous = previous.filter(|_| self.chained).and_then(|id| self.block.values.get(id.index()));
        let scope = previous.map_or("", |value| scope_of(&value.name));
        self.within(id, if scope.is_empty() { self.scope } else { scope })
    }

    /// The names of a list.
    pub(super) fn list(&self, ids: &[ValueId]) -> Vec<String> {
        let previous = |i: usize| i.checked_sub(1).map(|before| ids[before]);
        ids.iter().enumerate().map(|(i, id)| self.after(previous(i), *id)).collect()
    }

    fn within(&self, id: ValueId, scope: &str) -> String {
        // A number past the end has no name; the verifier says so, and its message needs a line.
        let Some(value) = self.block.values.get(id.index()) else { return format!("?{}", id.0) };
        below(&value.name, scope).map_or_else(|| name(&value.name), |rest| format!(".{rest}"))
    }
}

/// The scope that a body's names are written below: the one that shortens its text most. Empty if none does.
pub(super) fn scope_of_body(body: &Block) -> &str {
    let mut saved: rustc_hash::FxHashMap<&str, usize> = rustc_hash::FxHashMap::default();
    let read = body.symbols.iter().flat_map(|symbol| symbol.operands().chain(symbol.results.iter().copied()));
    for value in read.filter_map(|id| body.values.get(id.index())).filter(|value| value.name.len() <= MAX_RELATIVE) {
        for (dot, _) in value.name.match_indices('.').filter(|(dot, _)| is_word(&value.name[dot + 1..])) {
            *saved.entry(&value.name[..dot]).or_default() += dot;
        }
    }
    // The scope itself is written once, and costs some words more.
    let worth = saved.into_iter().filter(|(scope, bytes)| *bytes > scope.len() + " in ".len());
    worth.max_by_key(|(scope, bytes)| (*bytes, *scope)).map_or("", |(scope, _)| scope)
}
