//! Folders that processes, and users, keep files in together: each file is there as a whole or not at all, readable by
//! every user who may read the folder, and the oldest are removed when there are too many.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tempfile::{Builder, NamedTempFile};

use crate::regular_file;

/// A process checks the size of a folder at its first file and then after this number of files.
const PRUNE_EVERY: usize = 256;
/// A file that was used says so once in this time.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How full a folder is left when it was too full.
const LEFT: f64 = 0.75;
/// What temporary files start with.
const PREFIX: &str = ".fulgurite-partial-";
/// The file that writers lock in turn.
const LOCK: &str = ".lock";
/// How long a process waits for that file. Its holder writes one small file.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a process that waits for the file looks whether it is free.
const POLL: Duration = Duration::from_millis(10);

/// A folder of files of one kind.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Bytes of all files together.
    most: u64,
    /// How long a process waits for its turn.
    patience: Duration,
    written: AtomicUsize,
    complained: AtomicBool,
}

impl Folder {
    /// A folder that keeps at most `most` bytes. It is made when something is kept.
    pub fn new(path: impl Into<PathBuf>, most: u64) -> Folder {
        let (written, complained) = (AtomicUsize::new(0), AtomicBool::new(false));
        Folder { path: path.into(), most, patience: PATIENCE, written, complained }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of [`regular_file::open`] and [`regular_file::content`].
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match regular_file::open(&self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let content = regular_file::content(&file)?;
        mark_used(&file);
        Ok(Some(content))
    }

    /// Keeps a file, in the place of another of its name. A folder that cannot be written is a warning, once a process.
    pub fn keep(&self, name: &str, parts: &[&[u8]]) {
        let kept = self.temporary(parts).and_then(|file| Ok(file.persist(self.path.join(name)).map(drop)?));
        match kept {
            Ok(()) => self.prune_now_and_then(),
            Err(error) => self.complain(&error),
        }
    }

    /// Keeps a file unless there is one that `is_good`: then gives that one. Of processes that do this at once, one
    /// keeps its file, and all others are given it. Where that cannot be agreed on (the folder cannot be written, or
    /// its lock is held for seconds) nothing is kept, which is a warning, once a process.
    pub fn keep_first<T>(&self, name: &str, content: &[u8], is_good: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let first = || -> io::Result<Option<T>> {
            fs::create_dir_all(&self.path)?;
            let turn = self.turn()?;
            let found = self.read(name)?.and_then(|content| is_good(&content));
            if found.is_none() {
                self.temporary(&[content])?.persist(self.path.join(name))?;
            }
            drop(turn);
            Ok(found)
        };
        match first() {
            Ok(found) => {
                self.prune_now_and_then();
                found
            }
            Err(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// A file that is held alone until it is dropped, or its process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if another process holds it for longer than [`Folder`] waits: one that was
    /// stopped, or one on another machine whose lock a network file system did not release.
    fn turn(&self) -> io::Result<File> {
        let file = regular_file::open_lock(&self.path.join(LOCK))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < self.patience => std::thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => {
                    let message = format!("{LOCK} was held by another process for {:?}", self.patience);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// A complete file under a name that is never read.
    fn temporary(&self, parts: &[&[u8]]) -> io::Result<NamedTempFile> {
        fs::create_dir_all(&self.path)?;
        let mut builder = Builder::new();
        builder.prefix(PREFIX);
        // As for any new file; temporary ones are their owner's alone otherwise.
        #[cfg(unix)]
        builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
        let mut file = builder.tempfile_in(&self.path)?;
        for part in parts {
            file.write_all(part)?;
        }
        Ok(file)
    }

    fn complain(&self, error: &io::Error) {
        if !self.complained.swap(true, Ordering::Relaxed) {
            tracing::warn!("nothing can be kept in {}: {error}; this costs time in each process", self.path.display());
        }
    }

    fn prune_now_and_then(&self) {
        if self.written.fetch_add(1, Ordering::Relaxed).is_multiple_of(PRUNE_EVERY)
            && let Err(error) = self.prune(SystemTime::now())
        {
            self.complain(&error);
        }
    }

    /// Removes those files that were not used for longest, if all of them are too large, and what interrupted processes
    /// left.
    fn prune(&self, now: SystemTime) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // Others may remove files meanwhile.
            let Ok(entry) = entry else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name();
            if !metadata.is_file() || name == LOCK {
                continue;
            }
            let is_left = name.to_string_lossy().starts_with(PREFIX);
            if !is_left && !is_kept(&name.to_string_lossy()) {
                continue;
            }
            let used = metadata.modified().unwrap_or(now);
            match (is_left, now.duration_since(used).is_ok_and(|age| age > DAY)) {
                (true, true) => drop(fs::remove_file(entry.path())),
                (true, false) => {}
                (false, _) => files.push((used, metadata.len(), entry.path())),
            }
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.most {
            return Ok(());
        }
        files.sort();
        let enough = (self.most as f64 * LEFT) as u64;
        for (_, bytes, path) in files {
            if total <= enough {
                break;
            }
            // One of another user's may stay.
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
        Ok(())
    }
}

/// The hash that names the file of what `subject` says, in 64 hexadecimal digits.
pub fn hash(subject: &str) -> String {
    blake3::hash(subject.as_bytes()).to_hex().to_string()
}

/// Whether a file has a name of those that are kept: a hash of 64 hexadecimal digits, and what it is a file of. The
/// folder may be one that people keep other files in.
fn is_kept(name: &str) -> bool {
    name.split_once('.').is_some_and(|(hash, _)| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Has a file that is used outlive others. It may be another user's: then its age is that of its content.
fn mark_used(file: &File) {
    let now = SystemTime::now();
    let used = file.metadata().and_then(|metadata| metadata.modified());
    if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > DAY)) {
        let _ = file.set_modified(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != LOCK);
        names.sort();
        names
    }

    fn age(folder: &Folder, name: &str, days: u32) {
        let file = File::options().append(true).open(folder.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - days * DAY).unwrap();
    }

    #[test]
    fn the_files_that_were_not_used_for_longest_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path().join("kept"), 1000);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|digit| format!("{}.txt", digit.repeat(64)));
        for (name, days) in [(&a, 9), (&b, 30), (&c, 2), (&d, 5)] {
            folder.keep(name, &[&[0; 150], &[1; 150]]);
            age(&folder, name, days);
        }
        // A file of the user's own.
        fs::write(folder.path().join("notes.md"), [0; 2000]).unwrap();
        // Reading is using.
        assert_eq!(folder.read(&b).unwrap().unwrap().len(), 300);
        folder.prune(SystemTime::now()).unwrap();
        assert_eq!(names(&folder), [&b, &c, "notes.md"], "at most three quarters are left");
        folder.prune(SystemTime::now()).unwrap();
        assert_eq!(names(&folder), [&b, &c, "notes.md"]);
    }

    #[test]
    fn what_interrupted_processes_left_is_removed_after_a_day() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path(), 1000);
        folder.keep("a", &[b"content"]);
        for name in [".fulgurite-partial-old", ".fulgurite-partial-new"] {
            fs::write(home.path().join(name), b"x").unwrap();
        }
        age(&folder, ".fulgurite-partial-old", 2);
        folder.prune(SystemTime::now()).unwrap();
        assert_eq!(names(&folder), [".fulgurite-partial-new", "a"]);
    }

    #[test]
    fn one_of_many_keeps_its_file_and_all_others_are_given_it() {
        let home = tempfile::tempdir().unwrap();
        // Two bytes are good; another's good file is taken, a damaged one is replaced by the first.
        fs::write(home.path().join("record"), b"damaged").unwrap();
        let chosen: Vec<[u8; 2]> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16u8)
                .map(|number| {
                    let path = home.path();
                    scope.spawn(move || {
                        let folder = Folder::new(path, 1000);
                        let good = |content: &[u8]| <[u8; 2]>::try_from(content).ok();
                        folder.keep_first("record", &[number, 77], good).unwrap_or([number, 77])
                    })
                })
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(chosen.iter().all(|choice| *choice == chosen[0]), "{chosen:?}");
        assert_eq!(fs::read(home.path().join("record")).unwrap(), chosen[0]);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_what_one_user_keeps() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path().join("kept"), 1000);
        folder.keep("a", &[b"x"]);
        folder.keep_first("b", b"x", |_| None::<()>);
        // What any new file of this process may be.
        let plain = home.path().join("plain");
        fs::write(&plain, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for name in ["a", "b", LOCK] {
            assert_eq!(mode(&folder.path().join(name)), mode(&plain), "{name}");
        }
    }

