//! Logging, enabled by `FULGURITE_LOG`.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::outcome::Failed;

/// The variable that says what is logged: `info`, `fulgurite_run=debug`, ...
pub const VARIABLE: &str = "FULGURITE_LOG";

/// What is logged if the variable is not set: that a compilation waits for measurements, and what is wrong with
/// records.
const ALWAYS: &str = "fulgurite_run::choices=warn";

/// Logs to standard error at the level that the variable sets.
pub fn start() -> Result<(), Failed> {
    let set = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty());
    let wanted = set.as_deref().map_or(ALWAYS.into(), |wanted| wanted.to_string_lossy());
    let targets: Targets = wanted.parse().map_err(|error| {
        Failed(format!("{VARIABLE}: {error}; expected a level (error, warn, info, debug, trace) or module=level, ..."))
    })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    tracing_subscriber::registry().with(layer).with(targets).try_init().map_err(|error| Failed(error.to_string()))
}
