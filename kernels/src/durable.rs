//! Replacing a file so that a crash, a kill or a full disk leaves either the old file or the new one, whole.
//!
//! The new content goes to a partial file in the same folder, reaches the disk, and takes the old one's name in one
//! step. Partial files of killed processes are removed by the next write; those of living ones hold a lock and are left
//! alone.
//!
//! The folder may be shared with others. A partial file is always a new one, so a link that another user put in its
//! place is not followed; what is removed is a regular file, and opening it neither follows a link nor waits for a
//! pipe. A path that is a symbolic link stays one: the file that it names is replaced. Only regular files are replaced.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::regular_file;

/// How far a replacement has come; also where it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
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
    pub fn describe(self) -> &'static str {
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
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    replace(path, fill).map_err(|(stage, error)| io::Error::new(error.kind(), format!("{}: {error}", stage.describe())))
}

/// Replaces `path` by what `fill` writes; an error says at which stage.
pub fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), (Stage, io::Error)> {
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
    let path = &destination(path).map_err(at(Stage::Create))?;
    let partial = partial(path).map_err(at(Stage::Create))?;

    before(Stage::Write).map_err(at(Stage::Write))?;
    let mut writer = BufWriter::with_capacity(1 << 20, partial.as_file());
    fill(&mut writer).map_err(at(Stage::Write))?;
    let file = writer.into_inner().map_err(|error| (Stage::Write, error.into_error()))?;

    before(Stage::Sync).map_err(at(Stage::Sync))?;
    file.sync_all().map_err(at(Stage::Sync))?;

    before(Stage::Rename).map_err(at(Stage::Rename))?;
    partial.persist(path).map_err(|error| (Stage::Rename, error.error))?;

    before(Stage::SyncFolder).map_err(at(Stage::SyncFolder))?;
    sync_folder(folder_of(path)).map_err(at(Stage::SyncFolder))
}

/// What names of partial files end with.
const ENDING: &str = ".partial";

/// Symbolic links followed before giving up; that of Linux.
const MOST_LINKS: usize = 40;

/// The file that is replaced when `path` is: `path` itself, or what it names where it is a symbolic link.
///
/// # Errors
/// If there is something that is not a regular file: renaming a file over a device or a pipe would destroy it.
pub fn destination(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
            Ok(found) if found.is_symlink() => path = folder_of(&path).join(std::fs::read_link(&path)?),
            Ok(found) if found.is_file() => return Ok(path),
            Ok(_) => {
                let message = format!("'{}' is not a regular file, and is not replaced", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MOST_LINKS} symbolic links follow each other")))
}

/// Names tried for a partial file. Each was removed by another saver of the path before it was locked.
const MOST_NAMES: usize = 1000;

/// A new and locked file beside `path`, which is removed unless it is renamed.
fn partial(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let prefix = format!(".{}.", name.to_string_lossy());
    let folder = folder_of(path);
    if matches!(std::fs::metadata(folder), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        let message = format!("there is no folder '{}'", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    remove_leftovers(folder, &prefix);
    let builder = maker(&prefix);
    for _ in 0..MOST_NAMES {
        let partial = builder.tempfile_in(folder)?;
        // Another saver of this path may have taken the file for a leftover before it was locked. It holds the lock
        // only until it has removed the file. (Where a file system has no locks, a file removed later fails to be
        // renamed, and the old content stays.)
        let _ = partial.as_file().lock();
        if regular_file::is_named(partial.path(), partial.as_file()) {
            return Ok(partial);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no name for a partial file is free"))
}

/// Makes partial files whose names begin so: always new ones.
fn maker(prefix: &str) -> Builder<'_, 'static> {
    let mut builder = Builder::new();
    builder.prefix(prefix).suffix(ENDING);
    // As for any new file; temporary ones are their owner's alone otherwise.
    #[cfg(unix)]
    builder.permissions(<std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    builder
}

/// Removes partial files of processes that were killed. Failing to is no reason not to save.
fn remove_leftovers(folder: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix)
            && name.ends_with(ENDING)
            && let Ok(file) = regular_file::open(&entry.path())
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
        assert_eq!(replace(&taken, |_| Ok(())).unwrap_err().0, Stage::Create);
        assert_eq!(names(folder.path()), ["taken"]);
    }

    /// Replaces the file; waiting for a lock is an error.
    #[cfg(unix)]
    fn replace_at_once(path: &Path, content: &'static [u8]) {
        let (path, (done, finished)) = (path.to_owned(), std::sync::mpsc::channel());
        let saver = std::thread::spawn(move || done.send(replace(&path, |writer| writer.write_all(content))));
        finished.recv_timeout(std::time::Duration::from_secs(20)).expect("the saver hangs").unwrap();
        saver.join().unwrap().unwrap();
    }

    /// Names such as leftovers of other processes have.
    #[cfg(unix)]
    fn plant(folder: &Path, plant: impl Fn(&Path)) {
        for number in 0..200 {
            plant(&folder.join(format!(".out.{}.{number}.partial", std::process::id())));
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_planted_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, b"precious").unwrap();
        // A reader of the victim holds a lock, so that the links are not taken for leftovers.
        let reader = File::open(&victim).unwrap();
        reader.lock_shared().unwrap();
        let shared = folder.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        plant(&shared, |path| std::os::unix::fs::symlink(&victim, path).unwrap());
        for content in [b"first", b"later"] {
            replace_at_once(&shared.join("out"), content);
            assert_eq!(std::fs::read(shared.join("out")).unwrap(), content);
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        // Nor if nobody reads the victim.
        drop(reader);
        replace_at_once(&shared.join("out"), b"last");
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    /// As if another user had guessed the name.
    #[test]
    #[cfg(unix)]
    fn a_link_of_the_very_name_of_the_partial_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, b"precious").unwrap();
        let guessed = maker(".out.").rand_bytes(0).tempfile_in(folder.path()).unwrap().path().to_owned();
        std::os::unix::fs::symlink(&victim, &guessed).unwrap();
        let error = maker(".out.").rand_bytes(0).tempfile_in(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    #[cfg(unix)]
    fn a_planted_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        plant(folder.path(), |path| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        });
        replace_at_once(&folder.path().join("out"), b"new");
        assert_eq!(std::fs::read(folder.path().join("out")).unwrap(), b"new");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_one_and_what_is_no_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let far = folder.path().join("far");
        std::fs::create_dir(&far).unwrap();
        let link = folder.path().join("last");
        std::os::unix::fs::symlink("far/real", &link).unwrap();
        // Before there is a target, and after.
        for content in [b"first", b"later"] {
            replace(&link, |writer| writer.write_all(content)).unwrap();
            assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(std::fs::read(far.join("real")).unwrap(), content);
        }
        assert_eq!((names(&far), names(folder.path())), (vec!["real".into()], vec!["far".into(), "last".into()]));
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (stage, error) = replace(&pipe, |_| Ok(())).unwrap_err();
        assert!(stage == Stage::Create && error.to_string().contains("is not a regular file"), "{error}");
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        assert!(replace(&folder.path().join("loop"), |_| Ok(())).unwrap_err().1.to_string().contains("symbolic links"));
    }

    /// Each takes the other's new file for a leftover as soon as it can.
    #[test]
    fn savers_of_one_path_all_end_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        std::thread::scope(|scope| {
            for saver in 0..4u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        replace(path, |writer| writer.write_all(&[saver; 9000])).unwrap();
                    }
                });
            }
        });
        let content = std::fs::read(&path).unwrap();
        assert!(content.len() == 9000 && content.iter().all(|byte| *byte == content[0]));
        assert_eq!(names(folder.path()), ["last"]);
    }
}
