//! `trace verify`, and reading traces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::Error;
use fulgurite::compile::{Options, compile};
use fulgurite::executor::ExecutorOptions;
use fulgurite::trace::verify::verify_marked;
use fulgurite::trace::{self, Trace};

use super::claim_options::about_options;
use super::outcome::{Failed, Outcome};
use super::output::say;
use super::{options, target};

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
    #[command(flatten)]
    of_executors: options::OfExecutors,
}

/// Reads a trace, which need not be valid.
pub fn read(path: &Path) -> Result<Trace, Failed> {
    let text = std::fs::read_to_string(path).map_err(|error| Failed::file(path, error))?;
    trace::parse(&text).map_err(|error| match error {
        Error::Parse { line, column, message } => Failed(format!("{}:{line}:{column}: {message}", path.display())),
        other => Failed::file(path, other),
    })
}

/// Reads and checks a trace. What executors take of it may depend on their options.
pub fn read_verified(path: &Path, options: &ExecutorOptions) -> Result<Trace, Failed> {
    let trace = read(path)?;
    let _given = options.enter();
    let (checked, wrong) = verify_marked(&trace);
    let about = about_options(wrong);
    checked.map_err(|error| Failed::file(path, format!("{error}{about}")))?;
    Ok(trace)
}

/// Checks a trace.
pub fn verify(arguments: &Verify) -> Outcome {
    let executor_options = arguments.of_executors.values()?;
    let trace = read_verified(&arguments.file, &executor_options)?;
    target::check(&trace.target).map_err(|message| Failed::file(&arguments.file, message))?;
    // A claimed trace is prepared as well: it must run unchanged.
    if trace.block.symbols.iter().any(|symbol| symbol.executor.is_some()) {
        let options = Options { executor_options, ..Options::default() };
        compile(trace.clone(), &options).map_err(|error| Failed::file(&arguments.file, error))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patient::{CLAIMED, command_patient};
    use fulgurite::compile::{compile_split, prepare};

    #[test]
    fn a_trace_that_is_claimed_under_an_option_is_read_under_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claimed.trace");
        std::fs::write(&path, CLAIMED).unwrap();
        let given = Options::default().with_option(&command_patient::FEWEST, 2);
        let trace = read_verified(&path, &given.executor_options).unwrap();
        let refused = read_verified(&path, &ExecutorOptions::default()).unwrap_err().0;
        assert!(refused.contains("has 3 elements, takes 4 or more"), "{refused}");
        assert!(refused.contains("verified with their defaults, `--option`"), "{refused}");
        compile(trace, &given).unwrap();

        // The two programs of a split are verified under it too; without its executor it is refused.
        let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[3]) {\n  y = relu(x)\n  return y\n}\n";
        let trace = trace::parse(text).unwrap();
        let listed = given.clone().with_executors(&["command_patient", "cpu"]).unwrap();
        let programs = compile_split(trace.clone(), &[0], &[0], &listed).unwrap();
        let forward = programs.forward.last().unwrap().trace.to_string();
        assert!(forward.contains("by command_patient"), "{forward}");
        prepare(&programs, &listed).unwrap();
        let unlisted = compile(trace, &given).unwrap_err().to_string();
        assert!(unlisted.contains("executor 'command_patient' is not in the list"), "{unlisted}");
    }
}
