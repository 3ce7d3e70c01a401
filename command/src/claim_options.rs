//! What stored programs do not say of claims: the values that options of executors had.

use fulgurite::executor::{ExecutorOptions, find_executor};
use fulgurite::trace::BoundSymbol;

/// What is said behind a fault of the line `wrong`. What its executor takes may depend on options, and a trace does not
/// carry their values; nothing is said of an executor that has none.
pub fn about_options(wrong: Option<&BoundSymbol>) -> String {
    let executor = wrong.and_then(|wrong| find_executor(wrong.executor?).ok());
    let Some(executor) = executor.filter(|executor| !executor.options.is_empty()) else { return String::new() };
    let given = ExecutorOptions::current();
    let given = if given.paths().next().is_none() { "their defaults".into() } else { given.to_string() };
    format!(
        "; {} has options, and a trace does not carry their values: verified with {given}, `--option` of `trace verify` \
         and `view` gives others",
        executor.name
    )
}
