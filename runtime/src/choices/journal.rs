//! What is being measured, written down beforehand: a candidate that ends its process is known to the next one.
//!
//! The file `measuring.log` in the folder of records has a line of JSON for the candidate that is being run, appended
//! before it is compiled or run, and taken away when it has ended. A process holds the lock of the file as long as it
//! measures, so that processes measure one after the other, and a line that is found by who has the lock is of a
//! process that ended in the middle. Such lines stay, and their candidates are skipped, until a record names them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The file's name.
const NAME: &str = "measuring.log";
/// How often a process that waits for its turn looks whether it has come.
const POLL: Duration = Duration::from_millis(20);
/// Lines that are kept at most: those of older versions of drivers and libraries are never asked for again.
const MOST_LINES: usize = 200;

/// The file, held alone.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// Where the lines of ended processes end.
    kept: u64,
    lines: Vec<Line>,
    begun: Option<Line>,
}

/// A candidate that ended its process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// The name of the call's record.
    record: String,
    candidate: String,
    call: String,
}

impl Line {
    fn text(&self) -> String {
        format!("{}\n", json!({"record": self.record, "candidate": self.candidate, "call": self.call}))
    }

    fn read(line: &str) -> Option<Line> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        Some(Line { record: text("record")?, candidate: text("candidate")?, call: text("call")? })
    }
}

impl Journal {
    /// The journal of a folder; `None` if another process holds it for longer than `patience`.
    ///
    /// # Errors
    /// If the file can be neither read nor made.
    pub(super) fn open(folder: &Path, patience: Duration) -> io::Result<Option<Journal>> {
        fs::create_dir_all(folder)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
        let mut file = options.open(folder.join(NAME))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if start.elapsed() < patience => std::thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let mut journal = Journal { file, kept: 0, lines: lines(&content), begun: None };
        journal.write_lines()?;
        Ok(Some(journal))
    }

    /// The calls and candidates of the lines of ended processes, of which no record was written yet. None while a
    /// process measures.
    pub(super) fn left(folder: &Path) -> Vec<(String, String)> {
        let Ok(mut file) = File::open(folder.join(NAME)) else { return Vec::new() };
        let mut content = Vec::new();
        if file.try_lock_shared().is_err() || file.read_to_end(&mut content).is_err() {
            return Vec::new();
        }
        lines(&content).into_iter().map(|line| (line.call, line.candidate)).collect()
    }

    /// Whether a candidate ended a process that measured it for this record.
    pub(super) fn blames(&self, record: &str, candidate: &str) -> bool {
        self.lines.iter().any(|line| line.record == record && line.candidate == candidate)
    }

    /// Says that a candidate is about to be compiled or run.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn begin(&mut self, record: &str, call: &str, candidate: &str) -> io::Result<()> {
        let line = Line { record: record.into(), candidate: candidate.into(), call: call.into() };
        // In one piece: it is in the file, or it is not.
        self.file.write_all(line.text().as_bytes())?;
        self.begun = Some(line);
        Ok(())
    }

    /// Says that it has ended.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.begun = None;
        self.file.set_len(self.kept)
    }

    /// Keeps the line of what was begun last: the device runs nothing after it.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn blame(&mut self) -> io::Result<()> {
        self.lines.extend(self.begun.take());
        self.kept = self.file.metadata()?.len();
        Ok(())
    }

    /// Takes away the lines of a record that was written, which names their candidates.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn forget(&mut self, record: &str) -> io::Result<()> {
        let before = self.lines.len();
        self.lines.retain(|line| line.record != record);
        if self.lines.len() < before { self.write_lines() } else { Ok(()) }
    }

    fn write_lines(&mut self) -> io::Result<()> {
        let surplus = self.lines.len().saturating_sub(MOST_LINES);
        self.lines.drain(..surplus);
        let text: String = self.lines.iter().map(Line::text).collect();
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())?;
        self.kept = text.len() as u64;
        Ok(())
    }
}

/// The lines of a journal. One that was not written to its end says of no candidate that it was run.
fn lines(content: &[u8]) -> Vec<Line> {
    String::from_utf8_lossy(content).lines().filter_map(Line::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Journal {
        Journal::open(folder, Duration::ZERO).unwrap().unwrap()
    }

    #[test]
    fn what_was_begun_and_not_ended_is_blamed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("below");
        let mut journal = open(&folder);
        journal.begin("a", "gelu(..)", "fast").unwrap();
        journal.end().unwrap();
        journal.begin("a", "gelu(..)", "broken").unwrap();
        // The process ends here.
        drop(journal);
        let mut journal = open(&folder);
        assert!(journal.blames("a", "broken") && !journal.blames("a", "fast") && !journal.blames("b", "broken"));
        // Others are measured, and another one ends the process.
        journal.begin("a", "gelu(..)", "fast").unwrap();
        journal.end().unwrap();
        journal.begin("b", "softmax(..)", "worse").unwrap();
        drop(journal);
        let mut journal = open(&folder);
        assert!(journal.blames("a", "broken") && journal.blames("b", "worse"));
        assert!(Journal::left(&folder).is_empty(), "somebody measures");
        // A record that was written says it from then on.
        journal.forget("a").unwrap();
        assert!(!journal.blames("a", "broken"));
        drop(journal);
        assert_eq!(Journal::left(&folder), [("softmax(..)".to_owned(), "worse".to_owned())]);
        assert!(Journal::left(home.path()).is_empty(), "there is no journal");
        let journal = open(&folder);
        assert!(!journal.blames("a", "broken") && journal.blames("b", "worse"));
    }

    #[test]
    fn a_fault_of_the_device_is_blamed_while_the_process_goes_on() {
        let home = tempfile::tempdir().unwrap();
        let mut journal = open(home.path());
        journal.begin("a", "gelu(..)", "broken").unwrap();
        journal.blame().unwrap();
        journal.begin("a", "gelu(..)", "fast").unwrap();
        journal.end().unwrap();
        drop(journal);
        assert!(open(home.path()).blames("a", "broken") && !open(home.path()).blames("a", "fast"));
    }

    #[test]
    fn one_process_has_it_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path());
        assert!(Journal::open(home.path(), Duration::ZERO).unwrap().is_none());
        drop(first);
        assert!(Journal::open(home.path(), Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn a_line_that_is_cut_off_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let mut journal = open(home.path());
        journal.begin("a", "gelu(..)", "broken").unwrap();
        journal.blame().unwrap();
        journal.begin("b", "softmax(..)", "worse").unwrap();
        drop(journal);
        let path = home.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let mut journal = open(home.path());
        assert!(journal.blames("a", "broken") && !journal.blames("b", "worse"));
        // What follows is on a line of its own.
        journal.begin("c", "tanh(..)", "third").unwrap();
        drop(journal);
        assert!(open(home.path()).blames("c", "third"));
        fs::write(&path, b"\xff\xfe no lines").unwrap();
        assert!(open(home.path()).lines.is_empty());
    }

    #[test]
    fn the_oldest_lines_go() {
        let home = tempfile::tempdir().unwrap();
        let mut journal = open(home.path());
        for record in 0..MOST_LINES + 5 {
            journal.begin(&record.to_string(), "gelu(..)", "broken").unwrap();
            journal.blame().unwrap();
        }
        drop(journal);
        let journal = open(home.path());
        assert_eq!(journal.lines.len(), MOST_LINES);
        assert!(journal.blames(&(MOST_LINES + 4).to_string(), "broken") && !journal.blames("4", "broken"));
    }
}
