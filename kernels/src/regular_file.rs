//! Opening files in folders that other users may write to.
//!
//! Another user may put a symbolic link in the place of a file, so that a file elsewhere is read or changed, or a FIFO,
//! so that the process waits for ever. Here a link is not followed, nothing is waited for, and only regular files are
//! opened.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// A regular file, opened for reading.
///
/// # Errors
/// The file system's; that of a path that is a symbolic link, a FIFO, or anything else but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    opened(path, OpenOptions::new().read(true))
}

/// The content of a regular file.
///
/// # Errors
/// Those of [`open`], and that of a file that does not fit into memory.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    content(&open(path)?)
}

/// The content of an open file, from its beginning if nothing was read of it.
///
/// # Errors
/// The file system's, and that of a file that does not fit into memory.
pub fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    content.try_reserve_exact(length)?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// A regular file that processes lock in turn, made if there is none. Every user who may use the folder may lock it:
/// where this user may not write it, it is opened for reading. Its content stays.
///
/// # Errors
/// Those of [`open`].
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
    opened(path, &mut options).or_else(|error| open(path).map_err(|_| error))
}

fn opened(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Opening a device may act on it: what is known to be no regular file is not opened.
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => must_be_regular(path, &found?)?,
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    // Something else may have taken the name meanwhile.
    must_be_regular(path, &file.metadata()?)?;
    Ok(file)
}

fn must_be_regular(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_symlink() { "a symbolic link" } else { "no regular file" };
    let message = format!("'{}' is {what}, and is not opened", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Whether the path still names this open file, and not another one that took its place.
pub fn is_named(path: &Path, file: &File) -> bool {
    let found = std::fs::symlink_metadata(path).ok();
    found.zip(file.metadata().ok()).is_some_and(|(found, own)| is_same(&found, &own))
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Elsewhere an open file cannot be removed by another process.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// What may be planted in the place of a file, by name.
    fn planted(folder: &Path) -> [std::path::PathBuf; 3] {
        std::fs::write(folder.join("victim"), b"precious").unwrap();
        let paths = ["link", "dangling", "pipe"].map(|name| folder.join(name));
        std::os::unix::fs::symlink(folder.join("victim"), &paths[0]).unwrap();
        std::os::unix::fs::symlink(folder.join("nothing"), &paths[1]).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&paths[2]).status().unwrap().success());
        paths
    }

    #[test]
    #[cfg_attr(miri, ignore = "runs mkfifo")]
    fn what_is_planted_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for path in planted(&path) {
                let errors = [open(&path).unwrap_err(), read(&path).unwrap_err(), open_lock(&path).unwrap_err()];
                errors.iter().for_each(|error| assert!(error.to_string().contains("is not opened"), "{error}"));
            }
            assert_eq!(std::fs::read(path.join("victim")).unwrap(), b"precious");
            assert!(!path.join("nothing").exists(), "a link to nothing makes no file");
            done.send(()).unwrap();
        });
        finished.recv_timeout(std::time::Duration::from_secs(20)).expect("no opening hangs or fails");
    }

    #[test]
    fn a_regular_file_is_opened_and_a_lock_keeps_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(open_lock(&path).unwrap());
        std::fs::write(&path, b"content").unwrap();
        let lock = open_lock(&path).unwrap();
        assert_eq!((read(&path).unwrap(), content(&lock).unwrap()), (b"content".to_vec(), b"content".to_vec()));
        assert!(is_named(&path, &lock));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_named(&path, &lock));
        std::fs::write(&path, b"another").unwrap();
        assert!(!is_named(&path, &lock));
    }
}
