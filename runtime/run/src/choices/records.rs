//! The records of this machine, below the cache: measured where they are missing, followed from then on.
//!
//! Each record is a file of its own, so that processes which measure at once need not agree on more than one call: the
//! first record that is written is followed by all. The name is a hash of everything that the choice depends on, so
//! that a record of another device, driver or version is never read. A damaged one is measured anew.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fulgurite_kernels::caches::caches;
use fulgurite_kernels::folder::Folder;
use fulgurite_kernels::regular_file;
use rustc_hash::FxHashMap;

use super::budget::Done;
use super::call::Call;
use super::candidates::candidates;
use super::clock::Clock;
use super::entry::{Entry, Tried};
use super::floor::floor;
use super::journal::{Blame, Journal};
use super::machine::{Machine, VERSION};
use super::measure::{Measured, written};
use super::program;
use super::ranking::{Found, Question};
use super::text::{parse, print};
use crate::error::Result;
use crate::meta::{Device, Target};

/// Set to 0, nothing is measured and no record of this machine is followed.
pub const CHOOSE_VARIABLE: &str = "FULGURITE_CHOOSE";

/// Calls that take less by their bytes and arithmetic are left to the list: measuring costs more than it wins.
const SMALLEST: Duration = Duration::from_micros(20);
/// How long a record that is replaced waits for a process that measures.
const WAIT: Duration = Duration::from_secs(5);
/// Maximum size of all records, in bytes; the least recently used ones are removed.
const MOST_BYTES: u64 = 32 << 20;

/// The records of one device.
#[derive(Debug)]
pub struct Records {
    device: Device,
    target: Target,
    machine: Machine,
    smallest: Duration,
    folder: Option<Folder>,
    /// Whether records of the folder are replaced, and not read.
    again: bool,
    /// Whether they are those that compilations share, of which nobody knows when they measure.
    of_compilations: bool,
    known: Mutex<FxHashMap<Call, Known>>,
}

/// What is known of a call in this process.
#[derive(Debug, Clone)]
enum Known {
    /// There is nothing to choose, or not enough to win.
    Nothing,
    /// A record that is kept.
    Entry(Arc<Entry>),
    /// What was measured without all candidates, for a reason that may pass: it is no property of the device.
    Passing(Arc<Entry>),
    /// Why it was not measured.
    Left(String),
}

impl Known {
    fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Known::Entry(entry) | Known::Passing(entry) => Some(entry),
            Known::Nothing | Known::Left(_) => None,
        }
    }

    fn found(&self) -> Found {
        match self {
            Known::Nothing => Found::Nothing,
            Known::Entry(entry) | Known::Passing(entry) => Found::Entry(entry.clone()),
            Known::Left(reason) => Found::Ignored(reason.clone()),
        }
    }
}

/// A file of records.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The path of the record.
    pub path: PathBuf,
    /// Its record, or what is wrong with it.
    pub entry: Result<Entry, String>,
}

/// A candidate that ended the process that compiled or ran it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blamed {
    /// The call that was measured.
    pub call: String,
    /// The candidate.
    pub candidate: String,
    /// What it did, and how often.
    pub reason: String,
    /// Whether the next process that measures the call skips it. Otherwise that process tries it again.
    pub skipped: bool,
}

