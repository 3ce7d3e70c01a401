//! The CUDA sources of programs, as `trace show --stage sources` prints them.

use std::process::ExitCode;
use std::sync::Arc;

use fulgurite::device::Source;

use super::outcome::{Failed, Outcome};
use super::output::say;

/// The stage that is no trace.
pub const SOURCES: &str = "sources";

/// Fails if a program for `target` has no sources.
pub fn expect_sources(sources: &[Arc<Source>], target: &str) -> Result<(), Failed> {
    match sources.is_empty() {
        true => Err(Failed(format!("a program for {target} has no sources: --target cuda:sm_90a has"))),
        false => Ok(()),
    }
}

/// Prints sources, each once.
pub fn print_sources(sources: &[Arc<Source>], target: &str) -> Outcome {
    expect_sources(sources, target)?;
    for source in sources {
        let options = if source.options.is_empty() { String::new() } else { format!(" {}", source.options.join(" ")) };
        say!("// === {}{options} ===\n{}\n", source.name, source.text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
