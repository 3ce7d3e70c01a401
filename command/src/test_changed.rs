//! `test --changed`: the tests that a change can affect.

mod calls;
mod declarations;
mod map;
mod places;
mod selection;
mod workspace;

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;

use super::git::Repository;
use super::outcome::{Failed, Outcome};
use super::output::{quoted, say};
use declarations::Declarations;
use map::Map;
use selection::Plan;
use workspace::Workspace;

/// Arguments of `test`.
#[derive(Args)]
#[command(after_help = "\
Compared is the working tree, with new files, with BASE: HEAD if it is not given. Every file that differs is mapped to
tests, and the reason is printed:

  an operator's file      its generated tests, those of the operators that decompose into it or have it in their
                          gradients, and the tests and crates that call it
  an executor's file      its crate, and the generated tests of the operators that the file has kernels for; of the file
                          that declares the executor all that it takes
  a file of tests         its tests
  a page of the book      the tests of prose and of what pages show
  any other source        its crate and every crate that depends on it
  any other file          everything

The exit code is that of the first tests that fail. The gate of the repository runs everything.

Examples:
  fulgurite test --changed
  fulgurite test --changed main
  fulgurite test --changed main --list")]
pub struct Arguments {
    /// Runs what the changes since this commit can affect; HEAD without one.
    #[arg(long, value_name = "BASE", num_args = 0..=1, default_missing_value = "HEAD", required = true)]
    changed: String,
    /// Prints what would run and why, and runs nothing.
    #[arg(long, visible_alias = "dry-run")]
    list: bool,
}

/// Runs the tests.
pub fn run(arguments: &Arguments) -> Outcome {
    let repository = Repository::open("test --changed asks git what changed")?;
    let base = repository.commit(&arguments.changed)?;
    let changed = repository.all_changed(&base)?;
    if changed.is_empty() {
        say!("nothing changed since {}", base.in_words())?;
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = Workspace::read(&repository)?;
    let declarations = Declarations::linked();
    let map = Map {
        workspace: &workspace,
        declarations: &declarations,
        callers: Default::default(),
        concerned: Default::default(),
    };
    let mut plan = Plan::default();
    say!("{} since {}:", files(changed.len()), base.in_words())?;
    for path in &changed {
        let (tests, why) = map.of(path);
        say!("  {path}: {why}")?;
        plan.add(tests);
    }
    let commands = plan.commands(&workspace);
    for command in &commands {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        say!("cargo {}", words.join(" "))?;
    }
    if arguments.list {
        return Ok(ExitCode::SUCCESS);
    }
    // A filter that matches no test must not pass for one that did: cargo prints how many ran.
    let mut outcome = ExitCode::SUCCESS;
    let mut failed = false;
    for command in &commands {
        let code = cargo(command, &workspace.root)?;
        if code != 0 && !failed {
            failed = true;
            outcome = ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
    }
    Ok(outcome)
}

/// Runs cargo with the streams of this process: its exit code, 1 where a signal ended it.
fn cargo(words: &[String], root: &Path) -> Result<i32, Failed> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program).args(words).current_dir(root).status();
    let status = status.map_err(|error| Failed(format!("cargo: {error}; tests are run with the program cargo")))?;
    Ok(status.code().unwrap_or(1))
}

/// `1 file changed`, `3 files changed`.
fn files(count: usize) -> String {
    format!("{count} {} changed", if count == 1 { "file" } else { "files" })
}
