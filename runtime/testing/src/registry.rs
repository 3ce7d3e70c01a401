//! Whether what a package declares is linked, and whether what it stores belongs to something.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::executor::{EXECUTORS, IMPLEMENTATIONS, REWRITES};
use fulgurite_ir::registry::operators;

/// How a declaration begins, at the start of a line.
const DECLARATIONS: [&str; 4] = ["#[operator", "#[implementation", "#[rewrite", "operators!"];

/// The Rust files below `folder`.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// How many declarations the text has, at least: a family counts as one.
fn declared(text: &str) -> usize {
    let begins = |line: &&str| {
        let line = line.trim_start();
        DECLARATIONS.iter().any(|word| {
            line.strip_prefix(word)
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        })
    };
    text.lines().filter(begins).count()
}

/// Files below `sources` with more declarations than the registry has of them: nobody lists their module. Each with the
/// number declared and the number linked.
pub fn unlisted(sources: &[PathBuf]) -> Vec<(PathBuf, usize, usize)> {
    let mut linked: BTreeMap<&str, usize> = BTreeMap::new();
    let files = operators()
        .into_iter()
        .map(|def| def.file)
        .chain(IMPLEMENTATIONS.iter().map(|implementation| implementation.file))
        .chain(REWRITES.iter().map(|rewrite| rewrite.file));
    // A record that no macro made has no file, and every path ends with nothing.
    files.filter(|file| !file.is_empty()).for_each(|file| *linked.entry(file).or_default() += 1);
    let mut missing = Vec::new();
    for path in sources.iter().flat_map(|folder| rust_files(folder)) {
        let count = fs::read_to_string(&path).map(|text| declared(&text)).unwrap_or(0);
        if count == 0 {
            continue;
        }
        let absolute = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        // What the compiler calls a file begins where it was started, or at the root.
        let found =
            linked.iter().filter(|(file, _)| absolute.ends_with(file)).map(|(_, count)| *count).max().unwrap_or(0);
        if found < count {
            missing.push((path, count, found));
        }
    }
    missing
}

/// One unlisted file in words.
pub(crate) fn describe_unlisted((path, declared, linked): &(PathBuf, usize, usize)) -> String {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    format!(
        "{} has {declared} declarations, {linked} of them are linked: list the file in its folder's `operator_files! \
         {{ {name}, ... }}`",
        path.display()
    )
}

/// Snapshots in `folder` that no linked operator has.
pub fn stale_snapshots(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut stale: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "snap"))
        .filter(|path| {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            operators().into_iter().all(|def| snapshot_name(def.name) != stem)
        })
        .collect();
    stale.sort();
    stale
}

/// What the snapshot of an operator is called, without `.snap`.
pub(crate) fn snapshot_name(operator: &str) -> String {
    operator.replace("::", "__")
}

/// Names of linked operators, rewrites and executors of a package.
pub(crate) fn declared_by(package: &str) -> Vec<&'static str> {
    let operators = operators().into_iter().filter(|def| def.package == package).map(|def| def.name);
    let rewrites = REWRITES.iter().filter(|rewrite| rewrite.package == package).map(|rewrite| rewrite.name);
    let executors = EXECUTORS.iter().filter(|executor| executor.package == package).map(|executor| executor.name);
    operators.chain(rewrites).chain(executors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_counted_where_lines_begin_with_them() {
        let text = "/// #[operator] in words\n#[operator]\npub mod a {}\n    #[operator(prim)]\nmod b {}\noperators! {\n\
                    #[operator_files]\n// #[rewrite]\n#[rewrite(default)]\n";
        assert_eq!(declared(text), 4);
    }

    #[test]
    fn files_that_nobody_lists_are_found() {
        let folder = std::env::temp_dir().join(format!("fulgurite-unlisted-{}", std::process::id()));
        fs::create_dir_all(folder.join("nn")).expect("a folder");
        fs::write(folder.join("nn/lost.rs"), "#[operator]\npub mod lost {}\n").expect("a file");
        fs::write(folder.join("lib.rs"), "//! Nothing is declared here.\n").expect("a file");
        let found = unlisted(std::slice::from_ref(&folder));
        fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(found.len(), 1);
        assert!(found[0].0.ends_with("nn/lost.rs") && found[0].1 == 1 && found[0].2 == 0, "{found:?}");
        assert!(describe_unlisted(&found[0]).contains("operator_files! { lost, ... }"));
    }
}
