//! Files that are looked at again and again.

use std::path::PathBuf;
use std::time::SystemTime;

/// The time of a file's last change and its length; `None` if the file does not exist.
type Stamp = Option<(SystemTime, u64)>;

/// Files, each with its stamp when it was last looked at.
pub struct Watched {
    files: Vec<(PathBuf, Stamp)>,
}

impl Watched {
    /// These files as they are now.
    pub fn of(files: &[PathBuf]) -> Watched {
        Watched { files: files.iter().map(|path| (path.clone(), stamp(path))).collect() }
    }

    /// Whether any of them changed since the last time. One that is gone has not: it may be about to be written.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, last) in &mut self.files {
            let now = stamp(path);
            if now.is_some() && now != *last {
                *last = now;
                changed = true;
            }
        }
        changed
    }
}

fn stamp(path: &PathBuf) -> Stamp {
    let data = std::fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.trace");
        std::fs::write(&path, "a").unwrap();
        let mut watched = Watched::of(std::slice::from_ref(&path));
        assert!(!watched.changed());
        std::fs::write(&path, "longer").unwrap();
        assert!(watched.changed() && !watched.changed());
        std::fs::remove_file(&path).unwrap();
        assert!(!watched.changed());
        std::fs::write(&path, "anew").unwrap();
        assert!(watched.changed());
    }
}
