//! What a template says when a declaration does not hold.

use std::fmt;

use crate::error::{Error, Failure};
use crate::failure::PANICKED;

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

    /// Whether a rule panicked. To refuse arguments is something else.
    pub fn is_panic(&self) -> bool {
        self.0.contains(PANICKED)
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

/// How many lines of a message are shown at its beginning and at its end.
const SHOWN: (usize, usize) = (16, 12);

/// A message without the middle of the traces that it quotes, unless `FULGURITE_FULL=1` is set.
pub(crate) fn excerpt(message: &str) -> String {
    let lines: Vec<&str> = message.lines().collect();
    let (first, last) = SHOWN;
    if lines.len() <= first + last + 4 || std::env::var("FULGURITE_FULL").is_ok_and(|value| value == "1") {
        return message.to_owned();
    }
    let left_out = lines.len() - first - last;
    let (head, tail) = (lines[..first].join("\n"), lines[lines.len() - last..].join("\n"));
    format!("{head}\n  ... {left_out} more lines, which FULGURITE_FULL=1 shows ...\n{tail}")
}

/// Fails unless `condition` holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err($crate::problem::Problem(::std::format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn long_messages_lose_their_middle() {
        let short = "a\nb";
        assert_eq!(excerpt(short), short);
        let long: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let text = excerpt(&long.join("\n"));
        assert!(text.starts_with("line 0\n") && text.ends_with("\nline 99"), "{text}");
        assert!(text.contains("... 72 more lines, which FULGURITE_FULL=1 shows ..."), "{text}");
    }
}
