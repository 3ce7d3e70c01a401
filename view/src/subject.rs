//! What a page is about.

use std::sync::Arc;

use fulgurite_runtime::device::Source;
use fulgurite_runtime::trace::Trace;
use rustc_hash::FxHashSet;

use crate::line::name;
use crate::order::Order;
use crate::time::Timing;

/// A program, after one or more stages of its compilation.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// What people call it: an operator, a model, a file.
    pub name: String,
    /// What it was compiled for and by whom, in words; empty if that is not known.
    pub about: String,
    /// Its stages, oldest first.
    pub stages: Vec<Shown>,
    /// Why there are no more stages, if compilation failed.
    pub ending: Option<String>,
    /// The sources of its kernels, if they were asked for.
    pub sources: Vec<Arc<Source>>,
    /// Which of the sources the lines run: the name of a line's first result, and numbers of `sources`.
    pub kernels: Vec<(String, Vec<usize>)>,
    /// What other orders of the executors change, if that was asked for.
    pub orders: Vec<Order>,
    /// Where the time of a run went, if a profile is given.
    pub timing: Option<Timing>,
    /// What else a reader must know, as sentences.
    pub notes: Vec<String>,
    /// A text that is no trace, with the error.
    pub unread: Option<Unread>,
}

impl Subject {
    /// Adds a profile. If it is of another program, a note says so, which is returned.
    pub fn add_timing(&mut self, timing: Timing) -> Option<&str> {
        let note = mismatch(&timing, &self.stages);
        self.timing = Some(timing);
        self.notes.extend(note.clone());
        note.and(self.notes.last()).map(String::as_str)
    }
}

/// What tells that a profile is not of these programs, as a sentence; nothing if it may be of them.
fn mismatch(timing: &Timing, stages: &[Shown]) -> Option<String> {
    let last = &stages.last()?.trace;
    let target = last.target.to_string();
    if target != timing.target || !stages.iter().any(|stage| stage.trace.name == timing.function) {
        let (function, compiled) = (&timing.function, &timing.target);
        return Some(format!("the profile is of {function} for {compiled}, the program is {} for {target}", last.name));
    }
    let blocks = stages.iter().map(|stage| &stage.trace.block);
    let named = blocks.flat_map(|block| block.symbols.iter().map(move |symbol| (block, symbol)));
    let defined: FxHashSet<&str> =
        named.flat_map(|(block, symbol)| symbol.results.iter().map(|id| name(block, *id))).collect();
    let results = timing.spans.iter().map(|span| &*span.result).filter(|result| !result.is_empty());
    let (all, unknown) = (results.clone().count(), results.filter(|result| !defined.contains(result)).count());
    (unknown > 0).then(|| format!("{unknown} of the {all} symbols of the profile are not in the program"))
}

/// One stage of a program.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The stage: `acquire`, `claim`.
    pub name: String,
    /// The program.
    pub trace: Trace,
}

/// A text that cannot be read to its end.
#[derive(Debug, Clone)]
pub struct Unread {
    /// The text.
    pub text: String,
    /// The line of the error in the text, from 1.
    pub line: usize,
    /// The line of the error in the file that the text is of, from 1.
    pub place: usize,
    /// The column of the error, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}
