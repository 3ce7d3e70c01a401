//! The files that a review writes, checked before any of them is written.

use std::path::{Path, PathBuf};

use crate::files::expect_no_program;
use crate::outcome::Failed;

/// Fails if a file would take the place of a stored program, or two options name one file or both standard output. Each
/// option is given with its file.
pub fn expect_sound(options: &[(&str, Option<&Path>)]) -> Result<(), Failed> {
    let given: Vec<(&str, &Path)> = options.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (i, (option, path)) in given.iter().enumerate() {
        expect_no_program(path)?;
        if let Some((other, _)) = given[..i].iter().find(|(_, other)| place(other) == place(path)) {
            return Err(Failed(format!("{other} and {option} both name {}, expected two files", path.display())));
        }
    }
    Ok(())
}

/// Where a file is: `a.md` and `./a.md` are one.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.to_owned())
}
