//! Names that could be meant at a place of the text.

use std::collections::HashSet;

use fulgurite::executor::executors;
use fulgurite::operator::OperatorDef;
use fulgurite::registry::operators;
use fulgurite::trace::{MarkedBlock, Naming, print_name};
use serde_json::{Value, json};

use super::document::{Document, Program};

/// More names than these are not listed; the editor asks again when more is written.
const MAX_ITEMS: usize = 500;

/// Kinds of items, by the protocol's numbers.
const FUNCTION: u32 = 3;
const VARIABLE: u32 = 6;
const MODULE: u32 = 9;

/// The names that begin with what is written before byte `at`: executors after `by`, otherwise values that are defined
/// before, the latest first, and operators.
pub fn complete(document: &Document, at: usize) -> Value {
    let text = &document.text;
    let before = &text[..at];
    let quote = open_quote(before);
    let start = quote.unwrap_or_else(|| word_before(before));
    let word = &before[start..];
    // An editor that closes quotes has written the second one.
    let end = if quote.is_some() && text[at..].starts_with('"') { at + 1 } else { at };
    let words = before[..start].trim_end_matches([' ', '\t']);
    let after_by = quote.is_none() && words.len() < start && &words[word_before(words)..] == "by";
    // What is written and what is meant, where a name needs quotes.
    let written = |name: &str, kind: u32| if kind == VARIABLE { print_name(name) } else { name.to_owned() };
    let begins = |name: &str, kind: u32| match quote {
        Some(_) => written(name, kind).starts_with(word),
        None => name.starts_with(word),
    };
    let mut items: Vec<(String, u32, String)> = Vec::new();
    if after_by {
        items
            .extend(executors().into_iter().map(|executor| (executor.name.to_owned(), MODULE, executor.device.into())));
        items.retain(|(name, kind, _)| begins(name, *kind));
    } else {
        if let Some(program) = document.program_at(at) {
            items.extend(values(program, at).into_iter().map(|(name, meta)| (name, VARIABLE, meta)));
        }
        items.retain(|(name, kind, _)| begins(name, *kind));
        let operators = operators();
        let names: HashSet<&str> = operators.iter().map(|def| def.name).collect();
        // A prim goes without its prefix, and what has the name of a prim has another.
        let named = |def: &OperatorDef| match def.name.strip_prefix("prims::") {
            Some(prim) => prim.to_owned(),
            None if names.contains(&*format!("prims::{}", def.name)) => format!("::{}", def.name),
            None => def.name.to_owned(),
        };
        let named = operators.iter().map(|def| (named(def), def)).filter(|(name, _)| begins(name, FUNCTION));
        // Signatures are written for what is listed alone; one more says that there are others.
        let room = (MAX_ITEMS + 1).saturating_sub(items.len());
        items.extend(named.take(room).map(|(name, def)| (name, FUNCTION, def.signature())));
    }
    let incomplete = items.len() > MAX_ITEMS;
    items.truncate(MAX_ITEMS);
    let range = document.lines.positions(text, &(start..end));
    let items = items.into_iter().enumerate().map(|(rank, (name, kind, detail))| {
        let written = written(&name, kind);
        json!({
            "label": name,
            "kind": kind,
            "detail": detail,
            "sortText": format!("{rank:05}"),
            "filterText": if quote.is_some() { &written } else { &name },
            "textEdit": {"range": range, "newText": written},
        })
    });
    json!({"isIncomplete": incomplete, "items": items.collect::<Vec<Value>>()})
}

/// Where the word that `text` ends with begins.
fn word_before(text: &str) -> usize {
    text.trim_end_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ':')).len()
}

/// Where the string begins that is open at the end of `text`, in its last line.
fn open_quote(text: &str) -> Option<usize> {
    let line = text.rfind(['\n', '\r']).map_or(0, |end| end + 1);
    let (mut open, mut escaped) = (None, false);
    for (at, c) in text[line..].char_indices() {
        match c {
            '"' if !escaped => open = if open.is_none() { Some(line + at) } else { None },
            _ => {}
        }
        escaped = c == '\\' && !escaped && open.is_some();
    }
    open
}

/// The values that a line at byte `at` may name, with their types, the latest first.
fn values(program: &Program, at: usize) -> Vec<(String, String)> {
    let marks = &program.marks;
    let here = |block: &&(usize, &MarkedBlock)| block.1.range.start <= at && at <= block.1.range.end;
    let blocks: Vec<(usize, &MarkedBlock)> = marks.blocks.iter().enumerate().collect();
    let Some((mut block, mut inner)) = blocks.iter().filter(here).max_by_key(|(number, _)| *number).copied() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    loop {
        let definitions = marks.names.iter().rev().filter(|name| {
            name.naming == Naming::Definition && name.range.end < at && marks.values[name.value].block == block
        });
        let typed = definitions.map(|name| &marks.values[name.value]).map(|v| (v.name.to_string(), v.meta.to_string()));
        found.extend(typed);
        match inner.around.filter(|_| inner.reads_around) {
            Some(around) => (block, inner) = (around, &marks.blocks[around]),
            None => return found,
        }
    }
}
