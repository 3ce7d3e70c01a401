//! `trace diff`: two programs, compared.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::comparison::Comparison;

use super::outcome::Outcome;
use super::outline;
use super::output::{note, say, say_json};
use super::trace_files::read;

/// Arguments of `trace diff`.
#[derive(Args)]
#[command(after_help = "\
Lines are matched by what they compute, then by the names that they define; those that have other names alone are
counted. Totals are counted from the traces, nothing is run: lines, lines that an executor runs, the bytes that these
read and write, operations, and the peak of a planned trace.

Examples:
  fulgurite trace diff before.trace after.trace
  fulgurite trace diff before.trace after.trace --markdown")]
pub struct Arguments {
    /// The trace before.
    before: PathBuf,
    /// The trace after.
    after: PathBuf,
    /// Prints JSON: totals, counts, lines.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Prints Markdown, for a pull request.
    #[arg(long)]
    markdown: bool,
}

/// Compares two traces; 1 if they differ.
pub fn run(arguments: &Arguments) -> Outcome {
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let comparison = Comparison::of(&before, &after);
    if let Some(warning) = outline::warning(&before, &after) {
        note(&warning);
    }
    if arguments.json {
        say_json(&comparison.to_json())?;
    } else if arguments.markdown {
        say!("{}", comparison.to_markdown().trim_end())?;
    } else if !comparison.is_empty() {
        say!("{}", comparison.to_string().trim_end())?;
    }
    Ok(if comparison.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
