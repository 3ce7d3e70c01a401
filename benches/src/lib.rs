//! What the measurements share.

pub mod plot;
pub mod step;
pub mod weights;

use std::time::{Duration, Instant};

use fulgurite_runtime::{Error, Result};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs to standard error what `FULGURITE_LOG` asks for, with the time since the start of the process.
pub fn log_to_stderr() {
    let Ok(wanted) = std::env::var("FULGURITE_LOG") else { return };
    let targets = match wanted.parse::<Targets>() {
        Ok(targets) => targets,
        Err(error) => return eprintln!("FULGURITE_LOG: {error}; nothing is logged"),
    };
    let layer = tracing_subscriber::fmt::layer().with_timer(tracing_subscriber::fmt::time::uptime());
    tracing_subscriber::registry().with(layer.with_writer(std::io::stderr)).with(targets).init();
}

/// Refuses a debug build: its times are not those of a release build, and nothing else comes of these programs.
///
/// # Errors
/// In a debug build.
pub fn require_release() -> Result<()> {
    match fulgurite_runtime::BUILD {
        "release" => Ok(()),
        build => Err(wrong("build", format!("is a {build} build, expected a release build: cargo run --release"))),
    }
}

/// The median duration of `runs` calls of `f`, after `warmup` calls.
pub fn median(warmup: usize, runs: usize, mut f: impl FnMut()) -> Duration {
    for _ in 0..warmup {
        f();
    }
    let mut times: Vec<Duration> = (0..runs.max(1))
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// The median of some numbers, to three decimals.
pub fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).map_or(f64::NAN, |middle| (middle * 1e3).round() / 1e3)
}

/// The value of a named argument of the command line.
pub fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// The number that a named argument of the command line is.
pub fn number(name: &str, otherwise: usize) -> Result<usize> {
    let Some(text) = argument(name) else { return Ok(otherwise) };
    text.parse().map_err(|error| wrong(name, format!("is '{text}', expected a number: {error}")))
}

/// The error of an argument of the command line.
pub fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}

/// The processor's name, where the system tells.
pub fn processor() -> String {
    fulgurite_kernels::machine::processor().unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_debug_build_is_refused() {
        let refused = super::require_release().map_err(|error| error.to_string());
        match cfg!(debug_assertions) {
            true => assert!(refused.unwrap_err().contains("is a debug build, expected a release build")),
            false => assert_eq!(refused, Ok(())),
        }
    }
}
