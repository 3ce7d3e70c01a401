//! Files of a command: those that names or patterns say, and new ones.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use fulgurite_kernels::durable;

use super::outcome::Failed;
use super::output::say;
use super::stored_programs::{ENDINGS, INLINE, PENDING};

/// The files that these name: a file of that very name, or else all that the pattern matches, in the order of their
/// names. A shell has expanded patterns already unless they were quoted, as llm.c's scripts do.
#[cfg(feature = "models")]
pub fn matching(names: &[PathBuf]) -> Result<Vec<PathBuf>, Failed> {
    let mut files = Vec::new();
    for name in names {
        let pattern = name.to_str().filter(|text| text.contains(['*', '?', '[']) && !name.exists());
        let Some(pattern) = pattern else {
            files.push(name.clone());
            continue;
        };
        let found = glob::glob(pattern).map_err(|error| Failed(format!("pattern '{pattern}': {error}")))?;
        let before = files.len();
        for path in found {
            files.push(path.map_err(|error| Failed(error.to_string()))?);
        }
        if files.len() == before {
            return Err(Failed(format!("no file matches '{pattern}'")));
        }
    }
    Ok(files)
}

/// The text of a regular file. What is none, such as a pipe, may have no end.
pub fn read_text(path: &Path) -> Result<String, Failed> {
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() => Err(Failed::file(path, "is no regular file")),
        Ok(_) => std::fs::read_to_string(path).map_err(|error| Failed::file(path, error)),
        Err(error) => Err(Failed::file(path, error)),
    }
}

/// Fails if a page would take the place of a stored program, by its name.
pub fn expect_no_program(target: &Path) -> Result<(), Failed> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    match [PENDING, INLINE].iter().chain(&ENDINGS).any(|ending| name.ends_with(ending)) {
        true => Err(Failed::file(target, "is the name of a stored program, expected another ending")),
        false => Ok(()),
    }
}

/// Fails if what is written would take the place of what is read.
pub fn differ(source: &Path, target: &Path) -> Result<(), Failed> {
    let same = matches!((source.canonicalize(), target.canonicalize()), (Ok(source), Ok(target)) if source == target);
    if same { Err(written_over(target)) } else { Ok(()) }
}

/// Fails where several of these files, none of which need be there yet, are one; or where no file can be made in a
/// folder of theirs: long work is not begun in vain.
pub fn can_be_written(paths: &[&PathBuf]) -> Result<(), Failed> {
    let mut all = Vec::new();
    for path in paths {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(Failed::file(path, "is a folder, expected the name of a file"));
        };
        let Ok(folder) = folder.canonicalize() else {
            return Err(Failed::file(path, format!("there is no folder '{}'", folder.display())));
        };
        // As files are written: whole, beside what they replace.
        let replaced = durable::destination(path).map_err(|error| Failed::file(path, error))?;
        let beside = replaced.parent().filter(|beside| !beside.as_os_str().is_empty()).unwrap_or(Path::new("."));
        tempfile::tempfile_in(beside).map_err(|error| {
            Failed::file(path, format!("no file can be made in '{}': {}", beside.display(), error.kind()))
        })?;
        let whole = folder.join(name);
        let whole = whole.canonicalize().unwrap_or(whole);
        if all.contains(&whole) {
            return Err(Failed::file(path, "is named twice, expected a file for each output"));
        }
        all.push(whole);
    }
    Ok(())
}

/// As [`differ`], of a source that may be a folder, all of whose files are read: a run's own checkpoint, say.
#[cfg(feature = "models")]
pub fn differ_from_all(source: &Path, target: &Path) -> Result<(), Failed> {
    differ(source, target)?;
    match (source.canonicalize(), target.canonicalize()) {
        (Ok(folder), Ok(file)) if file.parent() == Some(&folder) => Err(written_over(target)),
        _ => Ok(()),
    }
}

fn written_over(target: &Path) -> Failed {
    Failed::file(target, "is read, and would be written over: name another file")
}

/// Writes a file that must not be there yet.
pub fn write_new(path: &Path, text: &str) -> Result<(), Failed> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failed::file(path, "is there already; nothing was written"),
        _ => Failed::file(path, error),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| Failed::file(path, error))?;
    say!("wrote {}", path.display())?;
    Ok(())
}
