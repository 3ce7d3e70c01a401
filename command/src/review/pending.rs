//! Snapshots that wait to be accepted: what `cargo insta accept` and `cargo insta reject` do to the files beside them.

use std::path::Path;

use super::header::parts;
use super::reviewed::subject_of;
use crate::cases::write_whole;
use crate::git::Repository;
use crate::outcome::Failed;
use crate::stored_programs::{INLINE, PENDING};

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

    /// What headings call it.
    fn subject(&self) -> String {
        subject_of(&self.snapshot)
    }

    /// Whether this is what a name names: its path, its file, or its subject (`my_operators::softcap`).
    fn is_called(&self, name: &str) -> bool {
        let name = name.strip_suffix(".new").unwrap_or(name);
        let file = self.snapshot.rsplit('/').next().unwrap_or(&self.snapshot);
        let stem = file.strip_suffix(".snap").unwrap_or(file);
        [&self.snapshot, file, stem].contains(&name) || self.subject() == name
    }

    /// Whether the last word of its subject is `name`: `softcap`, as operators are called in Rust.
    fn ends_with(&self, name: &str) -> bool {
        self.subject().rsplit("::").next() == Some(name)
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

/// Those of `all` that names name; all without names. A name that names none is an error, and so is the last word of
/// several.
pub fn named(all: Vec<Waiting>, names: &[String]) -> Result<Vec<Waiting>, Failed> {
    if names.is_empty() {
        return Ok(all);
    }
    let mut chosen = vec![false; all.len()];
    for name in names {
        let by = |is: fn(&Waiting, &str) -> bool| {
            all.iter().enumerate().filter(|(_, waiting)| is(waiting, name)).map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let whole = by(Waiting::is_called);
        let found = if whole.is_empty() { by(Waiting::ends_with) } else { whole.clone() };
        let subjects = |of: &mut dyn Iterator<Item = &Waiting>| of.map(Waiting::subject).collect::<Vec<_>>().join(", ");
        match &found[..] {
            [] => {
                let known = subjects(&mut all.iter().take(8));
                let more = if all.len() > 8 { format!(" and {} more", all.len() - 8) } else { String::new() };
                let known = if known.is_empty() { "no snapshot".to_owned() } else { known };
                return Err(Failed(format!(
                    "no snapshot called '{name}' waits to be accepted; there is {known}{more}"
                )));
            }
            [_, _, ..] if whole.is_empty() => {
                let known = subjects(&mut found.iter().map(|at| &all[*at]));
                return Err(Failed(format!("'{name}' may be {known}: give the whole name")));
            }
            _ => found.iter().for_each(|at| chosen[*at] = true),
        }
    }
    Ok(all.into_iter().zip(chosen).filter_map(|(waiting, chosen)| chosen.then_some(waiting)).collect())
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
        let error = named(vec![waiting], &["log".into()]).unwrap_err().0;
        assert!(error.contains("'log'") && error.contains("there is prims::exp"), "{error}");
    }

    #[test]
    fn the_last_word_of_a_name_is_enough_where_it_is_of_one_alone() {
        let waiting = |path: &str| Waiting { snapshot: path.into() };
        let all = || {
            vec![
                waiting("tests/snapshots/mine__softcap.snap"),
                waiting("tests/snapshots/prims__exp.snap"),
                waiting("tests/snapshots/exp.snap"),
                waiting("tests/snapshots/a__norm.snap"),
                waiting("tests/snapshots/b__norm.snap"),
            ]
        };
        let chosen = |name: &str| {
            let chosen = named(all(), &[name.to_owned()]).map_err(|error| error.0)?;
            Ok::<_, String>(chosen.iter().map(Waiting::subject).collect::<Vec<_>>())
        };
        // What headings show names itself.
        for one in all() {
            assert_eq!(chosen(&one.subject()).unwrap(), [one.subject()]);
        }
        assert_eq!(chosen("softcap").unwrap(), ["mine::softcap"]);
        assert_eq!(chosen("exp").unwrap(), ["exp"]);
        assert_eq!(chosen("norm").unwrap_err(), "'norm' may be a::norm, b::norm: give the whole name");
        assert_eq!(named(all(), &[]).map(|all| all.len()).ok(), Some(5));
    }
}
