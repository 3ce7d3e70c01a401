//! What is known of the value, or the operator, at a place of the text: Markdown.

use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

use fulgurite::registry::find_operator;
use fulgurite::trace::{Block, BoundSymbol, Callee, InputRole, MarkedLine, MarkedName, Naming, Storage, ValueId};

use super::document::{Document, Program};

/// A tree names at most this many values one by one.
const SHOWN: usize = 12;

/// What is known at byte `at`, and the bytes that it is about.
pub fn hover(document: &Document, at: usize) -> Option<(String, Range<usize>)> {
    let program = document.program_at(at)?;
    let names = program.names_at(at);
    let mut seen = HashSet::new();
    let names: Vec<&&MarkedName> = names.iter().filter(|name| seen.insert(name.value)).collect();
    let operator = program.marks.lines.iter().find(|line| line.operator.start <= at && at < line.operator.end);
    match (names.as_slice(), operator) {
        // A view inside a line is defined where its operator is.
        ([name], _) => {
            let mut text = value(document, program, name);
            if name.naming == Naming::Definition && !is_written(document, program, name) {
                text += &called(&document.text[name.range.clone()]);
            }
            Some((text, name.range.clone()))
        }
        ([first, ..], _) => Some((values(document, program, &names), first.range.clone())),
        ([], Some(line)) => Some((operator_of(program, line)?, line.operator.clone())),
        ([], None) => None,
    }
}

/// `text` as code in Markdown.
fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Lines of code in Markdown.
fn block_of_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}fulgurite-trace\n{text}\n{fence}\n")
}

/// Whether the text at a definition is the value's name, and no operator or tree.
fn is_written(document: &Document, program: &Program, name: &MarkedName) -> bool {
    let text = document.text[name.range.clone()].trim_start_matches('.');
    text.starts_with('"') || program.marks.values[name.value].name.ends_with(text)
}

/// One value: its type, the line that makes it, its memory, its life.
fn value(document: &Document, program: &Program, name: &MarkedName) -> String {
    let marked = &program.marks.values[name.value];
    let mut text = block_of_code(&format!("{}: {}", marked.name, marked.meta));
    let meta = &marked.meta;
    let shape: Vec<String> = meta.shape().iter().map(ToString::to_string).collect();
    let _ = write!(text, "\n{} elements of {}, {} bytes", meta.len(), meta.dtype(), meta.bytes());
    if shape.len() > 1 {
        let _ = write!(text, " ({})", shape.join(" × "));
    }
    let _ = writeln!(text, ", on {}\n", meta.device());
    let blocks = program.blocks();
    if let Some(block) = blocks.get(&marked.block)
        && let Some(id) = block.values.iter().position(|value| value.name == marked.name)
    {
        let id = ValueId(id as u32);
        text += &origin(document, program, marked.block, block, id);
        text += &memory(program, marked.block, block, id);
    }
    text += &life(document, program, name.value);
    text
}

/// The line that makes a value.
fn origin(document: &Document, program: &Program, number: usize, block: &Block, id: ValueId) -> String {
    let mut text = String::new();
    if let Some(at) = block.parameters.iter().position(|parameter| *parameter == id) {
        match program.trace.as_ref().filter(|_| number == 0).and_then(|trace| trace.inputs.get(at)) {
            Some(input) => {
                let role = match input.role {
                    InputRole::Input => "input",
                    InputRole::Parameter => "parameter",
                    InputRole::Saved => "saved by the forward pass",
                    InputRole::Cotangent => "cotangent",
                };
                let donated = if input.donated { ", donated" } else { "" };
                let strides = input.strides.as_ref().map_or_else(String::new, |s| format!(", strides {s:?}"));
                let _ = writeln!(text, "- {role}, number {} of the program{donated}{strides}", at + 1);
            }
            None => text += &format!("- parameter {} of the body\n", at + 1),
        }
    }
    let made = block.symbols.iter().enumerate().find(|(_, symbol)| symbol.results.contains(&id));
    if let Some((at, symbol)) = made {
        let line = program.marks.lines.iter().find(|line| line.block == number && line.symbol == at);
        let line =
            line.map_or_else(String::new, |line| format!(", line {}", document.lines.line(line.range.start) + 1));
        let _ = writeln!(text, "- made by {}{line}, {} pass", code(symbol.name()), symbol.pass.name());
        text += &who(symbol);
    }
    text
}

