//! The CUDA sources of programs, as `trace show --stage sources` prints them.

use std::process::ExitCode;
use std::sync::Arc;

use fulgurite::device::Source;
use fulgurite::rules::fulgurite_kernels::cuda::HEADER;

use super::outcome::{Failed, Outcome};
use super::output::say;

/// The stage that is no trace.
pub const SOURCES: &str = "sources";

/// Prints sources, each once.
pub fn print_sources(sources: &[Arc<Source>], target: &str) -> Outcome {
    if sources.is_empty() {
        return Err(Failed(format!("a program for {target} has no sources: --target cuda:sm_90a has")));
    }
    for source in sources {
        // What all begin with is printed by none.
        let text = source.text.strip_prefix(HEADER).map_or_else(
            || source.text.to_string(),
            |rest| format!("// Behind kernels/src/cuda/header.cuh.\n{}", rest.trim_start_matches('\n')),
        );
        let options = if source.options.is_empty() { String::new() } else { format!(" {}", source.options.join(" ")) };
        say!("// === {}{options} ===\n{}\n", source.name, text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
