//! Whether the registry is complete and consistent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fulgurite::executor::{IMPLEMENTATIONS, default_executors, executors, find_executor, implementations, rewrites};
use fulgurite::operator::{OPERATORS, OperatorKind, find_operator, operators};

type Outcome = Result<(), String>;

fn fail_on(problems: Vec<String>) -> Outcome {
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Every file with a declaration has as many records in the registry as it declares by name, at least; a file whose module
/// nobody lists has none. Declarations inside a family are counted by their rows, which is the macro's business: there it is
/// enough that the file has records at all.
pub fn every_declaration_is_linked() -> Outcome {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops/src");
    let mut files = Vec::new();
    sources(&root, &mut files).map_err(|error| format!("{}: {error}", root.display()))?;
    let mut declared: BTreeMap<String, usize> = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // The last two components tell files apart; `file!()` is relative to wherever the crate was compiled.
        let count = text.lines().filter(|line| line.trim_start().starts_with("#[operator")).count();
        let families = text.lines().filter(|line| line.trim_start().starts_with("operators!")).count();
        if count + families > 0 {
            declared.insert(tail(&path), count + families);
        }
    }
    let mut linked: BTreeMap<String, usize> = BTreeMap::new();
    for def in operators() {
        *linked.entry(tail(Path::new(def.file))).or_default() += 1;
    }
    let lacking = declared.iter().filter(|(file, count)| linked.get(*file).copied().unwrap_or(0) < **count);
    fail_on(
        lacking
            .map(|(file, count)| {
                let found = linked.get(file).copied().unwrap_or(0);
                format!("{file} declares {count} operators, {found} are in the registry; list its module")
            })
            .collect(),
    )
}

fn tail(path: &Path) -> String {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let from = parts.iter().rposition(|part| part == "src").map_or(0, |at| at + 1);
    parts[from..].join("/")
}

/// No two operators, executors, rewrites of one name; one implementation for a pair.
pub fn names_are_unique() -> Outcome {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let names = OPERATORS
        .iter()
        .map(|def| format!("operator {}", def.name))
        .chain(executors().into_iter().map(|executor| format!("executor {}", executor.name)))
        .chain(rewrites().into_iter().map(|rewrite| format!("rewrite {}", rewrite.name)))
        .chain(IMPLEMENTATIONS.iter().map(|imp| format!("implementation of {} by {}", imp.of, imp.by)));
    names.for_each(|name| *seen.entry(name).or_default() += 1);
    fail_on(seen.iter().filter(|(_, n)| **n > 1).map(|(name, n)| format!("{name} is declared {n} times")).collect())
}

/// Implementations and kernel symbols belong to executors that are registered, and implement operators that are.
pub fn implementations_name_what_exists() -> Outcome {
    let mut problems = Vec::new();
    for imp in implementations() {
        let place = format!("{}:{}", imp.file, imp.line);
        problems.extend(find_operator(imp.of).err().map(|error| format!("{place}: {error}")));
        problems.extend(find_executor(imp.by).err().map(|error| format!("{place}: {error}")));
    }
    for def in operators() {
        if let OperatorKind::Symbol(owner) = def.kind {
            problems.extend(find_executor(owner).err().map(|error| format!("{}:{}: {error}", def.file, def.line)));
        }
    }
    fail_on(problems)
}

/// The host has a list to run programs with, and the reference stands at its end.
pub fn default_lists_have_executors() -> Outcome {
    let names: Vec<&str> = default_executors("cpu").iter().map(|executor| executor.name).collect();
    match names.last() {
        Some(&"reference") => Ok(()),
        _ => Err(format!("the default list of the host is {names:?}, expected it to end with the reference executor")),
    }
}

/// What has no samples generates no tests.
pub fn every_operator_has_samples() -> Outcome {
    fail_on(
        operators()
            .iter()
            .filter(|def| def.samples.is_none() && !matches!(def.kind, OperatorKind::Symbol(_)))
            .map(|def| format!("{} ({}:{}) declares no samples", def.name, def.file, def.line))
            .collect(),
    )
}
