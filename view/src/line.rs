//! A line of a program as data: its text with gaps where names are, so that a page makes links of them, and lines that
//! differ in names alone share their text.

use fulgurite_runtime::trace::print::print_symbol;
use fulgurite_runtime::trace::{Block, BoundSymbol, ValueId};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::pool::Pool;

/// What is in the text of a line where a name is. No printed line has it: strings in it are escaped.
const GAP: char = '\t';

/// The line as `[text, results, names, types, operator, executor, pass, body, refusals, place]`: the text with a gap
/// for each name, the number of results, names and types (of the results) by their numbers, `-1` for what is absent.
pub fn line(pool: &mut Pool, block: &Block, symbol: &BoundSymbol, body: Option<usize>) -> Value {
    let (text, values) = template(block, symbol);
    let text = pool.string(&text);
    let names: Vec<usize> = values.iter().map(|id| pool.string(name(block, *id))).collect();
    let typed = symbol.results.iter().filter_map(|id| block.values.get(id.index()));
    let types: Vec<usize> = typed.map(|value| pool.meta(&value.meta)).collect();
    let refusals = symbol.refusals.iter().map(|refusal| json!([refusal.executor, refusal.reason]));
    let refusals: Vec<String> = refusals.map(|refusal| refusal.to_string()).collect();
    let refusals: Vec<usize> = refusals.iter().map(|refusal| pool.string(refusal)).collect();
    let mut optional = |text: Option<&str>| text.map_or(-1, |text| pool.string(text) as i64);
    let place = symbol.place.map(|place| format!("{}:{}", place.file(), place.line()));
    json!([
        text,
        symbol.results.len(),
        names,
        types,
        optional(Some(symbol.name())),
        optional(symbol.executor),
        symbol.pass as usize,
        body.map_or(-1, |body| body as i64),
        refusals,
        optional(place.as_deref()),
    ])
}

/// The name of a value; a trace that is not valid may lack the value.
pub fn name(block: &Block, id: ValueId) -> &str {
    block.values.get(id.index()).map_or("?", |value| &*value.name)
}

/// The text of a line with a gap for each name, and the values whose names are there. The line is printed in a block of
/// its own, whose values are called by their numbers: no other word of a text looks so.
fn template(block: &Block, symbol: &BoundSymbol) -> (String, Vec<ValueId>) {
    let (mut alone, mut values) = (Block::default(), Vec::new());
    let mut numbers: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut moved = symbol.clone();
    // What is nested has its own lines.
    moved.body = None;
    let mut number = |id: &mut ValueId| {
        let Some(value) = block.values.get(id.index()) else { return };
        *id = *numbers.entry(*id).or_insert_with(|| {
            values.push(*id);
            alone.define(format!("{MARK}{}", values.len() - 1), value.meta.clone())
        });
    };
    moved.results.iter_mut().for_each(&mut number);
    moved.arguments.iter_mut().flat_map(|argument| argument.tensors_mut()).for_each(&mut number);
    moved.schedule.after.iter_mut().for_each(&mut number);
    fill(&print_symbol(&alone, &moved), &values)
}

/// How names in such a block begin.
const MARK: &str = "__";

/// Replaces names by gaps, outside of strings.
fn fill(printed: &str, values: &[ValueId]) -> (String, Vec<ValueId>) {
    let (mut text, mut found) = (String::with_capacity(printed.len()), Vec::new());
    let mut rest = printed;
    let (mut in_string, mut in_word) = (false, false);
    while let Some(c) = rest.chars().next() {
        let number = rest.strip_prefix(MARK).filter(|_| !in_string && !in_word).and_then(|rest| {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            Some((digits, *values.get(rest[..digits].parse::<usize>().ok()?)?))
        });
        if let Some((digits, id)) = number {
            text.push(GAP);
            found.push(id);
            rest = &rest[MARK.len() + digits..];
            continue;
        }
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                text.push(c);
                rest = &rest[1..];
                let Some(escaped) = rest.chars().next() else { break };
                text.push(escaped);
                rest = &rest[escaped.len_utf8()..];
                continue;
            }
            _ => {}
        }
        in_word = c.is_alphanumeric() || c == '_' || c == '.';
        text.push(if c == GAP { ' ' } else { c });
        rest = &rest[c.len_utf8()..];
    }
    (text, found)
}
