//! What is being measured, written down beforehand: a candidate that ends its process is known to the next one.
//!
//! In the folder of records, `measuring.lock` is held by a process as long as it measures, so that processes measure
//! one after the other. `measuring-USER.log`, a file for each user, has a line of JSON for each candidate that is being
//! compiled or run, appended before that, and a second line when it has ended. So a line without an end that the holder
//! of the lock finds is of a process that ended in the middle. The candidate may have ended it, or the user by Ctrl-C.
//! The next process skips the candidate; the one after that tries it again; after a second such line, or a fault of the
//! device, it is skipped for good. Its lines go when a record of the call is written.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fulgurite_kernels::machine::user;
use fulgurite_kernels::regular_file;
use serde_json::{Value, json};
use tempfile::Builder;

/// The file that a measuring process locks.
const LOCK: &str = "measuring.lock";
/// How often a process that waits for its turn looks whether it has come.
const POLL: Duration = Duration::from_millis(20);
/// Lines that are kept at most: those of older versions of drivers and libraries are never asked for again.
const MOST_LINES: usize = 200;

/// The lines of this user, in a folder whose lock is held.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Held until it is dropped.
    _lock: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` if this user cannot write to the folder.
    file: Option<File>,
    /// Where the lines of ended processes end.
    kept: u64,
    /// The lines of ended processes.
    lines: Vec<Line>,
    /// Of what is being compiled or run, with their numbers.
    open: Vec<(u64, Line)>,
    /// How many were begun.
    begun: u64,
}

/// What a line says of its candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It is being compiled.
    Compiling,
    /// It is being run.
    Running,
    /// The device runs nothing any more after it.
    Fault,
    /// A process skipped it.
    Skipped,
}

impl What {
    const ALL: [What; 4] = [What::Compiling, What::Running, What::Fault, What::Skipped];

    fn name(self) -> &'static str {
        match self {
            What::Compiling => "compiling",
            What::Running => "running",
            What::Fault => "fault",
            What::Skipped => "skipped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// The name of the call's record.
    record: String,
    candidate: String,
    call: String,
    what: What,
}

impl Line {
    fn json(&self) -> Value {
        let Line { record, candidate, call, what } = self;
        json!({"record": record, "candidate": candidate, "call": call, "what": what.name()})
    }

    fn text(&self) -> String {
        format!("{}\n", self.json())
    }

    /// A line that another one will end.
    fn numbered(&self, number: u64) -> String {
        let mut value = self.json();
        value["number"] = json!(number);
        format!("{value}\n")
    }

    fn read(value: &Value) -> Option<Line> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let what = text("what")?;
        let what = What::ALL.into_iter().find(|own| own.name() == what)?;
        Some(Line { record: text("record")?, candidate: text("candidate")?, call: text("call")?, what })
    }

    fn is_of(&self, record: &str, candidate: &str) -> bool {
        self.record == record && self.candidate == candidate
    }
}

/// What the lines of a candidate say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blame {
    /// The last line but those of processes that skipped it.
    what: What,
    /// Lines of processes that ended.
    times: usize,
    /// Whether a process skipped it since.
    skipped: bool,
}

impl Blame {
    fn of<'a>(lines: impl Iterator<Item = &'a Line>) -> Option<Blame> {
        let mut blame = None;
        for line in lines {
            blame = match (line.what, blame) {
                (What::Skipped, before) => before.map(|before| Blame { skipped: true, ..before }),
                (what, before) => {
                    Some(Blame { what, times: 1 + before.map_or(0, |one: Blame| one.times), skipped: false })
                }
            };
        }
        blame
    }

    /// Whether no process tries it again.
    pub(super) fn is_for_good(self) -> bool {
        self.times > 1 || self.what == What::Fault
    }

    /// Whether the next process tries it again.
    pub(super) fn is_tried_again(self) -> bool {
        self.skipped && !self.is_for_good()
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.what {
            What::Compiling => "ended the process that compiled it",
            What::Fault => "ended the work of the device",
            What::Running | What::Skipped => "ended the process that ran it",
        })?;
        match self.times {
            ..2 => Ok(()),
            2 => f.write_str(", twice"),
            times => write!(f, ", {times} times"),
        }
    }
}

impl Journal {
    /// The journal of a folder; `None` if another process holds it for longer than `patience`.
    ///
    /// # Errors
    /// If there is no lock and none can be made, or the lines cannot be read.
    pub(super) fn open(folder: &Path, patience: Duration) -> io::Result<Option<Journal>> {
        fs::create_dir_all(folder)?;
        let lock = regular_file::open_lock(&folder.join(LOCK))?;
        let start = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if start.elapsed() < patience => std::thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let path = folder.join(name());
        let content = own_content(&path).unwrap_or_else(|error| {
            tracing::warn!("{error}; candidates that ended a process are not known");
            Vec::new()
        });
        let mut state = State { file: None, kept: 0, lines: lines(&content), open: Vec::new(), begun: 0 };
        if let Err(error) = state.write(&path) {
            tracing::warn!("{}: what is measured cannot be written down: {error}", path.display());
        }
        Ok(Some(Journal { path, _lock: lock, state: Mutex::new(state) }))
    }

    /// The calls and candidates of the lines of ended processes, and what they say. None while a process measures.
    pub(super) fn left(folder: &Path) -> Vec<(String, String, Blame)> {
        let held = regular_file::open(&folder.join(LOCK));
        if held.as_ref().is_ok_and(|file| file.try_lock_shared().is_err()) {
            return Vec::new();
        }
        let lines = lines(&own_content(&folder.join(name())).unwrap_or_default());
        let mut left: Vec<(String, String, Blame)> = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let of = |other: &&Line| other.is_of(&line.record, &line.candidate);
            if lines[..at].iter().any(|other| of(&other)) {
                continue;
            }
            left.extend(
                Blame::of(lines.iter().filter(of)).map(|blame| (line.call.clone(), line.candidate.clone(), blame)),
            );
        }
        left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ended processes say of a candidate for this record.
    pub(super) fn blame(&self, record: &str, candidate: &str) -> Option<Blame> {
        Blame::of(self.state().lines.iter().filter(|line| line.is_of(record, candidate)))
    }

    /// Whether a candidate is blamed for this record.
    pub(super) fn blames(&self, record: &str) -> bool {
        self.state().lines.iter().any(|line| line.record == record)
    }

    /// Says that a candidate is about to be compiled or run; the number of the line.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn begin(&self, record: &str, call: &str, candidate: &str, what: What) -> io::Result<u64> {
        let line = Line { record: record.into(), candidate: candidate.into(), call: call.into(), what };
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.append(&line.numbered(number))?;
        state.open.push((number, line));
        Ok(number)
    }

    /// Says that what has this number has ended.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn end(&self, number: u64) -> io::Result<()> {
        let mut state = self.state();
        state.open.retain(|(other, _)| *other != number);
        match (state.open.is_empty(), state.kept, &state.file) {
            (true, kept, Some(file)) => file.set_len(kept),
            _ => state.append(&format!("{}\n", json!({"ended": number}))),
        }
    }

    /// Says that the device runs nothing after what has this number.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn fault(&self, number: u64) -> io::Result<()> {
        let mut state = self.state();
        if let Some(at) = state.open.iter().position(|(other, _)| *other == number) {
            let (_, line) = state.open.remove(at);
            state.lines.push(Line { what: What::Fault, ..line });
        }
        state.write(&self.path)
    }

    /// Says that this process measures without a candidate.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn skip(&self, record: &str, call: &str, candidate: &str) -> io::Result<()> {
        let mut state = self.state();
        let what = What::Skipped;
        state.lines.push(Line { record: record.into(), candidate: candidate.into(), call: call.into(), what });
        state.write(&self.path)
    }

    /// Takes away the lines of a record that was written, which names their candidates.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn forget(&self, record: &str) -> io::Result<()> {
        let mut state = self.state();
        let before = state.lines.len();
        state.lines.retain(|line| line.record != record);
        if state.lines.len() < before { state.write(&self.path) } else { Ok(()) }
    }
}

impl State {
    /// In one piece: the line is in the file, or it is not.
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()))
    }

    /// Has the file say what the lines do. It is written as a whole and takes the place of the one before: a process
    /// that is ended meanwhile leaves one of the two.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let surplus = self.lines.len().saturating_sub(MOST_LINES);
        self.lines.drain(..surplus);
        let mut text: String = self.lines.iter().map(Line::text).collect();
        let kept = text.len() as u64;
        text.extend(self.open.iter().map(|(number, line)| line.numbered(*number)));
        // The file that lines are appended to is always one that this process made: nobody has put another one there,
        // or given one of this user's files a second name.
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut builder = Builder::new();
        builder.prefix(PREFIX).append(true);
        #[cfg(unix)]
        builder.permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644));
        let mut whole = builder.tempfile_in(folder)?;
        whole.write_all(text.as_bytes())?;
        self.file = Some(whole.persist(path)?);
        self.kept = kept;
        Ok(())
    }
}

/// What the next file is called until it is whole. One of a process that was killed is removed with the files of the
/// folder of records.
const PREFIX: &str = ".fulgurite-partial-";

/// The name of this user's file.
fn name() -> String {
    format!("measuring-{}.log", user())
}

/// The content of this user's file; nothing if there is none.
///
/// # Errors
/// Those of [`regular_file::open`], and that of a file of another user, which may contain anything.
fn own_content(path: &Path) -> io::Result<Vec<u8>> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    #[cfg(unix)]
    {
        let owner = std::os::unix::fs::MetadataExt::uid(&file.metadata()?);
        if owner != user() {
            let message = format!("'{}' belongs to user {owner}, and is not read", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    regular_file::content(&file)
}

/// The lines of a journal that were not ended. One that was not written to its end says of no candidate that it was
/// run.
fn lines(content: &[u8]) -> Vec<Line> {
    let mut lines: Vec<(Option<u64>, Line)> = Vec::new();
    for text in String::from_utf8_lossy(content).lines() {
        let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        if let Some(ended) = number("ended") {
            lines.retain(|(number, _)| *number != Some(ended));
        } else if let Some(line) = Line::read(&value) {
            lines.push((number("number"), line));
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
