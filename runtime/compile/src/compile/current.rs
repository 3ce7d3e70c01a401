//! Options name records by reference. A running program may have withdrawn or replaced them since.

use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, RewriteDef, find_executor, rewrites};

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

fn stale(argument: &str, name: &str, replaced: bool) -> Error {
    let now =
        if replaced { "another version of it is registered now" } else { "nothing of this name is registered now" };
    let message = format!("of the options: '{name}' is not registered any more, {now}; make the options again");
    Error::Argument { argument: argument.into(), message }
}
