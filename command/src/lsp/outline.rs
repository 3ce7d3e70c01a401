//! The outline of a text, and what folds.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use fulgurite::trace::{MarkedLine, Naming};
use serde_json::{Value, json};

use super::document::{Document, Program};

/// Kinds of symbols, by the protocol's numbers.
const MODULE: u32 = 2;
const FIELD: u32 = 8;
const VARIABLE: u32 = 13;
const NAMESPACE: u32 = 3;

/// The programs with their inputs and lines, bodies below their lines.
pub fn symbols(document: &Document) -> Value {
    document.programs().iter().map(|program| of_program(document, program)).collect()
}

fn symbol(
    document: &Document,
    name: &str,
    (detail, kind): (&str, u32),
    range: &Range<usize>,
    own: &Range<usize>,
) -> Value {
    let own = own.start.max(range.start)..own.end.min(range.end).max(range.start);
    json!({
        "name": if name.trim().is_empty() { "?" } else { name },
        "detail": detail,
        "kind": kind,
        "range": document.lines.positions(&document.text, range),
        "selectionRange": document.lines.positions(&document.text, &own),
    })
}

fn of_program(document: &Document, program: &Program) -> Value {
    let mut defined: HashMap<usize, Vec<(&Range<usize>, &str)>> = HashMap::new();
    let mut inputs = Vec::new();
    let first_line = program.marks.lines.iter().map(|line| line.range.start).min().unwrap_or(usize::MAX);
    let mut seen = HashSet::new();
    for name in program.marks.names.iter().filter(|name| name.naming == Naming::Definition && !name.range.is_empty()) {
        let value = &program.marks.values[name.value];
        if value.block == 0 && name.range.start < first_line {
            if seen.insert(name.range.start) {
                inputs.push(symbol(document, &value.name, (&value.meta.to_string(), FIELD), &name.range, &name.range));
            }
        } else {
            defined.entry(name.range.start).or_default().push((&name.range, &value.name));
        }
    }
    let mut of_blocks: HashMap<usize, Vec<&MarkedLine>> = HashMap::new();
    for line in &program.marks.lines {
        of_blocks.entry(line.block).or_default().push(line);
    }
    let mut children = inputs;
    children.extend(of_block(document, &of_blocks, &defined, 0));
    let (name, detail) = match &program.trace {
        Some(trace) => (trace.name.clone(), format!("for {}", trace.target)),
        None => ("trace".into(), "with an error".into()),
    };
    let name = program.heading.as_ref().map_or(name.clone(), |heading| format!("{heading}: {name}"));
    let header =
        program.range.start..document.lines.range(&document.text, document.lines.line(program.range.start)).end;
    let mut program = symbol(document, &name, (&detail, MODULE), &program.range, &header);
    program["children"] = children.into();
    program
}

type Defined<'a> = HashMap<usize, Vec<(&'a Range<usize>, &'a str)>>;

fn of_block(
    document: &Document,
    of_blocks: &HashMap<usize, Vec<&MarkedLine>>,
    defined: &Defined,
    block: usize,
) -> Vec<Value> {
    let mut seen = HashSet::new();
    let lines = of_blocks.get(&block).into_iter().flatten().filter(|line| seen.insert(line.range.start));
    let one = |line: &&MarkedLine| {
        let operator = &document.text[line.operator.clone()];
        let name = defined.get(&line.range.start).and_then(|names| names.first());
        let (own, name, kind) = match name {
            Some((range, name)) => (*range, *name, VARIABLE),
            None => (&line.operator, operator, NAMESPACE),
        };
        let mut found = symbol(document, name, (operator, kind), &line.range, own);
        if let Some(body) = line.body {
            found["children"] = of_block(document, of_blocks, defined, body).into();
        }
        found
    };
    lines.map(one).collect()
}

/// What folds: programs below their headings, and all that is between brackets on several lines. That a text has an
/// error changes nothing of that.
pub fn folds(document: &Document) -> Value {
    let (text, lines) = (&document.text, &document.lines);
    let mut found: Vec<(usize, usize)> = Vec::new();
    for program in document.programs() {
        let first = lines.line(program.range.start);
        let first = if program.heading.is_some() { first.saturating_sub(1) } else { first };
        found.push((first, lines.line(program.range.end)));
        brackets(text, &program.range, |open, close| {
            // The line of the closing bracket stays.
            found.push((lines.line(open), lines.line(close).saturating_sub(1)));
        });
    }
    let mut starts = HashSet::new();
    found.sort_by_key(|(from, to)| (*from, usize::MAX - to));
    found.retain(|(from, to)| from < to && starts.insert(*from));
    found.into_iter().map(|(from, to)| json!({"startLine": from, "endLine": to})).collect()
}

/// Tells of every pair of brackets outside of strings and comments.
fn brackets(text: &str, range: &Range<usize>, mut pair: impl FnMut(usize, usize)) {
    let mut open: Vec<(u8, usize)> = Vec::new();
    let (mut string, mut comment, mut escaped) = (false, false, false);
    for (at, byte) in text[range.clone()].bytes().enumerate() {
        let at = range.start + at;
        match byte {
            b'\n' => {
                // A string ends on its line, unless a backslash says that it goes on.
                string &= escaped;
                (comment, escaped) = (false, false);
            }
            _ if comment => {}
            _ if string => {
                string = escaped || byte != b'"';
                escaped = byte == b'\\' && !escaped;
            }
            b'"' => string = true,
            b'#' => comment = true,
            b'(' | b'[' | b'{' => open.push((byte, at)),
            b')' | b']' | b'}' => {
                let opening = match byte {
                    b')' => b'(',
                    b']' => b'[',
                    _ => b'{',
                };
                // What was not closed before is not closed at all.
                if let Some(depth) = open.iter().rposition(|(bracket, _)| *bracket == opening) {
                    pair(open[depth].1, at);
                    open.truncate(depth);
                }
            }
            _ => {}
        }
    }
}
