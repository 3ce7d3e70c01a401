//! Programs that call operators which this command does not have: one note for all of them.

use std::collections::BTreeSet;

use super::finding::listed;
use super::reviewed::{Program, Review};
use super::words::plural;

/// What is said of them; `None` if there are none. Names are as the texts have them.
pub fn note(review: &Review) -> Option<String> {
    let (mut programs, mut files) = (0, 0);
    let mut operators = BTreeSet::new();
    for file in &review.files {
        let missing: Vec<&str> = file.programs.iter().filter_map(Program::not_linked).collect();
        programs += missing.len();
        files += usize::from(!missing.is_empty());
        operators.extend(missing);
    }
    let names: Vec<String> = operators.into_iter().map(str::to_owned).collect();
    let what = format!("{} of {}", plural(programs, "program"), plural(files, "file"));
    (programs > 0).then(|| {
        format!(
            "{what} cannot be read, because this command does not have {}; the command of their crate does",
            listed(&names)
        )
    })
}
