//! What is known of an open text: its programs, each with its names and its first fault.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use fulgurite::Error;
use fulgurite::trace::verify::verify_marked;
use fulgurite::trace::{Block, MarkedName, Marks, Trace, parse_marked};

use super::faults::{self, Fault};
use super::lines::{Lines, floor};
use crate::claim_options::about_options;
use crate::stored_programs::stored;

/// A program of a text. All bytes are those of the text of the file.
pub struct Program {
    /// Byte range in the file.
    pub range: Range<usize>,
    /// The heading above it, as in snapshots.
    pub heading: Option<String>,
    /// The program, if it can be read.
    pub trace: Option<Trace>,
    /// Where its names and lines are; those before the error, if there is one.
    pub marks: Marks,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}

impl Program {
    /// Reads the bytes `range` of `text`. Without its own version it is read as that of the texts before it, whose
    /// first line is `version`.
    pub fn read(text: &str, range: Range<usize>, version: Option<&str>, heading: Option<String>) -> Program {
        let before = version.map_or(0, |version| version.len() + 1);
        let mut own = version.map_or_else(String::new, |version| format!("{version}\n"));
        own += &text[range.clone()];
        let (trace, mut marks) = parse_marked(&own);
        let shift = |at: usize| range.start + at.saturating_sub(before);
        let shifted = |of: &mut Range<usize>| *of = shift(of.start)..shift(of.end);
        marks.names.iter_mut().for_each(|name| shifted(&mut name.range));
        marks.blocks.iter_mut().for_each(|block| shifted(&mut block.range));
        for line in &mut marks.lines {
            shifted(&mut line.range);
            shifted(&mut line.operator);
        }
        let (trace, fault) = match trace {
            Ok(trace) => {
                let (checked, wrong) = verify_marked(&trace);
                let fault = checked.err().map(|error| {
                    let Fault { range, code, message } =
                        faults::of_verifier(text, &range, &trace, &marks, error, wrong);
                    Fault { range, code, message: message + &about_options(wrong) }
                });
                (Some(trace), fault)
            }
            Err(Error::Parse { line, column, message }) => {
                let at = shift(floor(&own, byte_of(&own, line, column)));
                (None, Some(Fault { range: faults::word_at(text, at), code: "parse", message }))
            }
            Err(error) => {
                (None, Some(Fault { range: range.start..range.start, code: "parse", message: error.to_string() }))
            }
        };
        Program { range, heading, trace, marks, fault }
    }

    /// The names at byte `at`: several where the text names several values at once.
    pub fn names_at(&self, at: usize) -> Vec<&MarkedName> {
        let here = |name: &&MarkedName| name.range.start <= at && at <= name.range.end && !name.range.is_empty();
        let mut found: Vec<&MarkedName> = self.marks.names.iter().filter(here).collect();
        // Between two names that touch, the one that begins there.
        let last = found.iter().map(|name| name.range.start).max();
        found.retain(|name| Some(name.range.start) == last);
        found
    }

    /// The blocks of the trace by the numbers of the marks.
    pub fn blocks(&self) -> HashMap<usize, &Block> {
        let mut blocks = HashMap::new();
        let Some(trace) = &self.trace else { return blocks };
        blocks.insert(0, &trace.block);
        // A line comes behind the lines of its body.
        for line in self.marks.lines.iter().rev() {
            let body =
                blocks.get(&line.block).and_then(|block: &&Block| block.symbols.get(line.symbol)?.body.as_deref());
            if let (Some(number), Some(body)) = (line.body, body) {
                blocks.insert(number, body);
            }
        }
        blocks
    }
}

/// The byte of a line and a column of characters, from 1.
fn byte_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let within = text[start..].char_indices().nth(column.saturating_sub(1));
    within.map_or(text.len(), |(at, _)| start + at)
}

/// An open text.
pub struct Document {
    /// The text.
    pub text: String,
    /// Its lines.
    pub lines: Lines,
    /// Whether it is a snapshot, in which there need not be any trace.
    snapshot: bool,
    programs: OnceCell<Vec<Program>>,
}

impl Document {
    /// The text of the file that `uri` names.
    pub fn new(uri: &str, text: String) -> Document {
        let lines = Lines::of(&text);
        Document { text, lines, snapshot: uri.ends_with(".snap"), programs: OnceCell::new() }
    }

    /// Replaces a range of bytes.
    pub fn replace(&mut self, range: Range<usize>, by: &str) {
        self.text.replace_range(range.clone(), by);
        self.lines.replace(&self.text, &range, by.len());
        self.programs = OnceCell::new();
    }

    /// Its programs, in their order.
    pub fn programs(&self) -> &[Program] {
        self.programs.get_or_init(|| {
            let stored: Vec<_> = stored(&self.text).into_iter().filter(|stored| stored.range.is_some()).collect();
            // The whole text, with what may be behind the program's end.
            let begins = self.text.trim_start().starts_with("# fulgurite trace") && stored.len() == 1;
            if begins || (stored.is_empty() && !self.snapshot) {
                return vec![Program::read(&self.text, 0..self.text.len(), None, None)];
            }
            let programs = stored.into_iter().filter_map(|stored| {
                Some(Program::read(&self.text, stored.range?, stored.version.as_deref(), stored.heading))
            });
            programs.collect()
        })
    }

    /// The program at byte `at`.
    pub fn program_at(&self, at: usize) -> Option<&Program> {
        self.programs().iter().find(|program| program.range.start <= at && at <= program.range.end)
    }
}
