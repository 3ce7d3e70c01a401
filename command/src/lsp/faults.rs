//! Where a program breaks a rule of the language.

use std::collections::HashMap;
use std::ops::Range;

use fulgurite::Error;
use fulgurite::trace::{Block, BoundSymbol, Callee, MarkedLine, Marks, Trace};
use serde_json::{Value, json};

use super::lines::Lines;

/// What is wrong with a program, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The bytes of the text.
    pub range: Range<usize>,
    /// The stage that found it: `parse` or `verify`.
    pub code: &'static str,
    /// The message for the editor.
    pub message: String,
}

impl Fault {
    /// As a diagnostic of the protocol.
    pub fn to_json(&self, text: &str, lines: &Lines) -> Value {
        json!({
            "range": lines.positions(text, &self.range),
            "severity": 1,
            "source": "fulgurite",
            "code": self.code,
            "message": self.message,
        })
    }
}

/// The word at byte `at`, or the character there.
pub fn word_at(text: &str, at: usize) -> Range<usize> {
    let rest = &text[at..];
    let word = rest.find(|c: char| !(c.is_alphanumeric() || "_.-".contains(c))).unwrap_or(rest.len());
    let one = rest.chars().next().filter(|c| !matches!(c, '\n' | '\r')).map_or(0, char::len_utf8);
    at..at + word.max(one)
}

/// Where the line that breaks a rule is: that of the symbol `wrong`, if a symbol does.
pub fn of_verifier(
    text: &str,
    program: &Range<usize>,
    trace: &Trace,
    marks: &Marks,
    error: Error,
    wrong: Option<&BoundSymbol>,
) -> Fault {
    let Error::Verify { line, message, .. } = error else {
        return Fault { range: header(text, program), code: "verify", message: error.to_string() };
    };
    let mut of_symbols = HashMap::new();
    for line in &marks.lines {
        of_symbols.insert((line.block, line.symbol), line);
    }
    let found = wrong.and_then(|wrong| symbol(&of_symbols, &trace.block, 0, wrong));
    let range = found.or_else(|| input(text, marks, &line)).or_else(|| results(text, program, marks, &line));
    match range {
        Some(range) => Fault { range, code: "verify", message },
        None => Fault { range: header(text, program), code: "verify", message: format!("{line}: {message}") },
    }
}

/// The first line of the program's header.
fn header(text: &str, program: &Range<usize>) -> Range<usize> {
    let own = &text[program.clone()];
    let start = match own.starts_with("trace ") {
        true => 0,
        false => own.find("\ntrace ").map_or(0, |at| at + 1),
    };
    let end = own[start..].find(['\n', '\r']).map_or(own.len(), |end| start + end);
    program.start + start..program.start + end
}

/// The line of the text with the symbol `wrong`.
fn symbol(
    of_symbols: &HashMap<(usize, usize), &MarkedLine>,
    block: &Block,
    number: usize,
    wrong: &BoundSymbol,
) -> Option<Range<usize>> {
    for (i, symbol_here) in block.symbols.iter().enumerate() {
        let own = of_symbols.get(&(number, i)).copied();
        if std::ptr::eq(symbol_here, wrong) {
            // A view inside a line is read by a line behind it; the end of a value is in a line before it.
            let near = match symbol_here.callee {
                Callee::Delete => (0..i).rev().find_map(|i| of_symbols.get(&(number, i))),
                _ => (i..block.symbols.len()).find_map(|i| of_symbols.get(&(number, i))),
            };
            return own.or(near.copied()).map(first_line);
        }
        if let (Some(body), Some(MarkedLine { body: Some(inner), .. })) = (&symbol_here.body, own)
            && let Some(found) = symbol(of_symbols, body, *inner, wrong)
        {
            return Some(found);
        }
    }
    None
}

/// A line up to the end of its operator: what it consists of may be long.
fn first_line(line: &MarkedLine) -> Range<usize> {
    line.range.start..line.operator.end.max(line.range.start)
}

/// The input that prints as `line`.
fn input(text: &str, marks: &Marks, line: &str) -> Option<Range<usize>> {
    let (name, _) = line.split_once(": ")?;
    let name = name.trim_matches('"');
    let here = |mark: &&fulgurite::trace::MarkedName| {
        let value = &marks.values[mark.value];
        value.block == 0 && *value.name == *name
    };
    marks.names.iter().find(here).map(|mark| mark.range.clone()).filter(|range| range.end <= text.len())
}

/// The results of the program.
fn results(text: &str, program: &Range<usize>, marks: &Marks, line: &str) -> Option<Range<usize>> {
    if line != "return" && !line.starts_with("return ") {
        return None;
    }
    let end = marks.blocks.first()?.range.end.min(program.end);
    let at = text.get(program.start..end)?.rfind("return")? + program.start;
    Some(at..at + "return".len())
}
