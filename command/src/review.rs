//! `review`: what a change did to the stored programs of a repository.

mod comment;
mod compare;
mod counts;
mod finding;
mod findings;
mod header;
mod interface;
mod json;
mod lines;
mod markdown;
mod not_linked;
mod of_lines;
mod pending;
mod reviewed;
mod side;
mod sides;
mod targets;
mod terminal;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::git::Repository;
use super::outcome::{Failed, Outcome};
use super::output::{note, say, write};
use crate::cases::write_whole;
use pending::Waiting;
use sides::{Pair, Sides};
use terminal::Layout;

/// Arguments of `review`.
#[derive(Args)]
#[command(after_help = "\
Compared are the programs in snapshots (`.snap`) and traces (`.trace`) of the whole repository, except files that git
ignores. In the working tree, what a failed test left beside a snapshot (`.snap.new`) stands for it. Programs that
changed most come first; those that changed in names, order and places in memory alone are counted.

Without BASE, changed snapshots and traces of the working tree are compared with HEAD. If none changed, HEAD is compared
with its merge base with main or origin/main, or, where it is that commit itself, with the commit before it.

The exit code is 0 whether anything differs or not; with --exit-code it is 1 if anything differs.

Examples:
  fulgurite review
  fulgurite view main:tests/snapshots/rms_norm.snap tests/snapshots/rms_norm.snap -o both.html
  fulgurite review main --to my-branch --markdown -
  fulgurite review --only rms_norm
  fulgurite review --accept rms_norm")]
pub struct Arguments {
    /// The commit to compare with.
    base: Option<String>,
    /// Compares this commit instead of the working tree.
    #[arg(long, value_name = "COMMIT")]
    to: Option<String>,
    /// Only files whose path has this text in it; any number of times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Writes Markdown for a pull request; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Writes JSON: the files, their programs, what was found, and the lines that differ; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exits with 1 if anything differs.
    #[arg(long)]
    exit_code: bool,
    /// Accepts what failed tests left beside these snapshots (`my_operators::softcap` as headings show it, `softcap`,
    /// or a path), as `cargo insta accept` does; all without a name.
    #[arg(long, value_name = "NAME", num_args = 0.., conflicts_with_all = ["base", "to", "only", "markdown", "json",
        "exit_code"])]
    accept: Option<Vec<String>>,
    /// Drops what failed tests left beside these snapshots, as `cargo insta reject` does; all without a name.
    #[arg(long, value_name = "NAME", num_args = 0.., conflicts_with_all = ["accept", "base", "to", "only", "markdown",
        "json", "exit_code"])]
    reject: Option<Vec<String>>,
}

/// Compares, and says what changed.
pub fn run(arguments: &Arguments) -> Outcome {
    let repository = Repository::open("review compares commits of a git repository")?;
    if let Some(names) = arguments.accept.as_ref().or(arguments.reject.as_ref()) {
        return settle(&repository, names, arguments.accept.is_some());
    }
    let options = [("--markdown", &arguments.markdown), ("--json", &arguments.json)];
    targets::expect_sound(&options.map(|(option, path)| (option, path.as_deref())))?;
    let sides = Sides::of(&repository, arguments.base.as_deref(), arguments.to.as_deref())?;
    let mut pairs = sides.pairs(&repository)?;
    pairs.retain(|pair| is_wanted(pair, &arguments.only));
    let differs = !pairs.is_empty();
    if !differs && !arguments.only.is_empty() {
        note(&format!("no file whose path has '{}' in it differs", arguments.only.join("' or '")));
    }
    let review = compare::review(sides.in_words(), pairs);
    let mut to_output = false;
    if let Some(path) = &arguments.markdown {
        to_output |= put(path, &markdown::to_markdown(&review))?;
    }
    if let Some(path) = &arguments.json {
        to_output |= put(path, &format!("{:#}\n", json::to_json(&review)))?;
    }
    if !to_output {
        write(format_args!("{}", terminal::to_text(&review, &Layout::of_output())))?;
    }
    Ok(if arguments.exit_code && differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Accepts or rejects the snapshots that wait.
fn settle(repository: &Repository, names: &[String], accept: bool) -> Outcome {
    let (waiting, inline) = Waiting::all(repository)?;
    let chosen = pending::named(waiting, names)?;
    for waiting in &chosen {
        match accept {
            true => waiting.accept(repository)?,
            false => waiting.reject(repository)?,
        }
        say!("{} {}", if accept { "accepted" } else { "rejected" }, waiting.snapshot)?;
    }
    if chosen.is_empty() {
        say!("no snapshot waits to be accepted")?;
    }
    if !inline.is_empty() {
        let files = inline.join(", ");
        note(&format!("snapshots in sources are left to cargo insta: {files}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a text to a file, or to standard output: whether it was that.
fn put(path: &Path, text: &str) -> Result<bool, Failed> {
    let output = path == Path::new("-");
    match output {
        true => write(format_args!("{text}"))?,
        false => write_whole(path, text.as_bytes())?,
    }
    Ok(output)
}

fn is_wanted(pair: &Pair, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|text| pair.path.contains(text.as_str()))
}
