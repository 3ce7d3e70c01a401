//! How many wrong versions of the operators the generated tests find:
//!
//! ```text
//! cargo run --manifest-path tests/mutants/Cargo.toml -- \
//!     [--file TEXT] [--sample N] [--seed S] [--jobs N] [--minutes N] [--all]
//! ```
//!
//! Mutants (another sign, operator, function, constant or bound, a dropped term or condition, swapped arguments) of the
//! operators' rules and of the host's kernels are written into a copy of `ops` behind one switch, so that one build
//! serves all of them. Each mutant is a process that runs the generated tests of the operators that its file concerns,
//! until one fails. Snapshots are tried last and counted apart. `equivalent.txt` lists the survivors that change
//! nothing, each with its reason.
//!
//! `--list` prints the mutants, and `--all` also those that a test kills. `--prepare FOLDER` builds the runner and
//! writes it there with the list of its mutants. Another machine runs them from there, without a compiler: `mutants
//! --prepared FOLDER --root REPOSITORY`.

mod build;
mod find;
mod list;
mod prepared;
mod reach;
mod run;
mod table;
mod weave;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use build::Workspace;
use prepared::Prepared;

struct Options {
    root: PathBuf,
    file: Option<String>,
    sample: Option<usize>,
    seed: u64,
    jobs: usize,
    minutes: f64,
    list: bool,
    all: bool,
    prepare: Option<PathBuf>,
    prepared: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut options = Options {
            root: root.canonicalize().unwrap_or(root),
            file: None,
            sample: None,
            seed: 1,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            minutes: 1e6,
            list: false,
            all: false,
            prepare: None,
            prepared: None,
        };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{name} needs a value"));
            fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
                text.parse().map_err(|_| format!("{name}: '{text}' is no number"))
            }
            match name.as_str() {
                "--root" => options.root = value()?.into(),
                "--file" => options.file = Some(value()?.clone()),
                "--sample" => options.sample = Some(number(name, value()?)?),
                "--seed" => options.seed = number(name, value()?)?,
                "--jobs" => options.jobs = number(name, value()?)?,
                "--minutes" => options.minutes = number(name, value()?)?,
                "--list" => options.list = true,
                "--all" => options.all = true,
                "--prepare" => options.prepare = Some(value()?.into()),
                "--prepared" => options.prepared = Some(value()?.into()),
                _ => return Err(format!("'{name}' is no option")),
            }
        }
        Ok(options)
    }

    /// Takes what `--file` and `--sample` choose.
    fn chosen<T>(&self, mut items: Vec<T>, file: impl Fn(&T) -> String) -> Vec<T> {
        items.retain(|item| self.file.as_ref().is_none_or(|part| file(item).contains(part.as_str())));
        match self.sample {
            Some(count) => list::sample(items, file, count, self.seed),
            None => items,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments).and_then(|options| search(&options)) {
        Ok(survivors) => ExitCode::from(u8::from(survivors > 0)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Does what is asked for; the number of survivors.
fn search(options: &Options) -> Result<usize, String> {
    if options.list {
        let mutants = options.chosen(list::all(&options.root), |mutant| mutant.file.clone());
        mutants.iter().for_each(|mutant| println!("{mutant}"));
        println!("{} mutants", mutants.len());
        return Ok(0);
    }
    let mut prepared = match &options.prepared {
        Some(folder) => Prepared::read(folder)?,
        None => {
            let mut mutants = list::all(&options.root);
            let workspace = Workspace::new(&options.root, &mutants).map_err(|error| error.to_string())?;
            let runner = workspace.build(&mut mutants)?;
            Prepared::new(runner, &mutants, workspace.folder())?
        }
    };
    if let Some(folder) = &options.prepare {
        prepared.write(folder).map_err(|error| error.to_string())?;
        println!("{} mutants and their runner are in {}", prepared.mutants.len(), folder.display());
        return Ok(0);
    }
    let keys: BTreeSet<String> = prepared.mutants.iter().map(|mutant| mutant.key.clone()).collect();
    let path = options.root.join("tests/mutants/equivalent.txt");
    let known = run::equivalents(&std::fs::read_to_string(path).unwrap_or_default(), &keys)?;
    prepared.mutants = options.chosen(prepared.mutants, |mutant| mutant.file.clone());
    let settings = run::Settings {
        root: options.root.clone(),
        jobs: options.jobs,
        time: Duration::from_secs_f64(60.0 * options.minutes),
        show_killed: options.all,
    };
    run::run(&prepared, &known, &settings)
}
