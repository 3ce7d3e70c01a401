//! Files that are looked at again and again.

use std::path::PathBuf;
use std::time::SystemTime;

/// What tells that a file changed: when it was written, and its length; nothing where it is gone.
type Look = Option<(SystemTime, u64)>;

/// Files, and how they looked last.
pub struct Watched {
    files: Vec<(PathBuf, Look)>,
}

impl Watched {
    /// These files as they are now.
    pub fn of(files: &[PathBuf]) -> Watched {
        Watched { files: files.iter().map(|path| (path.clone(), look(path))).collect() }
    }

    /// Whether any of them changed since the last time. One that is gone has not: it may be about to be written.
    pub fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, last) in &mut self.files {
            let now = look(path);
            if now.is_some() && now != *last {
                *last = now;
                changed = true;
            }
        }
        changed
    }
}

fn look(path: &PathBuf) -> Look {
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
