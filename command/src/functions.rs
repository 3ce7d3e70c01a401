//! Functions of a crate of one's own, which `trace show`, `view` and `profile` take by name.

use std::sync::OnceLock;

use fulgurite::Error;
use fulgurite::trace::Trace;

/// A function by its name, and what traces it.
pub type Function = (&'static str, fn() -> Result<Trace, Error>);

static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();

/// Makes functions known to the commands, once for the process.
pub fn set(functions: &[Function]) {
    // A second list would be of a program that starts the command twice.
    let _ = FUNCTIONS.set(functions.to_vec());
}

/// The functions that are known.
pub fn all() -> &'static [Function] {
    FUNCTIONS.get().map_or(&[], Vec::as_slice)
}

/// The function of this name.
pub fn find(name: &str) -> Option<&'static Function> {
    all().iter().find(|(own, _)| *own == name)
}
