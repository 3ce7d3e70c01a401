//! What a run needs besides the snapshots and golden vectors of the repository: the runner, and the mutants compiled
//! into it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::find::Mutant;

/// The name of the runner in a prepared folder.
const RUNNER: &str = "runner";
/// The name of the list of its mutants.
const LIST: &str = "mutants.tsv";

/// A mutant as a run needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its number in the runner.
    pub id: usize,
    /// The file that it is in.
    pub file: String,
    /// The operators whose tests say something about it.
    pub operators: Vec<String>,
    /// What `equivalent.txt` calls it.
    pub key: String,
    /// The mutant in a line, for people.
    pub line: String,
}

/// A runner and its mutants.
pub struct Prepared {
    pub runner: PathBuf,
    pub mutants: Vec<Listed>,
}

impl Prepared {
    /// Asks the runner which operators each mutant concerns. `copy` is the folder of the sources that the runner was
    /// built from.
    pub fn new(runner: PathBuf, mutants: &[Mutant], copy: &Path) -> Result<Prepared, String> {
        let places: BTreeSet<(&str, &str)> = mutants.iter().map(|mutant| (&*mutant.file, &*mutant.function)).collect();
        let asked: String = places.iter().map(|(file, function)| format!("{file}\t{function}\n")).collect();
        let answers = ask(&runner, copy, asked)?;
        if answers.len() != places.len() {
            return Err(format!("the runner answered {} of {} questions", answers.len(), places.len()));
        }
        let known: BTreeMap<(&str, &str), Vec<String>> = places.into_iter().zip(answers).collect();
        let listed = |mutant: &Mutant| Listed {
            id: mutant.id,
            file: mutant.file.clone(),
            operators: known[&(&*mutant.file, &*mutant.function)].clone(),
            key: mutant.key(),
            line: mutant.to_string(),
        };
        let mutants = mutants.iter().map(listed).collect();
        Ok(Prepared { runner, mutants })
    }

    /// Copies both to a folder, from which any machine of this architecture can run them.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::copy(&self.runner, folder.join(RUNNER))?;
        let line = |own: &Listed| {
            format!("{}\t{}\t{}\t{}\t{}\n", own.id, own.file, own.operators.join(","), own.key, own.line)
        };
        fs::write(folder.join(LIST), self.mutants.iter().map(line).collect::<String>())
    }

    /// Reads the files of [`Prepared::write`].
    pub fn read(folder: &Path) -> Result<Prepared, String> {
        let path = folder.join(LIST);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let one = |line: &str| {
            let [id, file, operators, key, shown] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
            Some(Listed {
                id: id.parse().ok()?,
                file: file.to_owned(),
                operators: operators.split(',').map(str::to_owned).collect(),
                key: key.to_owned(),
                line: shown.to_owned(),
            })
        };
        let mutants = text.lines().map(|line| one(line).ok_or_else(|| format!("{}: '{line}'", path.display())));
        Ok(Prepared { runner: folder.join(RUNNER), mutants: mutants.collect::<Result<_, _>>()? })
    }
}

/// The operators for each line of `asked`, by the map that `fulgurite test --changed` uses
/// (`runtime/testing/src/concerned.rs`).
fn ask(runner: &Path, copy: &Path, asked: String) -> Result<Vec<Vec<String>>, String> {
    let failed = |error: io::Error| format!("{}: {error}", runner.display());
    let mut child = Command::new(runner)
        .arg("concerned")
        .arg(copy)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let stdin = child.stdin.take();
    // Written beside the reading: both pipes hold only so much.
    let writer = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(asked.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    let _ = writer.join();
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect())
}
