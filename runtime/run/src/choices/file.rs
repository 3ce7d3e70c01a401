//! Records in a file that the caller gives: shipped with a model, readable where no device is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;

use super::call::Call;
use super::entry::Entry;
use super::machine::{Machine, VERSION};
use super::ranking::{Choices, Found, Question, Told};
use super::text::parse;
use crate::error::{Error, Result};

/// The records of a file. Nothing is measured: a call without a record is left to the list.
#[derive(Debug)]
pub struct ChoicesFile {
    path: PathBuf,
    entries: FxHashMap<Call, Vec<Arc<Entry>>>,
    /// Of the device that programs run on; `None` where there is none, as in `trace show` on another machine.
    machine: Option<Machine>,
    warned: AtomicBool,
    /// Whether any record was followed.
    followed: AtomicBool,
}

impl ChoicesFile {
    /// Reads a file. `machine` is what its records must belong to; without one, records of every device of the target
    /// count, in the order of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or the first line that is wrong.
    pub fn read(path: &Path, machine: Option<Machine>) -> Result<ChoicesFile> {
        let refused = |message: String| Error::File { path: path.display().to_string(), message };
        let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let mut entries: FxHashMap<Call, Vec<Arc<Entry>>> = FxHashMap::default();
        for entry in parse(&text).map_err(|error| refused(error.to_string()))? {
            entries.entry(entry.call.clone()).or_default().push(Arc::new(entry));
        }
        Ok(ChoicesFile { path: path.to_owned(), entries, machine, warned: false.into(), followed: false.into() })
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.entries.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is said of a call without a record, if there is one of the operator for the same purpose.
    fn of_something_else(&self, call: &Call) -> Option<String> {
        let like = |other: &&Call| (&other.operator, other.purpose) == (&call.operator, call.purpose);
        let first = self.entries.keys().filter(like).min_by_key(|other| {
            let differs = [other.precisions != call.precisions, other.arguments != call.arguments];
            (differs, other.executors != call.executors, *other)
        })?;
        if first.precisions != call.precisions {
            let (of, here) = (first.precisions, call.precisions);
            return Some(format!("the file has a record of it with precision {of}, here it is {here}"));
        }
        if first.arguments == call.arguments && first.executors != call.executors {
            return Some(measured_with(&first.executors, &call.executors));
        }
        let of =
            |is_program| if is_program { "as a program of its own" } else { "as one of several calls of a program" };
        Some(match first.arguments == call.arguments {
            true => format!("the file has a record of it {}, here it is {}", of(first.is_program), of(call.is_program)),
            false => format!("the file has a record of it for {}", first.arguments),
        })
    }

    /// Why a record does not count here.
    fn foreign(&self, entry: &Entry, target: &str) -> Option<String> {
        if entry.target != target {
            return Some(format!("its record is of {}, the target is {target}", entry.target));
        }
        let machine = self.machine.as_ref()?;
        let differs = |what: &str, recorded: &str, here: &str| {
            (recorded != here).then(|| format!("its record is of {what} {recorded}, here is {here}"))
        };
        differs("device", &entry.device, &machine.device)
            .or_else(|| differs("libraries", &entry.libraries, &machine.libraries))
            .or_else(|| differs("fulgurite", &entry.version, VERSION))
    }
}

/// What is said of a record that was `measured` with other versions of executors, other values of tuned parameters or
/// other options than there are `here`.
fn measured_with(measured: &str, here: &str) -> String {
    let lacking = |all: &str, others: &str| {
        let known: Vec<&str> = others.split(", ").collect();
        all.split(", ").filter(|one| !known.contains(one)).collect::<Vec<&str>>().join(", ")
    };
    match lacking(measured, here) {
        gone if gone.is_empty() => format!("the file has a record of it without {}", lacking(here, measured)),
        gone if here.is_empty() => format!("the file has a record of it with {gone}, which is not here"),
        gone => format!("the file has a record of it with {gone}, which is not here; there is {here}"),
    }
}

impl Choices for ChoicesFile {
    fn find(&self, question: &Question<'_>) -> Found {
        let call = question.call();
        let target = question.target.of_one_rank().to_string();
        let good = |entries: &&Vec<Arc<Entry>>| entries.iter().any(|entry| self.foreign(entry, &target).is_none());
        let own = self.entries.get(&call);
        // What is known of the call in other programs is better than nothing.
        let elsewhere = self.entries.get(&call.elsewhere());
        let Some(entries) = own.filter(good).or(elsewhere.filter(good)).or(own).or(elsewhere) else {
            return self.of_something_else(&call).map_or(Found::Nothing, Found::Ignored);
        };
        match entries.iter().find(|entry| self.foreign(entry, &target).is_none()) {
            Some(entry) => {
                self.followed.store(true, Ordering::Relaxed);
                Found::Entry(entry.clone())
            }
            None => {
                let reason = entries.first().and_then(|entry| self.foreign(entry, &target)).unwrap_or_default();
                // Once: the others are of the same device as a rule.
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{}: {call}: {reason}; the list decides", self.path.display());
                }
                Found::Ignored(reason)
            }
        }
    }

    fn compiled(&self, told: &[Told]) {
        let none = self.machine.is_some() && !self.followed.load(Ordering::Relaxed);
        if none && !self.warned.swap(true, Ordering::Relaxed) {
            let (path, count) = (self.path.display(), self.len());
            if count == 0 {
                return tracing::warn!("{path}: no records; the list decides");
            }
            let why = told.iter().find(|told| told.outcome.is_err()).map(|told| format!(" ({told})"));
            let why = why.unwrap_or_default();
            tracing::warn!("{path}: no record ({count} in all) is of a call of this program{why}; the list decides");
        }
    }
}
