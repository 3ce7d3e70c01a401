//! `trace verify`, and reading traces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::Error;
use fulgurite::compile::{Options, compile};
use fulgurite::trace::{self, Trace};

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::target;

/// Arguments of `trace verify`.
#[derive(Args)]
#[command(after_help = "\
Checks the rules of the language; where executors have claimed lines, their kernels are prepared as well. Nothing is run, and no
device is needed.

Example:
  fulgurite trace verify softmax.trace")]
pub struct Verify {
    /// The trace, of any stage.
    file: PathBuf,
}

/// Reads a trace, which need not be valid.
pub fn read(path: &Path) -> Result<Trace, Failed> {
    let text = std::fs::read_to_string(path).map_err(|error| Failed::file(path, error))?;
    trace::parse(&text).map_err(|error| match error {
        Error::Parse { line, column, message } => Failed(format!("{}:{line}:{column}: {message}", path.display())),
        other => Failed::file(path, other),
    })
}

/// Reads and checks a trace.
pub fn read_verified(path: &Path) -> Result<Trace, Failed> {
    let trace = read(path)?;
    trace.verify().map_err(|error| Failed::file(path, error))?;
    Ok(trace)
}

/// Checks a trace.
pub fn verify(arguments: &Verify) -> Outcome {
    let trace = read_verified(&arguments.file)?;
    target::check(&trace.target).map_err(|message| Failed::file(&arguments.file, message))?;
    // A claimed trace is prepared as well: it must run unchanged.
    if trace.block.symbols.iter().any(|symbol| symbol.executor.is_some()) {
        compile(trace.clone(), &Options::default()).map_err(|error| Failed::file(&arguments.file, error))?;
    }
    let stage = trace.history.last().map_or("none", String::as_str);
    say!(
        "{}: {} for {}, {} inputs, {} lines, {} outputs, after {stage}: valid",
        arguments.file.display(),
        trace.name,
        trace.target,
        trace.inputs.len(),
        trace.block.symbols.len(),
        trace.outputs.len()
    )?;
    Ok(ExitCode::SUCCESS)
}
