//! Definitions, references and highlights of values.

use std::collections::HashSet;
use std::ops::Range;

use fulgurite::trace::{MarkedName, Naming};

use super::document::Document;

/// The ranges of the names at byte `at` that `wanted` chooses, each once, in the order of the text.
fn ranges(document: &Document, at: usize, wanted: impl Fn(&MarkedName) -> bool) -> Vec<(Range<usize>, Naming)> {
    let Some(program) = document.program_at(at) else { return Vec::new() };
    let values: HashSet<usize> = program.names_at(at).iter().map(|name| name.value).collect();
    let names = program.marks.names.iter().filter(|name| values.contains(&name.value) && wanted(name));
    let mut found: Vec<(Range<usize>, Naming)> = names.map(|name| (name.range.clone(), name.naming)).collect();
    found.sort_by_key(|(range, _)| (range.start, range.end));
    found.dedup_by_key(|(range, _)| range.clone());
    found
}

/// Where the values at byte `at` are defined.
pub fn definitions(document: &Document, at: usize) -> Vec<Range<usize>> {
    let found = ranges(document, at, |name| name.naming == Naming::Definition);
    found.into_iter().map(|(range, _)| range).collect()
}

/// Where the values at byte `at` are named, `with` their definitions or without.
pub fn references(document: &Document, at: usize, with: bool) -> Vec<Range<usize>> {
    let found = ranges(document, at, |name| !name.range.is_empty() && (with || name.naming != Naming::Definition));
    found.into_iter().map(|(range, _)| range).collect()
}

/// As [`references`], with what each name does.
pub fn highlights(document: &Document, at: usize) -> Vec<(Range<usize>, Naming)> {
    ranges(document, at, |name| !name.range.is_empty())
}