impl Records {
    /// The records of `device` that all compilations of this process share, below the cache.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn of(device: Device) -> Result<Arc<Records>> {
        static OPENED: Mutex<Vec<(Device, Arc<Records>)>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, records)) = opened.iter().find(|(known, _)| *known == device) {
            return Ok(records.clone());
        }
        let mut records = Records::new(device)?;
        records.folder = Records::cache().map(|path| Folder::new(path, MOST_BYTES));
        records.of_compilations = true;
        let records = Arc::new(records);
        opened.push((device, records.clone()));
        Ok(records)
    }

    /// Records of `device` that nobody keeps.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn new(device: Device) -> Result<Records> {
        let (target, machine) = (Target::of(device)?, Machine::of(device)?);
        let known = Mutex::default();
        let smallest = SMALLEST;
        Ok(Records { device, target, machine, smallest, folder: None, again: false, of_compilations: false, known })
    }

    /// Keeps records in this folder.
    pub fn keep_in(self, folder: impl Into<PathBuf>) -> Records {
        Records { folder: Some(Folder::new(folder, MOST_BYTES)), ..self }
    }

    /// Reads no record of the folder and tries candidates that ended a process: what is measured takes the place of
    /// what was recorded.
    pub fn again(self) -> Records {
        Records { again: true, ..self }
    }

    /// Measures what takes at least this long by its bytes and arithmetic.
    pub fn from(self, smallest: Duration) -> Records {
        Records { smallest, ..self }
    }

    /// The folder of records below the cache, if there is a cache.
    pub fn cache() -> Option<PathBuf> {
        Some(caches()?.join("choices"))
    }

    /// What programs are compiled for on the device.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What is known by now, in no order.
    pub fn known(&self) -> Vec<Arc<Entry>> {
        self.all_known().values().filter_map(Known::entry).cloned().collect()
    }

    /// Whether the record of a call is no property of the device, and is not kept: a candidate lacked memory, or was
    /// skipped since a process ended in the middle of it.
    pub fn is_passing(&self, call: &Call) -> bool {
        matches!(self.all_known().get(call), Some(Known::Passing(_)))
    }

    /// The records in a folder.
    pub fn kept(folder: &Path) -> Vec<Kept> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        files.sort();
        let read = |path: PathBuf| {
            let content = regular_file::read(&path).map_err(|error| error.to_string());
            let entry = content.and_then(|content| one(&content));
            Kept { path, entry }
        };
        files.into_iter().map(read).collect()
    }

    /// The candidates that ended a process of this user which kept records in a folder. None while a process measures.
    pub fn ended(folder: &Path) -> Vec<Blamed> {
        let of = |(call, candidate, blame): (String, String, Blame)| {
            let skipped = !blame.is_tried_again();
            Blamed { call, candidate, reason: blame.to_string(), skipped }
        };
        Journal::left(folder).into_iter().map(of).collect()
    }

    /// The device.
    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Whether no record is read.
    pub(super) fn is_again(&self) -> bool {
        self.again
    }

    /// Where records are kept, if they are.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(Folder::path)
    }

    fn all_known(&self) -> std::sync::MutexGuard<'_, FxHashMap<Call, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a record in the place of the one that is there. Candidates that ended a process that measured this call
    /// are forgotten: the record says what is known of them.
    pub fn replace(&self, entry: &Entry) {
        if let Some(folder) = &self.folder {
            let file = self.file(&entry.call);
            folder.keep(&file, &[print(std::slice::from_ref(entry)).as_bytes()]);
            match Journal::open(folder.path(), WAIT) {
                Ok(Some(journal)) => drop(written(journal.forget(&file))),
                Ok(None) => tracing::warn!("another process measures: candidates that ended a process stay blamed"),
                Err(error) => drop(written::<()>(Err(error))),
            }
        }
        self.all_known().insert(entry.call.clone(), Known::Entry(Arc::new(entry.clone())));
    }

    /// What is known of a call, or is recorded.
    pub(super) fn look_up(&self, question: &Question<'_>) -> Found {
        // Nor for several ranks: each would measure for itself, and equal states of two ranks would not stay equal.
        if *question.target != self.target {
            return Found::Nothing;
        }
        let call = question.call();
        if let Some(known) = self.all_known().get(&call) {
            return known.found();
        }
        let names = candidates(question);
        let known = if names.len() < 2 {
            Known::Nothing
        } else if Clock::is_recorded(self.device) {
            // While a profiler records what the device does, nothing is measured; a later compilation asks again.
            return Found::Nothing;
        } else if !is_costly(question, &names, self.smallest) {
            Known::Nothing
        } else {
            match (!self.again).then(|| self.read(&call)).flatten() {
                Some(entry) => Known::Entry(entry),
                None => return Found::Unmeasured,
            }
        };
        // Another compilation may have been told something else meanwhile, which stays.
        self.all_known().entry(call).or_insert(known).found()
    }

    /// The record of a call that is kept, if there is one that is whole.
    fn read(&self, call: &Call) -> Option<Arc<Entry>> {
        let file = self.file(call);
        let damaged = |reason: String| {
            let folder = self.folder.as_ref().map_or(Path::new(""), Folder::path);
            tracing::warn!("{} is damaged ({reason}); it is measured anew", folder.join(&file).display());
        };
        match self.folder.as_ref()?.read(&file) {
            Ok(Some(content)) => match self.good(&content, call) {
                Ok(entry) => return Some(Arc::new(entry)),
                Err(reason) => damaged(reason),
            },
            Err(error) => damaged(error.to_string()),
            Ok(None) => {}
        }
        None
    }

    /// Whether something is known of a call, or is recorded by now.
    pub(super) fn is_known(&self, question: &Question<'_>) -> bool {
        !matches!(self.look_up(question), Found::Unmeasured)
    }

    /// Says once what a compilation waits for: nothing else would.
    pub(super) fn tell(&self) {
        static TOLD: std::sync::Once = std::sync::Once::new();
        if self.of_compilations {
            TOLD.call_once(|| {
                tracing::warn!(
                    "measuring which executors are the fastest on {}, once for each costly call; FULGURITE_CHOOSE=0 \
                     follows the list",
                    self.device
                );
            });
        }
    }

    /// Keeps what was measured of a call; the record that another process wrote first is followed.
    pub(super) fn keep(&self, call: &Call, measured: Measured, journal: Option<&Journal>) -> Done {
        let lasting = measured.lasting;
        let entry = self.entry(call, measured);
        tracing::info!("{call}: {entry}");
        for Tried { by, outcome } in &entry.tried {
            if let Err(reason) = outcome {
                tracing::warn!("{call}: {by} is dropped: {reason}");
            }
        }
        if !lasting {
            return self.know(call, Known::Passing(Arc::new(entry)));
        }
        let file = self.file(call);
        let good = |content: &[u8]| self.good(content, call).ok();
        let text = print(std::slice::from_ref(&entry));
        let first = match &self.folder {
            Some(folder) if self.again => {
                folder.keep(&file, &[text.as_bytes()]);
                None
            }
            Some(folder) => folder.keep_first(&file, text.as_bytes(), good),
            None => None,
        };
        journal.and_then(|journal| written(journal.forget(&file)));
        self.know(call, Known::Entry(Arc::new(first.unwrap_or(entry))))
    }

    /// Leaves a call to the list in this process.
    pub(super) fn leave(&self, call: &Call, reason: String) -> Done {
        self.know(call, Known::Left(reason))
    }

    /// What another compilation was told meanwhile stays.
    fn know(&self, call: &Call, known: Known) -> Done {
        self.all_known().entry(call.clone()).or_insert(known);
        Done::Known
    }

    /// The candidates of a call that takes at least `smallest` by its bytes and arithmetic, what the list takes first.
    /// No device is needed.
    pub fn candidates(question: &Question<'_>, smallest: Duration) -> Option<Vec<&'static str>> {
        let names = candidates(question);
        (names.len() >= 2 && is_costly(question, &names, smallest)).then_some(names)
    }

    fn entry(&self, call: &Call, Measured { winner, tried, .. }: Measured) -> Entry {
        Entry {
            call: call.clone(),
            target: self.target.to_string(),
            device: self.machine.device.clone(),
            libraries: self.machine.libraries.clone(),
            version: VERSION.into(),
            winner,
            tried,
            note: None,
        }
    }

    /// The name of a call's file.
    pub(super) fn file(&self, call: &Call) -> String {
        let Machine { device, libraries } = &self.machine;
        let of = format!("{call:?} {} {device:?} {libraries:?} {VERSION}", self.target);
        format!("{}.jsonl", fulgurite_kernels::folder::hash(&of))
    }

    /// The record of a file, if it is the call's.
    fn good(&self, content: &[u8], call: &Call) -> Result<Entry, String> {
        let entry = one(content)?;
        let here = (&entry.call, &entry.target, &entry.device, &entry.libraries, entry.version.as_str())
            == (call, &self.target.to_string(), &self.machine.device, &self.machine.libraries, VERSION);
        if here { Ok(entry) } else { Err("it belongs to another call or machine".into()) }
    }
}

/// Whether a call takes at least `smallest` by the first of its candidates, on a thread of its own: that of a
/// compilation may be tracing.
fn is_costly(question: &Question<'_>, names: &[&str], smallest: Duration) -> bool {
    if smallest.is_zero() {
        return true;
    }
    let floor = || floor(question, names, &program::trace(question, false).ok()?);
    let floor = std::thread::scope(|scope| scope.spawn(floor).join()).ok().flatten();
    floor.is_none_or(|floor| floor >= smallest)
}

/// The only record of a file.
fn one(content: &[u8]) -> Result<Entry, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is no text")?;
    let entries = parse(text).map_err(|error| error.to_string())?;
    let [entry] =
        <[Entry; 1]>::try_from(entries).map_err(|all| format!("it has {} records, expected one", all.len()))?;
    Ok(entry)
}
