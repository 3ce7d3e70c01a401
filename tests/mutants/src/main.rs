//! How many wrong versions of the operators the generated tests find:
//!
//! ```text
//! cargo run --manifest-path tests/mutants/Cargo.toml -- [--file TEXT] [--every N] [--minutes N] [--list]
//! ```
//!
//! Mutants (another sign, operator, function, constant or bound, a dropped term or condition, swapped arguments) of the
//! operators' rules and of the host's kernels are written into a copy of `ops` behind one switch, so that one build serves all of them. Each
//! mutant is a process that runs the generated tests of the operators that its file concerns, until one fails.
//! Snapshots are tried last and counted apart. `equivalent.txt` lists the survivors that change nothing, each with its reason.

mod build;
mod find;
mod run;
mod weave;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use build::Workspace;
use find::Mutant;

/// Folders of operators, and of the kernels that run them on the host.
const FOLDERS: [&str; 5] = ["ops/src/prims", "ops/src/core", "ops/src/nn", "ops/src/optim", "ops/src/executors/cpu"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().position(|own| own == name).and_then(|at| arguments.get(at + 1)).cloned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap_or(root);
    let every = value("--every").and_then(|every| every.parse().ok()).unwrap_or(1);
    let mut mutants = all(&root, value("--file").as_deref(), every);
    if arguments.iter().any(|own| own == "--list") {
        for mutant in &mutants {
            println!("{}", run::line(mutant));
        }
        println!("{} mutants", mutants.len());
        return ExitCode::SUCCESS;
    }
    let minutes: f64 = value("--minutes").and_then(|minutes| minutes.parse().ok()).unwrap_or(1e6);
    match search(&root, &mut mutants, Duration::from_secs_f64(60.0 * minutes)) {
        Ok(survivors) => ExitCode::from(u8::from(survivors > 0)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn search(root: &Path, mutants: &mut Vec<Mutant>, time: Duration) -> Result<usize, String> {
    let workspace = Workspace::new(root).map_err(|error| error.to_string())?;
    let runner = workspace.build(mutants)?;
    run::run(root, &runner, mutants, time)
}

/// Every n-th mutant of the files whose paths contain `part`, numbered from 1 whatever is chosen.
fn all(root: &Path, part: Option<&str>, every: usize) -> Vec<Mutant> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "rs")));
    }
    files.sort();
    let mut mutants = Vec::new();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        mutants.extend(find::find(&name, &source));
    }
    for (at, mutant) in mutants.iter_mut().enumerate() {
        mutant.id = at + 1;
    }
    mutants.retain(|mutant| mutant.id % every.max(1) == 0 && part.is_none_or(|part| mutant.file.contains(part)));
    mutants
}
