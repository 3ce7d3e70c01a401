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
use rustc_hash::FxHashMap;

use super::call::Call;
use super::candidates::candidates;
use super::clock::Clock;
use super::entry::Entry;
use super::floor::floor;
use super::machine::{Machine, VERSION};
use super::measure::{self, Measured};
use super::program;
use super::ranking::{Choices, Found, Question};
use super::text::{parse, print};
use crate::error::Result;
use crate::meta::{Device, Target};

/// Set to 0, nothing is measured and no record of this machine is followed.
pub const CHOOSE_VARIABLE: &str = "FULGURITE_CHOOSE";

/// Calls that take less by their bytes and arithmetic are left to the list: measuring costs more than it wins.
const SMALLEST: Duration = Duration::from_micros(20);
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
    /// Whether they are those that compilations share, of which nobody knows when they measure.
    of_compilations: bool,
    known: Mutex<FxHashMap<Call, Option<Arc<Entry>>>>,
}

/// A file of records.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// Its record, or what is wrong with it.
    pub entry: Result<Entry, String>,
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
        Ok(Records { device, target, machine, smallest: SMALLEST, folder: None, of_compilations: false, known })
    }

    /// Keeps records in this folder.
    pub fn keep_in(self, folder: impl Into<PathBuf>) -> Records {
        Records { folder: Some(Folder::new(folder, MOST_BYTES)), ..self }
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
        self.all_known().values().flatten().cloned().collect()
    }

    /// The records in a folder.
    pub fn kept(folder: &Path) -> Vec<Kept> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        files.sort();
        let read = |path: PathBuf| {
            let content = std::fs::read(&path).map_err(|error| error.to_string());
            let entry = content.and_then(|content| one(&content));
            Kept { path, entry }
        };
        files.into_iter().map(read).collect()
    }

    fn all_known(&self) -> std::sync::MutexGuard<'_, FxHashMap<Call, Option<Arc<Entry>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a question would have candidates measured now.
    pub fn would_measure(&self, question: &Question<'_>) -> bool {
        let known = || self.all_known().contains_key(&question.call());
        *question.target == self.target
            && candidates(question).len() >= 2
            && !known()
            && is_costly(question, self.smallest)
    }

    /// Keeps a record in the place of the one that is there.
    pub fn replace(&self, entry: &Entry) {
        if let Some(folder) = &self.folder {
            folder.keep(&self.file(&entry.call), &[print(std::slice::from_ref(entry)).as_bytes()]);
        }
        self.all_known().insert(entry.call.clone(), Some(Arc::new(entry.clone())));
    }

    /// The record of a call, read or measured now; `None` if the list decides.
    fn look_up(&self, question: &Question<'_>, call: &Call) -> Option<Arc<Entry>> {
        let file = self.file(call);
        let damaged = |reason: String| {
            let folder = self.folder.as_ref().map_or(Path::new(""), Folder::path);
            tracing::warn!("{} is damaged ({reason}); it is measured anew", folder.join(&file).display());
        };
        match self.folder.as_ref().map(|folder| folder.read(&file)) {
            Some(Ok(Some(content))) => match self.good(&content, call) {
                Ok(entry) => return Some(Arc::new(entry)),
                Err(reason) => damaged(reason),
            },
            Some(Err(error)) => damaged(error.to_string()),
            Some(Ok(None)) | None => {}
        }
        // It takes seconds for each call, and nothing else would say what a compilation waits for.
        static TOLD: std::sync::Once = std::sync::Once::new();
        let tell = || {
            tracing::warn!(
                "measuring which executors are the fastest on {}, once for each costly call; FULGURITE_CHOOSE=0 follows \
                 the list",
                self.device
            );
        };
        if self.of_compilations {
            TOLD.call_once(tell);
        }
        let measured = match self.measured(question) {
            Ok(measured) => measured?,
            Err(error) => {
                tracing::warn!("{call} cannot be measured: {error}");
                return None;
            }
        };
        let entry = self.entry(call, measured);
        tracing::info!("{call}: {entry}");
        let good = |content: &[u8]| self.good(content, call).ok();
        let text = print(std::slice::from_ref(&entry));
        let first = self.folder.as_ref().and_then(|folder| folder.keep_first(&file, text.as_bytes(), good));
        Some(Arc::new(first.unwrap_or(entry)))
    }

    /// Measures on a thread of its own: the thread of a compilation may be tracing.
    fn measured(&self, question: &Question<'_>) -> Result<Option<Measured>> {
        let measure = || measure::measure(question, self.device);
        let done = std::thread::scope(|scope| scope.spawn(measure).join());
        Clock::release(self.device);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The candidates of a call that takes at least `smallest` by its bytes and arithmetic, what the list takes first.
    /// No device is needed.
    pub fn candidates(question: &Question<'_>, smallest: Duration) -> Option<Vec<&'static str>> {
        let names = candidates(question);
        (names.len() >= 2 && is_costly(question, smallest)).then_some(names)
    }

    fn entry(&self, call: &Call, Measured { winner, tried }: Measured) -> Entry {
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
    fn file(&self, call: &Call) -> String {
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

/// Whether a call takes at least `smallest`, on a thread of its own: that of a compilation may be tracing.
fn is_costly(question: &Question<'_>, smallest: Duration) -> bool {
    if smallest.is_zero() {
        return true;
    }
    let floor = || floor(question, &program::trace(question, false).ok()?);
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

impl Choices for Records {
    fn find(&self, question: &Question<'_>) -> Found {
        // One at a time: what is measured at once disturbs one another.
        static MEASURING: Mutex<()> = Mutex::new(());
        let found = |entry: &Option<Arc<Entry>>| entry.clone().map_or(Found::Nothing, Found::Entry);
        if *question.target != self.target {
            return Found::Nothing;
        }
        let call = question.call();
        if let Some(known) = self.all_known().get(&call) {
            return found(known);
        }
        let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.all_known().get(&call) {
            return found(known);
        }
        if candidates(question).len() < 2 {
            self.all_known().insert(call, None);
            return Found::Nothing;
        }
        // Who records what the device does gets nothing measured meanwhile.
        if Clock::is_recorded(self.device) {
            return Found::Nothing;
        }
        let entry = if is_costly(question, self.smallest) { self.look_up(question, &call) } else { None };
        let answer = found(&entry);
        self.all_known().insert(call, entry);
        answer
    }
}