    #[test]
    fn a_lock_that_is_never_released_is_not_waited_for_for_ever() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder { patience: Duration::from_millis(50), ..Folder::new(home.path(), 1000) };
        // A file of its own that is opened apart: what another process has.
        let held = File::create(home.path().join(LOCK)).unwrap();
        held.lock().unwrap();
        assert_eq!(folder.turn().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(folder.keep_first("record", b"x", |_| Some(())), None, "it goes on");
        assert_eq!(folder.read("record").unwrap(), None, "and keeps nothing");
        assert!(folder.complained.load(Ordering::Relaxed), "with a warning");
        drop(held);
        assert_eq!(folder.keep_first("record", b"x", |_| Some(())), None);
        assert_eq!(folder.read("record").unwrap().unwrap(), b"x", "once it is free all is as before");
    }

    #[cfg(unix)]
    #[test]
    fn planted_files_are_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let (folder, victim) = (home.path().join("kept"), home.path().join("victim"));
        fs::create_dir(&folder).unwrap();
        fs::write(&victim, b"precious").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("link")).unwrap();
        for name in ["pipe", LOCK] {
            assert!(std::process::Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
        }
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let folder = Folder::new(folder, 1000);
            let read = ["link", "pipe"].map(|name| folder.read(name).map_err(|error| error.kind()));
            assert_eq!(read, [Err(io::ErrorKind::InvalidInput), Err(io::ErrorKind::InvalidInput)]);
            assert_eq!(folder.keep_first("a", b"x", |_| Some(())), None, "the lock is a pipe");
            for name in ["link", "pipe"] {
                folder.keep(name, &[b"own"]);
                assert_eq!(folder.read(name).unwrap().unwrap(), b"own", "it takes the place of what was planted");
            }
            done.send(()).unwrap();
        });
        finished.recv_timeout(Duration::from_secs(20)).expect("nothing hangs or fails");
        assert_eq!(fs::read(victim).unwrap(), b"precious");
    }

    #[test]
    fn a_folder_that_cannot_be_written_keeps_nothing() {
        let file = NamedTempFile::new().unwrap();
        let folder = Folder::new(file.path().join("below a file"), 1000);
        folder.keep("a", &[b"x"]);
        assert_eq!(folder.keep_first("a", b"x", |_| Some(())), None);
    }
}
