//! What a page is about.

use std::sync::Arc;

use fulgurite_runtime::comparison::Comparison;
use fulgurite_runtime::cost::Totals;
use fulgurite_runtime::device::Source;
use fulgurite_runtime::trace::Trace;

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
    /// A text that is no trace, with the error.
    pub unread: Option<Unread>,
}

/// The program compiled with one executor asked before all others.
#[derive(Debug, Clone)]
pub struct Order {
    /// The executor.
    pub first: String,
    /// What that changes, or why the program cannot be compiled so.
    pub outcome: Result<Reordered, String>,
}

/// What another order of the executors changes.
#[derive(Debug, Clone)]
pub struct Reordered {
    /// The lines, once they are claimed.
    pub claimed: Comparison,
    /// The cost of the planned program in the usual order.
    pub before: Totals,
    /// The cost of the planned program in this order.
    pub after: Totals,
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
    /// The line of the error, from 1.
    pub line: usize,
    /// The column of the error, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}
