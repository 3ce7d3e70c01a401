//! Where a text is wrong, and in what words that is said.

use super::super::word::word_length;
use super::Parser;
use crate::error::{Error, Result};
use crate::operator::did_you_mean;

/// Longer names get no "did you mean", and are cut short in messages.
pub(super) const MAX_HINT: usize = 64;

/// `text`, cut short if it is long, in single quotes.
pub(super) fn quote(text: &str) -> String {
    if text.chars().nth(MAX_HINT).is_none() {
        format!("'{text}'")
    } else {
        format!("'{}...'", text.chars().take(MAX_HINT).collect::<String>())
    }
}

pub(super) fn hint<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    if name.len() > MAX_HINT {
        return String::new();
    }
    let candidates = candidates.filter(|candidate| candidate.len() <= 2 * MAX_HINT);
    did_you_mean(name, candidates)
}

impl Parser<'_> {
    pub(super) fn fail<T>(&self, at: usize, message: impl Into<String>) -> Result<T> {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Err(Error::Parse {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        })
    }

    /// The next word or character, for messages.
    pub(super) fn found(&mut self) -> String {
        self.skip();
        let rest = self.rest();
        match word_length(rest) {
            0 => rest.chars().next().map_or_else(|| "the end of the text".into(), |c| quote(&c.to_string())),
            length => quote(&rest[..length]),
        }
    }

    pub(super) fn expected<T>(&mut self, what: &str) -> Result<T> {
        let found = self.found();
        self.fail(self.at, format!("expected {what}, found {found}"))
    }
}
