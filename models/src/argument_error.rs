//! The error of an argument, an option or a tensor that cannot be used.

use fulgurite_runtime::Error;

/// `argument` is wrong, as `message` says: `is 0, expected at least 1`.
pub(crate) fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}
