//! Failures of one cause as one message: an operator whose reference is wrong fails dozens of tests.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use fulgurite_kernels::DType;

use super::directives::Template;
use super::snapshot::NEVER_STORED;

/// How many names of tests that fail for one cause are printed.
const NAMED: usize = 5;

/// What a test says, by its template and name: metas come first, since other templates compute with them.
type Tests = BTreeMap<(bool, Template, String), String>;

/// What failed so far.
#[derive(Default)]
pub(crate) struct Causes {
    /// By operator and cause.
    found: Mutex<BTreeMap<(String, String), Tests>>,
}

impl Causes {
    /// Keeps what a test of `operator` says.
    pub fn add(&self, operator: &str, template: Template, test: &str, message: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let tests = found.entry((operator.to_owned(), cause(&message))).or_default();
        tests.insert((template != Template::Meta, template, test.to_owned()), message);
    }

    /// One message for each cause, wrong metas first; nothing if nothing failed.
    pub fn report(&self) -> String {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meta = |tests: &Tests| tests.keys().any(|(_, template, _)| *template == Template::Meta);
        let (metas, others): (Vec<_>, Vec<_>) = found.iter().partition(|(_, tests)| is_meta(tests));
        let wrong: Vec<&str> = metas.iter().map(|((operator, _), _)| operator.as_str()).collect();
        let mut text = String::new();
        for ((operator, _), tests) in metas.iter().chain(&others) {
            let Some(((_, _, first), message)) = tests.first_key_value() else { continue };
            let _ = match tests.len() {
                1 => write!(text, "\n---- {first} ----\n"),
                count => {
                    let names: Vec<&str> = tests.keys().take(NAMED).map(|(_, _, name)| name.as_str()).collect();
                    let more = if count > NAMED { ", ..." } else { "" };
                    write!(text, "\n---- {count} tests: {}{more} ----\n", names.join(", "))
                }
            };
            let stored = !message.contains(NEVER_STORED);
            if !is_meta(tests) && stored && wrong.contains(&operator.as_str()) {
                let _ = writeln!(text, "  (perhaps because the meta of {operator} is wrong: see its message above)");
            }
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
    let places = ["repeat: ", "declared at ", "implemented for "];
    let is_place = |line: &&str| places.iter().any(|word| line.trim_start().starts_with(word));
    let lines = rest.lines().filter(|line| !is_place(line));
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
            let name = format!("norm::consistency::cpu::{dtype}");
            causes.add("norm", Template::Consistency, &name, message(dtype, i, -0.5 * i as f64));
        }
        let meta = "norm(f32[2]), sample 0: meta says f32[2]";
        causes.add("norm", Template::Meta, "norm::meta::cpu::f32", meta.into());
        causes.add("other", Template::Consistency, "other::consistency::cpu::f32", message("f32", 0, 7.0));
        let report = causes.report();
        assert!(
            report.contains("---- 3 tests: norm::consistency::cpu::bf16, norm::consistency::cpu::f32, "),
            "{report}"
        );
        assert!(report.contains("---- norm::meta::cpu::f32 ----\n"), "{report}");
        assert_eq!(report.matches("----\n").count(), 3, "{report}");
        assert_eq!(Causes::default().report(), "");
    }
    #[test]
    fn a_wrong_meta_comes_first_and_explains_the_rest() {
        let causes = Causes::default();
        for (operator, template, test, message) in [
            ("block", Template::Consistency, "block::consistency", "block(f32[2]), sample 0: element [0]"),
            ("norm", Template::Bounds, "norm::bounds", "norm(f32[2]), sample 0: left element 3 unwritten"),
            ("norm", Template::Meta, "norm::meta", "norm(f32[2]), sample 0: result out: meta says f32[2]"),
            ("norm", Template::Autocast, "norm::autocast", "norm(f32[2]), sample 0: result out: meta says f32[2]"),
        ] {
            causes.add(operator, template, test, message.to_owned());
        }
        let lacking = "norm(f32[2]), sample 0: norm.snap was never stored; the text is";
        causes.add("norm", Template::Snapshot, "norm::snapshot", lacking.to_owned());
        let report = causes.report();
        let at = |text: &str| report.find(text).unwrap_or_else(|| panic!("no '{text}' in\n{report}"));
        assert!(at("---- 2 tests: norm::meta, norm::autocast ----") < at("---- block::consistency ----"), "{report}");
        let explained = at("(perhaps because the meta of norm is wrong: see its message above)");
        assert!(at("---- norm::bounds ----") < explained && explained < at("left element 3"), "{report}");
        assert_eq!(report.matches("perhaps").count(), 1, "{report}");
    }
}
