//! Replacing a file so that a crash, a kill or a full disk leaves either the old file or the new one, whole.
//!
//! The new content goes to a partial file in the same folder, reaches the disk, and takes the old one's name in one step. Partial
//! files of killed processes are removed by the next write; those of living ones hold a lock and are left alone.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a replacement has come; also where it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Making the partial file.
    Create,
    /// Writing the content.
    Write,
    /// Bringing the content to the disk.
    Sync,
    /// Taking the old file's name.
    Rename,
    /// Bringing the name to the disk; the new file is already in place.
    SyncFolder,
}

impl Stage {
    /// The stage in words, as in "cannot save: creating a partial file: ...".
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Stage::Create => "creating the partial file",
            Stage::Write => "writing the partial file",
            Stage::Sync => "bringing the partial file to the disk",
            Stage::Rename => "renaming the partial file",
            Stage::SyncFolder => "bringing the new name to the disk",
        }
    }
}

/// Replaces `path` by `bytes`.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |writer| writer.write_all(bytes))
        .map_err(|(stage, error)| io::Error::new(error.kind(), format!("{}: {error}", stage.describe())))
}

/// Replaces `path` by what `fill` writes.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), (Stage, io::Error)> {
    replace_observed(path, fill, |_| Ok(()))
}

/// As [`replace`]; `before` is called before each stage, and its error stands for a failure there.
fn replace_observed(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    mut before: impl FnMut(Stage) -> io::Result<()>,
) -> Result<(), (Stage, io::Error)> {
    let at = |stage: Stage| move |error: io::Error| (stage, error);
    before(Stage::Create).map_err(at(Stage::Create))?;
    let (partial, file) = Partial::create(path).map_err(at(Stage::Create))?;

    before(Stage::Write).map_err(at(Stage::Write))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    fill(&mut writer).map_err(at(Stage::Write))?;
    let file = writer.into_inner().map_err(|error| (Stage::Write, error.into_error()))?;

    before(Stage::Sync).map_err(at(Stage::Sync))?;
    file.sync_all().map_err(at(Stage::Sync))?;

    before(Stage::Rename).map_err(at(Stage::Rename))?;
    partial.rename(path).map_err(at(Stage::Rename))?;

    before(Stage::SyncFolder).map_err(at(Stage::SyncFolder))?;
    sync_folder(folder_of(path)).map_err(at(Stage::SyncFolder))
}

/// A partial file that disappears unless it is renamed.
struct Partial(Option<PathBuf>);

impl Partial {
    fn create(path: &Path) -> io::Result<(Partial, File)> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name =
            path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        let prefix = format!(".{}.", name.to_string_lossy());
        let folder = folder_of(path);
        remove_leftovers(folder, &prefix);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let partial = folder.join(format!("{prefix}{}.{number}.partial", std::process::id()));
        // A file of this name can only be of a dead process with the same id.
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&partial)?;
        let guard = Partial(Some(partial));
        // Where a file system has no locks, a second process writing the same checkpoint could remove this file; its rename
        // would then fail with an error, and the old checkpoint would stay.
        let _ = file.try_lock();
        Ok((guard, file))
    }

    fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(partial) = &self.0 {
            std::fs::rename(partial, path)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(partial) = &self.0 {
            // The error that led here is the one to report.
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// Removes partial files of processes that were killed. Failing to is no reason not to save.
fn remove_leftovers(folder: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix)
            && name.ends_with(".partial")
            && let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Elsewhere folders cannot be opened as files; the rename is still atomic.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failure_before_the_rename_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        replace(&path, |writer| writer.write_all(b"old")).unwrap();
        for stage in [Stage::Create, Stage::Write, Stage::Sync, Stage::Rename] {
            let fail = |now| if now == stage { Err(io::Error::other("no")) } else { Ok(()) };
            let result = replace_observed(&path, |writer| writer.write_all(b"new"), fail);
            assert_eq!(result.unwrap_err().0, stage);
            assert_eq!(std::fs::read(&path).unwrap(), b"old", "{stage:?}");
            assert_eq!(names(folder.path()), ["last"], "{stage:?}");
        }
        let result = replace(&path, |writer| {
            writer.write_all(&[7; 3 << 20])?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "full"))
        });
        assert_eq!(result.unwrap_err().0, Stage::Write);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["last"]);
        replace(&path, |writer| writer.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn leftovers_go_but_living_ones_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        for name in [".last.1.0.partial", ".last.2.0.partial", ".lasting.1.0.partial", ".last.1.0.other"] {
            std::fs::write(folder.path().join(name), b"half").unwrap();
        }
        let living = File::open(folder.path().join(".last.2.0.partial")).unwrap();
        living.try_lock().unwrap();
        replace(&path, |writer| writer.write_all(b"new")).unwrap();
        assert_eq!(names(folder.path()), [".last.1.0.other", ".last.2.0.partial", ".lasting.1.0.partial", "last"]);
    }

    #[test]
    fn impossible_places_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(replace(&folder.path().join("no/such"), |_| Ok(())).unwrap_err().0, Stage::Create);
        assert_eq!(replace(Path::new("/"), |_| Ok(())).unwrap_err().0, Stage::Create);
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        assert_eq!(replace(&taken, |_| Ok(())).unwrap_err().0, Stage::Rename);
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
