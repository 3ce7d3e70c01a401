//! Options name records by reference. A running program may have withdrawn or replaced them since.

use super::Options;
use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, RewriteDef, find_executor, rewrites};
use crate::trace::{Callee, Trace};

/// Checks, where a compilation begins, that the executors and rewrites of its options are those that are found by their
/// names. Other parts of a compilation look executors up by name: two versions of one would be mixed.
///
/// # Errors
/// Of the first executor or rewrite that was withdrawn, with what has its name now.
pub(super) fn check(executors: Option<&[&ExecutorDef]>, wanted: Option<&[&RewriteDef]>) -> Result<()> {
    for executor in executors.into_iter().flatten() {
        let now = find_executor(executor.name).ok();
        if !now.is_some_and(|now| std::ptr::eq(now, *executor)) {
            return Err(stale("executors", executor.name, now.is_some()));
        }
    }
    let Some(wanted) = wanted else { return Ok(()) };
    let known = rewrites();
    for rewrite in wanted {
        if !known.iter().any(|known| std::ptr::eq(*known, *rewrite)) {
            return Err(stale("rewrites", rewrite.name, known.iter().any(|known| known.name == rewrite.name)));
        }
    }
    Ok(())
}

/// Checks that each option of an executor that has a value is of an executor in the list, or of one that runs a line of
/// the trace already. Another one would change nothing but the names of records.
///
/// # Errors
/// Of the first option that is of no such executor.
pub(super) fn expect_listed(options: &Options, trace: &Trace) -> Result<()> {
    let list = options.executor_list(trace.target.kind());
    let runs = trace.block.symbols.iter().filter_map(|symbol| match symbol.callee {
        Callee::Region { executor } => Some(executor),
        _ => symbol.executor,
    });
    let running: Vec<&ExecutorDef> = runs.filter_map(|name| find_executor(name).ok()).collect();
    let has = |path: &str| {
        let mut all = list.iter().chain(&running).flat_map(|executor| executor.options);
        all.any(|option| option.path() == path)
    };
    let Some(path) = options.executor_options.paths().find(|path| !has(path)) else { return Ok(()) };
    let executor = path.split('.').next().unwrap_or(path);
    let names: Vec<&str> = list.iter().map(|executor| executor.name).collect();
    let message = format!(
        "has no effect: executor '{executor}' is not in the list ({}); name it there, or leave the option out",
        names.join(", ")
    );
    Err(Error::Argument { argument: format!("option {path}"), message })
}

fn stale(argument: &str, name: &str, replaced: bool) -> Error {
    let now =
        if replaced { "another version of it is registered now" } else { "nothing of this name is registered now" };
    let message = format!("of the options: '{name}' is not registered any more, {now}; make the options again");
    Error::Argument { argument: argument.into(), message }
}
