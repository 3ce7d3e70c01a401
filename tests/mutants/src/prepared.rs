//! What a run needs besides the snapshots and golden vectors of the repository: the runner, and the mutants compiled
//! into it.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        let output = Command::new(&runner).arg("list").output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let declared: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('\t')).collect();
        let mut listed = Vec::new();
        let mut known: HashMap<(&str, &str), Vec<String>> = HashMap::new();
        for mutant in mutants {
            let of = known.entry((&mutant.file, &mutant.function));
            let operators = of.or_insert_with(|| concerned(copy, mutant, &declared)).clone();
            let file = mutant.file.clone();
            listed.push(Listed { id: mutant.id, file, operators, key: mutant.key(), line: mutant.to_string() });
        }
        Ok(Prepared { runner, mutants: listed })
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

/// What has tests that say something of a function: the operators and rewrites that its file declares or has kernels
/// for, and those of files that call it, if it is a helper; otherwise those of files that name its file. Of executors
/// and how they fuse these are the operators that an executor takes by its rules, and random programs.
fn concerned(copy: &Path, mutant: &Mutant, declared: &[(&str, &str)]) -> Vec<String> {
    let Mutant { file, function, .. } = mutant;
    let of = |file: &str| -> BTreeSet<String> {
        declared.iter().filter(|(_, own)| own.ends_with(file)).map(|(name, _)| (*name).to_owned()).collect()
    };
    let naming = |uses: &[String]| -> BTreeSet<String> {
        let files: BTreeSet<&str> = declared.iter().map(|(_, file)| *file).collect();
        let text = |other: &str| fs::read_to_string(copy.join(other)).unwrap_or_default();
        let naming = files.into_iter().filter(|other| uses.iter().any(|name| text(other).contains(name.as_str())));
        naming.flat_map(of).collect()
    };
    let mut names = of(file);
    // A helper is called by its name alone, behind a space, a bracket or a path.
    if !function.is_empty() && !function.contains("::") {
        names.extend(naming(&[" ", "(", "::", "!"].map(|before| format!("{before}{function}("))));
    }
    if names.is_empty() {
        let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        names.extend(naming(&[format!("{stem}::"), format!("use super::{stem};")]));
    }
    let executor = fs::read_to_string(copy.join(file)).is_ok_and(|text| text.contains("#[executor("));
    if names.is_empty() || executor {
        names.insert("programs".to_owned());
    }
    names.into_iter().collect()
}
