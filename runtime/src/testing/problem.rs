//! What a template says when a declaration does not hold.

use std::fmt;

use crate::error::{Error, Failure};

/// Why a generated test fails: a sentence that names the element, what was expected and what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(pub String);

/// The result of a check.
pub(crate) type Check<T = ()> = Result<T, Problem>;

impl Problem {
    /// The same problem, and what it was found in.
    pub fn within(self, what: impl fmt::Display) -> Problem {
        Problem(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem(error.to_string())
    }
}
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        Problem(failure.to_string())
    }
}
impl From<String> for Problem {
    fn from(text: String) -> Problem {
        Problem(text)
    }
}
impl From<&str> for Problem {
    fn from(text: &str) -> Problem {
        Problem(text.to_owned())
    }
}

/// Fails unless `condition` holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err($crate::testing::problem::Problem(::std::format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
