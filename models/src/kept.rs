//! The checkpoints of a run's folder: the newest is `checkpoint.safetensors`, those before it are
//! `checkpoint-STEP.safetensors`.
//!
//! The newest is kept under its second name before the next one replaces it, so a kill at any moment leaves every file
//! whole.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fulgurite_kernels::durable;

/// The name of the newest checkpoint.
pub(crate) const NEWEST: &str = "checkpoint.safetensors";
const BEFORE: &str = "checkpoint-";
const AFTER: &str = ".safetensors";

/// What tells a checkpoint that a run knows from one that another program put in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device and number of the file, where files have one.
    file: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
}

impl Identity {
    /// That of the file at `path`, if there is one.
    pub(crate) fn of(path: &Path) -> Option<Identity> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(not(unix))]
        let file = (0, 0);
        Some(Identity { file, length: metadata.len(), modified: metadata.modified().ok() })
    }
}

/// The newest checkpoint of a run's folder; `path` itself where it is none.
pub(crate) fn of_run(path: &Path) -> PathBuf {
    let newest = path.join(NEWEST);
    if newest.is_file() { newest } else { path.to_owned() }
}

/// The earlier checkpoints in the folder of `newest`, the latest first, with the steps that their names say.
pub(crate) fn earlier(newest: &Path) -> Vec<(u64, PathBuf)> {
    let folder = newest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let step_of = |name: &str| {
        let digits = name.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let mut found: Vec<(u64, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((step_of(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
    found
}

/// Keeps `newest`, the checkpoint of `step`, under its second name, so that the next one may replace it.
pub(crate) fn keep(newest: &Path, step: u64) -> io::Result<()> {
    let second = newest.with_file_name(format!("{BEFORE}{step}{AFTER}"));
    match std::fs::remove_file(&second) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A second name costs nothing; the file itself, where `newest` is a link.
    let file = std::fs::canonicalize(newest)?;
    if std::fs::hard_link(&file, &second).is_ok() {
        return Ok(());
    }
    // Across file systems, and where there are no links: a copy.
    let mut source = std::fs::File::open(&file)?;
    durable::replace(&second, |writer| io::copy(&mut source, writer).map(drop)).map_err(|(_, error)| error)
}

/// Removes the earlier checkpoints but the latest `count` of those before `step`. (Those after it belong to a run that
/// this one has replaced.) Failing to is no reason to stop.
pub(crate) fn prune(newest: &Path, step: u64, count: usize) {
    let all = earlier(newest);
    let (before, after): (Vec<_>, Vec<_>) = all.into_iter().partition(|(own, _)| *own < step);
    for (_, path) in before.into_iter().skip(count).chain(after) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let newest = folder.path().join(NEWEST);
        for other in ["checkpoint-x.safetensors", "checkpoint-.safetensors", "checkpoint-1.txt"] {
            std::fs::write(folder.path().join(other), b"other").unwrap();
        }
        for step in [1, 2, 10, 11] {
            if step > 1 {
                let before = if step == 10 { 2 } else { step - 1 };
                keep(&newest, before).unwrap();
            }
            durable::write(&newest, format!("{step}").as_bytes()).unwrap();
            prune(&newest, step, 2);
        }
        let steps = |newest: &Path| earlier(newest).into_iter().map(|(step, _)| step).collect::<Vec<_>>();
        assert_eq!(steps(&newest), [10, 2]);
        assert_eq!(std::fs::read(folder.path().join("checkpoint-2.safetensors")).unwrap(), b"2");
        // Kept again, and of a run that is replaced.
        keep(&newest, 11).unwrap();
        keep(&newest, 11).unwrap();
        prune(&newest, 5, 2);
        assert_eq!(steps(&newest), [2]);
        prune(&newest, 5, 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
