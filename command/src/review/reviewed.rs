//! What a review says of files and of the programs in them.

use fulgurite::comparison::Comparison;
use fulgurite::cost::Totals;

use super::finding::Finding;
use super::sides::Pair;

/// What a review says.
pub struct Review {
    /// What is compared: before and after.
    pub between: [String; 2],
    /// Files with programs that differ: the weightiest first, and those that could not be compared for want of
    /// operators last.
    pub files: Vec<Reviewed>,
    /// Files in which only texts that are no programs differ.
    pub texts: Vec<Pair>,
}

/// The operator or model that a file is called after, as headings show it: the file's name.
pub fn subject_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    name.replace("__", "::")
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

/// The heading of what is told of a file whose text cannot be read at all.
pub const WHOLE: &str = "the whole file";

/// A program that differs.
pub struct Program {
    /// What it is called: the heading above it, or its function and stage where it has none; [`WHOLE`] for a file.
    pub heading: String,
    /// What it is compiled for.
    pub target: String,
    /// What happened to it.
    pub change: Change,
}

/// What happened to a program.
pub enum Change {
    /// The program is new.
    New(Totals),
    /// The program was removed.
    Gone(Totals),
    /// It differs. Without findings it does in names, order or places in memory alone.
    Differs { comparison: Box<Comparison>, findings: Vec<Finding> },
    /// One of its texts cannot be read, or neither.
    Unreadable(Vec<Fault>),
    /// No side can be read, because this command does not have the operator of this name.
    NotLinked(String),
}

/// Why a text cannot be read.
pub struct Fault {
    /// `before` or `after`.
    pub side: &'static str,
    /// Why, with the line.
    pub message: String,
}

impl Fault {
    /// The fault as a sentence.
    pub fn in_words(&self) -> String {
        format!("the text {} cannot be read: {}", self.side, self.message)
    }
}

impl Program {
    /// How much there is to look at.
    pub fn weight(&self) -> u64 {
        match &self.change {
            Change::Unreadable(_) => u64::MAX / 2,
            Change::Gone(_) => 60_000,
            Change::New(_) => 30_000,
            Change::Differs { findings, .. } => findings.iter().fold(0, |sum, one| sum.saturating_add(one.weight)),
            Change::NotLinked(_) => 0,
        }
    }

    /// Whether nothing but names, order and places in memory changed.
    pub fn is_trivial(&self) -> bool {
        matches!(self.change, Change::Differs { .. }) && self.weight() == 0
    }

    /// The operator that this command would need to read it.
    pub fn not_linked(&self) -> Option<&str> {
        if let Change::NotLinked(operator) = &self.change { Some(operator) } else { None }
    }

    /// Whether what happened to it is told; otherwise the program is counted.
    pub fn is_told(&self) -> bool {
        !self.is_trivial() && self.not_linked().is_none()
    }
}

impl Reviewed {
    /// How much there is to look at: its weightiest program, and a little for each more.
    pub fn weight(&self) -> u64 {
        let weights = self.programs.iter().map(Program::weight);
        weights.clone().max().unwrap_or(0).saturating_add(weights.count() as u64)
    }

    /// Whether any of its programs is told.
    pub fn is_told(&self) -> bool {
        self.programs.iter().any(Program::is_told)
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

    /// The state, and whether anybody has accepted it.
    pub fn state_in_words(&self) -> String {
        format!("{}{}", self.state(), if self.pair.pending { ", not accepted yet" } else { "" })
    }
}
