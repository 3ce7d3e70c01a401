//! Failures of one cause as one message: an operator whose reference is wrong fails dozens of tests.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use fulgurite_kernels::DType;

/// How many names of tests that fail for one cause are printed.
const NAMED: usize = 5;

/// What failed so far.
#[derive(Default)]
pub(crate) struct Causes {
    /// By cause: tests and what they say.
    found: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

impl Causes {
    /// Keeps what a test of `operator` says.
    pub fn add(&self, operator: &str, test: &str, message: String) {
        let cause = format!("{operator}: {}", cause(&message));
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(cause).or_default().insert(test.to_owned(), message);
    }

    /// One message for each cause; nothing if nothing failed.
    pub fn report(&self) -> String {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for tests in found.values() {
            let Some((first, message)) = tests.first_key_value() else { continue };
            let _ = match tests.len() {
                1 => write!(text, "\n---- {first} ----\n"),
                count => {
                    let names: Vec<&str> = tests.keys().take(NAMED).map(String::as_str).collect();
                    let more = if count > NAMED { ", ..." } else { "" };
                    write!(text, "\n---- {count} tests: {}{more} ----\n", names.join(", "))
                }
            };
            text += message.trim_end();
            text.push('\n');
        }
        if text.is_empty() { text } else { format!("\nwhat failed, by cause:\n{text}") }
    }
}

/// A message without what differs between tests that fail for one cause: the call, numbers, element types, how to
/// repeat it.
fn cause(message: &str) -> String {
    // `rms_norm(f32[4, 8], [8]), sample 2, executor cpu: ...`
    let rest = match message.split_once("), sample ") {
        Some((_, after)) => after.split_once(": ").map_or(after, |(_, rest)| rest),
        None => message,
    };
    let lines = rest.lines().filter(|line| !line.trim_start().starts_with("repeat: "));
    // The first lines tell; what follows may be a whole trace.
    let text: Vec<&str> = lines.take(3).collect();
    let mut words = String::new();
    let mut word = String::new();
    for letter in text.join("\n").chars().chain(['\n']) {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let numeric = word.starts_with(|first: char| first.is_ascii_digit());
        let dtype = DType::ALL.iter().any(|dtype| dtype.name() == word);
        words += if dtype {
            "T"
        } else if numeric {
            "#"
        } else {
            &word
        };
        word.clear();
        // `-1.5e-3` is a number like `2`, and `[#, #]` a list like `[#]`.
        if !matches!(letter, '-' | '.' | ',' | ' ' | '[' | ']') {
            words.push(letter);
        }
    }
    while words.contains("##") {
        words = words.replace("##", "#");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_types_are_no_other_cause() {
        let causes = Causes::default();
        let message = |dtype: &str, sample: usize, got: f64| {
            format!(
                "norm({dtype}[{sample}, 3]), sample {sample}: element [0, {sample}]: expected 1.0, got {got:?}\n  \
                 repeat: x {sample}"
            )
        };
        for (i, dtype) in ["f32", "bf16", "f64"].iter().enumerate() {
            causes.add("norm", &format!("norm::consistency::cpu::{dtype}"), message(dtype, i, -0.5 * i as f64));
        }
        causes.add("norm", "norm::meta::cpu::f32", "norm(f32[2]), sample 0: meta says f32[2]".into());
        causes.add("other", "other::consistency::cpu::f32", message("f32", 0, 7.0));
        let report = causes.report();
        assert!(
            report.contains("---- 3 tests: norm::consistency::cpu::bf16, norm::consistency::cpu::f32, "),
            "{report}"
        );
        assert!(report.contains("---- norm::meta::cpu::f32 ----\n"), "{report}");
        assert_eq!(report.matches("----\n").count(), 3, "{report}");
        assert_eq!(Causes::default().report(), "");
    }
}
