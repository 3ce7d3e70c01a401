//! Files given as names or as patterns.

use std::path::PathBuf;

use super::output::Failed;

/// The files that these name: a file of that very name, or else all that the pattern matches, in the order of their names. A shell has
/// expanded patterns already unless they were quoted, as llm.c's scripts do.
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
