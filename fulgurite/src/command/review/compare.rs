//! The programs of files that differ, each compared with the one of the same stage, the weightiest first.

use std::collections::BTreeMap;

use fulgurite::Error;
use fulgurite::comparison::Comparison;
use fulgurite::cost::Totals;
use fulgurite::trace::{Trace, parse};

use super::finding::Finding;
use super::findings::findings;
use super::sides::Pair;
use crate::command::stored_programs::programs;

/// What a review says.
pub struct Review {
    /// What is compared: before and after.
    pub between: [String; 2],
    /// Files with programs that differ, the weightiest first.
    pub files: Vec<Reviewed>,
    /// Files in which only texts that are no programs differ.
    pub texts: Vec<Pair>,
}

/// A file with programs.
pub struct Reviewed {
    /// The operator or model: the file's name.
    pub subject: String,
    /// The file before and after.
    pub pair: Pair,
    /// Its programs that differ, the weightiest first.
    pub programs: Vec<Program>,
    /// How many of its programs are as they were.
    pub same: usize,
}

/// A program that differs.
pub struct Program {
    /// The heading above it.
    pub heading: String,
    /// The stage: the heading, or the transform that made it.
    pub stage: String,
    /// What it is compiled for.
    pub target: String,
    /// What happened to it.
    pub change: Change,
}

/// What happened to a program.
pub enum Change {
    /// It is new.
    New(Totals),
    /// It is gone.
    Gone(Totals),
    /// It differs. Without findings it does in names, order or places in memory alone.
    Differs { comparison: Box<Comparison>, findings: Vec<Finding> },
    /// Its text cannot be read.
    Unreadable { side: &'static str, message: String },
}

impl Program {
    /// How much there is to look at.
    pub fn weight(&self) -> u64 {
        match &self.change {
            Change::Unreadable { .. } => u64::MAX / 2,
            Change::Gone(_) => 60_000,
            Change::New(_) => 30_000,
            Change::Differs { findings, .. } => findings.iter().fold(0, |sum, one| sum.saturating_add(one.weight)),
        }
    }

    /// Whether nothing but names, order and places in memory changed.
    pub fn is_trivial(&self) -> bool {
        self.weight() == 0
    }
}

impl Reviewed {
    /// How much there is to look at: its weightiest program, and a little for each more.
    pub fn weight(&self) -> u64 {
        let weights = self.programs.iter().map(Program::weight);
        weights.clone().max().unwrap_or(0).saturating_add(weights.count() as u64)
    }

    /// Whether nothing but names, order and places in memory changed.
    pub fn is_trivial(&self) -> bool {
        self.programs.iter().all(Program::is_trivial)
    }

    /// `new`, `gone` or `changed`.
    pub fn state(&self) -> &'static str {
        match (&self.pair.before, &self.pair.after) {
            (None, _) => "new",
            (_, None) => "gone",
            _ => "changed",
        }
    }
}

/// Compares the files.
pub fn review(between: [String; 2], pairs: Vec<Pair>) -> Review {
    let (mut files, mut texts) = (Vec::new(), Vec::new());
    for pair in pairs {
        let (before, after) = (by_heading(pair.before.as_deref()), by_heading(pair.after.as_deref()));
        let mut found = Vec::new();
        let mut same = 0;
        let headings = before.keys().chain(after.keys().filter(|heading| !before.contains_key(*heading)));
        for heading in headings {
            match compared(heading, before.get(heading), after.get(heading)) {
                Some(program) => found.push(program),
                None => same += 1,
            }
        }
        if found.is_empty() {
            texts.push(pair);
            continue;
        }
        found.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.stage.cmp(&b.stage)));
        files.push(Reviewed { subject: subject(&pair.path), pair, programs: found, same });
    }
    files.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| a.subject.cmp(&b.subject)));
    Review { between, files, texts }
}

/// The operator or model that a file is called after.
fn subject(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    name.replace("__", "::")
}

fn by_heading(text: Option<&str>) -> BTreeMap<String, String> {
    text.map(programs).unwrap_or_default().into_iter().collect()
}

/// One program of a heading, before and after; `None` if its text is the same.
fn compared(heading: &str, before: Option<&String>, after: Option<&String>) -> Option<Program> {
    if before == after {
        return None;
    }
    let read_side = |side, text: Option<&String>| match text.map(|text| read(text)) {
        Some(Err(message)) => Err(Change::Unreadable { side, message }),
        Some(Ok(trace)) => Ok(Some(trace)),
        None => Ok(None),
    };
    let sides = read_side("before", before).and_then(|was| Ok((was, read_side("after", after)?)));
    let named = |trace: &Trace| match heading.starts_with("program") {
        true => format!("{} after {}", trace.name, trace.history.last().map_or("nothing", String::as_str)),
        false => heading.to_owned(),
    };
    let (stage, target, change) = match sides {
        Err(change) => (heading.to_owned(), String::new(), change),
        Ok((Some(was), Some(is))) => {
            let comparison = Comparison::of(&was, &is);
            let findings = findings(&was, &is, &comparison);
            (named(&is), is.target.to_string(), Change::Differs { comparison: Box::new(comparison), findings })
        }
        Ok((Some(trace), None)) => (named(&trace), trace.target.to_string(), Change::Gone(Totals::of(&trace))),
        Ok((None, Some(trace))) => (named(&trace), trace.target.to_string(), Change::New(Totals::of(&trace))),
        Ok((None, None)) => return None,
    };
    Some(Program { heading: heading.to_owned(), stage, target, change })
}

/// Reads a program; the message of an error names the line of the program's text.
fn read(text: &str) -> Result<Trace, String> {
    parse(text).map_err(|error| match error {
        Error::Parse { line, column, message } => {
            let at = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
            let message = message.lines().next().unwrap_or_default().to_owned();
            format!("line {line}, column {column} of the program: {message}, in `{at}`")
        }
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    })
}
