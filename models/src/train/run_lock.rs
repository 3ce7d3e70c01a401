//! The lock of a run's folder: one run at a time writes there.
//!
//! A run holds an operating system's lock on `.run.lock` in its folder. The system releases it when the process ends,
//! however it ends, so a folder is never locked by a run that was killed. The file says which process holds it, and is
//! removed with the lock.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fulgurite_kernels::machine::host_name;
use fulgurite_kernels::regular_file;
use fulgurite_runtime::{Error, Result};

/// The file that is locked.
const FILE: &str = ".run.lock";
/// Attempts to lock a file that others remove meanwhile.
const MOST_ATTEMPTS: usize = 100;
/// Bytes of the file that a message repeats at most.
const MOST_WORDS: u64 = 200;

/// A folder that only its holder writes a run to, until it is dropped.
#[derive(Debug)]
pub struct RunLock {
    path: PathBuf,
    /// `None` where the file system has no locks.
    file: Option<File>,
    /// Folders that were made for the run, the innermost first.
    made: Vec<PathBuf>,
}

impl RunLock {
    /// Locks a folder, which is made if it is not there. A folder that was made, and that nothing was written to, is
    /// removed with the lock.
    ///
    /// # Errors
    /// If another run holds it: which process, and since when. If the folder cannot be made or written to.
    pub fn take(folder: &Path) -> Result<RunLock> {
        let failed = |message: String| Error::File { path: folder.display().to_string(), message };
        let mut lock = RunLock { path: folder.join(FILE), file: None, made: Vec::new() };
        for _ in 0..MOST_ATTEMPTS {
            lock.make(folder).map_err(|error| failed(error.to_string()))?;
            let file = match regular_file::open_lock(&lock.path) {
                // Another run removed the folder that it had made.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(|error| failed(format!("cannot be locked for this run: {error}")))?,
            };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&file);
                    return Err(failed(format!(
                        "another run writes to this folder: {holder}; wait until it ends, or give this run a folder of \
                         its own (--out)"
                    )));
                }
                Err(TryLockError::Error(error)) => {
                    tracing::warn!("{} cannot be locked ({error}): start no second run there", folder.display());
                    return Ok(lock);
                }
                // The run before this one removed the file after it was opened here: another run may lock a new one.
                Ok(()) if !regular_file::is_named(&lock.path, &file) => continue,
                Ok(()) => {}
            }
            // What the file says is for a message; the lock holds without it.
            if let Err(error) = note(&file) {
                tracing::warn!("{}: {error}", lock.path.display());
            }
            lock.file = Some(file);
            return Ok(lock);
        }
        Err(failed(format!("other runs began and ended here {MOST_ATTEMPTS} times, and none could be locked out")))
    }

    /// Makes the folder and those above it, and notes which were not there.
    fn make(&mut self, folder: &Path) -> io::Result<()> {
        let above = folder.ancestors().filter(|above| !above.as_os_str().is_empty());
        let missing: Vec<PathBuf> = above.take_while(|above| !above.exists()).map(Path::to_owned).collect();
        std::fs::create_dir_all(folder)?;
        if !missing.is_empty() {
            self.made = missing;
        }
        Ok(())
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Before the lock is released: a process that opened it sees that it is gone. One that stays locks nobody
            // out.
            let _ = std::fs::remove_file(&self.path);
        }
        for folder in &self.made {
            // Only an empty folder is removed.
            if std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// Writes which process holds the lock.
fn note(mut file: &File) -> io::Result<()> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let host = host_name().map_or_else(String::new, |host| format!(" on {host}"));
    let words = format!("process {}{host}, since {}\n", std::process::id(), utc(seconds));
    file.set_len(0)?;
    file.write_all(words.as_bytes())
}

/// Which process holds the lock, as the file says.
fn holder(file: &File) -> String {
    let mut bytes = Vec::new();
    // A file that cannot be read says nothing.
    let _ = file.take(MOST_WORDS).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let words: String = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    if words.is_empty() { "a process that has only just begun".to_owned() } else { words }
}

/// A time in seconds since 1970 in words, `2026-11-28 05:16:04 UTC`.
fn utc(seconds: u64) -> String {
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_has_a_folder_and_the_next_one_is_told_which() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("runs/two");
        let first = RunLock::take(&folder).unwrap();
        let error = RunLock::take(&folder).unwrap_err().to_string();
        let own = format!("another run writes to this folder: process {}", std::process::id());
        assert!(error.contains(&own) && error.contains(", since 20") && error.contains("--out"), "{error}");
        std::fs::write(folder.join("result"), "x").unwrap();
        drop(first);
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["result"]);
        drop(RunLock::take(&folder).unwrap());
        assert!(folder.join("result").exists(), "a folder that is not empty stays");
    }

    #[test]
    fn a_folder_that_was_made_for_nothing_is_removed() {
        let home = tempfile::tempdir().unwrap();
        drop(RunLock::take(&home.path().join("runs/none")).unwrap());
        assert!(!home.path().join("runs").exists());
        drop(RunLock::take(home.path()).unwrap());
        assert!(home.path().exists(), "one that was there stays");
    }

    /// As a killed process leaves it.
    #[test]
    fn a_file_without_a_lock_is_no_run() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), "process 1, since 1970-01-01 00:00:00 UTC, and much more\n").unwrap();
        let lock = RunLock::take(home.path()).unwrap();
        let error = RunLock::take(home.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())) && !error.contains("more"), "{error}");
        drop(lock);
    }

    #[test]
    fn of_many_that_begin_at_once_one_has_it_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let (folder, holders) = (home.path().join("run"), std::sync::atomic::AtomicUsize::new(0));
        let taken: usize = std::thread::scope(|scope| {
            let one = || {
                let tries = (0..200).filter(|_| {
                    let Ok(lock) = RunLock::take(&folder) else { return false };
                    assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(lock);
                    true
                });
                tries.count()
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(taken > 0);
    }

    #[test]
    fn a_time_is_told_as_a_date() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_842_964), "2026-11-28 05:16:04 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }
}
