//! Snapshots that wait to be accepted: what `cargo insta accept` and `cargo insta reject` do to the files beside them.

use std::path::Path;

use super::header::parts;
use crate::cases::write_whole;
use crate::command::git::Repository;
use crate::command::outcome::Failed;
use crate::command::stored_programs::{INLINE, PENDING};

/// A file that a failed test left beside its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The path of the snapshot, from the top of the repository.
    pub snapshot: String,
}

impl Waiting {
    /// The snapshots that wait, and the files of inline ones, by their paths.
    pub fn all(repository: &Repository) -> Result<(Vec<Waiting>, Vec<String>), Failed> {
        let files = repository.untracked_files(&[PENDING, INLINE], true)?;
        let (inline, waiting): (Vec<String>, Vec<String>) = files.into_iter().partition(|path| path.ends_with(INLINE));
        let waiting =
            waiting.iter().filter_map(|path| Some(Waiting { snapshot: path.strip_suffix(".new")?.to_owned() }));
        Ok((waiting.collect(), inline))
    }

    /// Whether this is what a name names: its path, its file, or its subject (`gpt2_traces::gpt2_loss_acquired`).
    fn is_called(&self, name: &str) -> bool {
        let name = name.strip_suffix(".new").unwrap_or(name);
        let file = self.snapshot.rsplit('/').next().unwrap_or(&self.snapshot);
        let stem = file.strip_suffix(".snap").unwrap_or(file);
        [&self.snapshot, file, stem].contains(&name) || stem.replace("__", "::") == name
    }

    /// Puts the new text in place of the snapshot's.
    pub fn accept(&self, repository: &Repository) -> Result<(), Failed> {
        let (snapshot, pending) = self.paths(repository);
        let text = std::fs::read_to_string(&pending).map_err(|error| Failed::file(&pending, error))?;
        let stored = as_stored(&text).map_err(|message| Failed::file(&pending, message))?;
        write_whole(&snapshot, stored.as_bytes())?;
        remove(&pending)
    }

    /// Drops the new text.
    pub fn reject(&self, repository: &Repository) -> Result<(), Failed> {
        let (_, pending) = self.paths(repository);
        let text = std::fs::read_to_string(&pending).map_err(|error| Failed::file(&pending, error))?;
        expect_text(&text).map_err(|message| Failed::file(&pending, message))?;
        remove(&pending)
    }

    fn paths(&self, repository: &Repository) -> (std::path::PathBuf, std::path::PathBuf) {
        (repository.path(&self.snapshot), repository.path(&format!("{}.new", self.snapshot)))
    }
}

/// Those of `all` that names name; all without names. A name that names none is an error.
pub fn named(all: Vec<Waiting>, names: &[String]) -> Result<Vec<Waiting>, Failed> {
    for name in names {
        if !all.iter().any(|waiting| waiting.is_called(name)) {
            let known: Vec<&str> = all.iter().take(8).map(|waiting| &*waiting.snapshot).collect();
            let more =
                if all.len() > known.len() { format!(" and {} more", all.len() - known.len()) } else { String::new() };
            let known = if known.is_empty() { "no snapshot".to_owned() } else { known.join(", ") };
            return Err(Failed(format!("no snapshot called '{name}' waits to be accepted; there is {known}{more}")));
        }
    }
    Ok(all.into_iter().filter(|waiting| names.is_empty() || names.iter().any(|name| waiting.is_called(name))).collect())
}

fn remove(path: &Path) -> Result<(), Failed> {
    std::fs::remove_file(path).map_err(|error| Failed::file(path, error))
}

fn expect_text(text: &str) -> Result<(), &'static str> {
    match parts(text) {
        Some((header, _)) if header.iter().any(|line| line.trim_end() == "snapshot_kind: binary") => {
            Err("is a binary snapshot, which only cargo insta accepts and rejects")
        }
        _ => Ok(()),
    }
}

/// A pending text as insta stores it: without the assertion's line, which the header of a pending text has alone, and
/// with one newline at the end.
fn as_stored(text: &str) -> Result<String, &'static str> {
    expect_text(text)?;
    let (header, contents) = parts(text).ok_or("has no header between lines of ---: it is no snapshot of insta")?;
    let volatile = ["assertion_line:", "snapshot_kind: text"];
    let header: String = header
        .into_iter()
        .filter(|line| !volatile.iter().any(|word| line.starts_with(word)))
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(format!("---\n{header}---\n{}\n", contents.trim_end().replace("\r\n", "\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_has_no_assertion_line() {
        let pending = "---\nsource: tests/a.rs\nassertion_line: 12\nexpression: \"a: b\"\nsnapshot_kind: text\n---\n\
            \nassertion_line: 3\n---\nlast\n\n";
        let stored = "---\nsource: tests/a.rs\nexpression: \"a: b\"\n---\n\nassertion_line: 3\n---\nlast\n";
        assert_eq!(as_stored(pending).unwrap(), stored);
        assert_eq!(as_stored(stored).unwrap(), stored);
        assert!(as_stored("no header\n").is_err());
        assert!(as_stored("---\nextension: bin\nsnapshot_kind: binary\n---\n").is_err());
    }

    #[test]
    fn names_are_those_of_paths_files_and_subjects() {
        let waiting = Waiting { snapshot: "tests/snapshots/prims__exp.snap".into() };
        let called =
            ["tests/snapshots/prims__exp.snap", "tests/snapshots/prims__exp.snap.new", "prims__exp", "prims::exp"];
        assert!(called.iter().all(|name| waiting.is_called(name)));
        assert!(!waiting.is_called("exp"));
        let error = named(vec![waiting], &["exp".into()]).unwrap_err().0;
        assert!(error.contains("'exp'") && error.contains("tests/snapshots/prims__exp.snap"), "{error}");
    }
}