/// The executor of a line, and those that refused it.
fn who(symbol: &BoundSymbol) -> String {
    let mut text = String::new();
    if let Some(executor) = symbol.executor {
        let stream = if symbol.schedule.is_plain() { "" } else { symbol.schedule.stream.name() };
        let on = if stream.is_empty() { String::new() } else { format!(" on {stream}") };
        let _ = writeln!(text, "- run by {}{on}", code(executor));
    }
    for refusal in &symbol.refusals {
        let _ = writeln!(text, "- refused by {}: {}", code(refusal.executor), code(&refusal.reason));
    }
    text
}

/// Where a value is in a planned program.
fn memory(program: &Program, number: usize, block: &Block, id: ValueId) -> String {
    let planned = number == 0 && program.trace.as_ref().is_some_and(|trace| trace.arena.is_some());
    let value = block.value(id);
    match value.storage {
        Some(Storage::Arena(at)) => {
            let end = at.saturating_add(value.meta.bytes() as u64);
            format!("- memory: bytes {at} to {end} of the arena\n")
        }
        Some(Storage::Output) => "- memory: its own, which outlives the call\n".into(),
        Some(Storage::Shared(of)) => match block.values.get(of.index()) {
            Some(of) => format!("- memory: that of {}\n", code(&of.name)),
            None => String::new(),
        },
        None if planned && block.parameters.contains(&id) => "- memory: the caller's\n".into(),
        None => String::new(),
    }
}

/// From where to where a value is alive, in lines of the text.
fn life(document: &Document, program: &Program, value: usize) -> String {
    let names = program.marks.names.iter().filter(|name| name.value == value);
    let (mut reads, mut lines) = (0, Vec::new());
    let (mut born, mut ended) = (None, None);
    for name in names {
        let line = document.lines.line(name.range.start) + 1;
        match name.naming {
            Naming::Definition => born = Some(line),
            Naming::Read => {
                reads += 1;
                lines.push(line);
            }
            Naming::End => ended = Some(line),
            Naming::Mention => {}
        }
    }
    let times = |n: usize| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let mut text = match (lines.iter().min(), lines.iter().max()) {
        (Some(first), Some(last)) if first != last => format!("- read {}, lines {first} to {last}\n", times(reads)),
        (Some(first), _) => format!("- read {}, line {first}\n", times(reads)),
        _ => "- never read\n".into(),
    };
    if let (Some(born), Some(ended)) = (born, ended) {
        let _ = writeln!(text, "- alive from line {born} to line {ended}, where it ends");
    }
    text
}

/// Several values that the text names at once.
fn values(document: &Document, program: &Program, names: &[&&MarkedName]) -> String {
    let marked = names.iter().map(|name| &program.marks.values[name.value]);
    let list: Vec<String> = marked.clone().take(SHOWN).map(|value| format!("{}: {}", value.name, value.meta)).collect();
    let more = if names.len() > SHOWN { format!("\n... and {} more", names.len() - SHOWN) } else { String::new() };
    let bytes = marked.fold(0usize, |sum, value| sum.saturating_add(value.meta.bytes()));
    let what = code(&document.text[names[0].range.clone()]);
    format!(
        "{what} names {} values, {bytes} bytes together\n\n{}",
        names.len(),
        block_of_code(&(list.join("\n") + &more))
    )
}

/// The operator and the executor of a line.
fn operator_of(program: &Program, line: &MarkedLine) -> Option<String> {
    let symbol = program.blocks().get(&line.block)?.symbols.get(line.symbol).cloned()?;
    let mut text = match symbol.callee {
        Callee::Operator(def) => called(def.name),
        _ => format!("{}\n\n", code(symbol.name())),
    };
    text += &who(&symbol);
    Some(text)
}

/// What a name calls: its signature and its documentation.
fn called(name: &str) -> String {
    let prim = format!("prims::{name}");
    let own = name.trim_start_matches("::").trim_matches('"');
    let Some(def) = find_operator(&prim).ok().or_else(|| find_operator(own).ok()) else { return String::new() };
    format!("\n{}\n{}\n\n", block_of_code(&def.signature()), def.docs.trim())
}
