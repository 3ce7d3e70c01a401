//! What a change did to one program, the weightiest first.

use fulgurite::comparison::Comparison;
use fulgurite::trace::Trace;

use super::finding::{Finding, listed, weight};
use super::interface::of_interface;
use super::lines::matched;
use super::of_lines::of_lines;
use super::words::{change, is_bytes, number, plural};
use crate::outline;

/// What differs between two programs, the weightiest first. What is empty differs in names and places alone.
pub fn findings(before: &Trace, after: &Trace, comparison: &Comparison) -> Vec<Finding> {
    let mut found = costs(comparison);
    found.extend(of_lines(&matched(before, after)));
    found.extend(of_interface(before, after));
    found.extend(of_plan(before, after, comparison));
    if found.is_empty() && !is_trivial(comparison) {
        found.push(Finding { about: "lines", text: comparison.in_words(), weight: weight::LINES });
    }
    if let Some(text) = outline::warning(before, after) {
        found.push(Finding { about: "bodies", text, weight: weight::OUTLINE });
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

fn costs(comparison: &Comparison) -> Vec<Finding> {
    let rows = comparison.before.rows().into_iter().zip(comparison.after.rows());
    let mut found = Vec::new();
    for ((about, before), (_, after)) in rows {
        if before == after || about == "symbols" {
            continue;
        }
        let (Some(before), Some(after)) = (before, after) else {
            let text = if after.is_some() { "is planned now" } else { "is no longer planned" };
            found.push(Finding { about, text: text.into(), weight: weight::PLAN });
            continue;
        };
        let part = u128::from(before.abs_diff(after)) * 1_000_000 / u128::from(before.max(after).max(1));
        let bytes = is_bytes(about);
        let change = change(before, after, bytes);
        let text = format!("{} → {} ({change})", number(before, bytes), number(after, bytes));
        found.push(Finding { about, text, weight: u64::try_from(part).unwrap_or(u64::MAX).max(1) });
    }
    found
}

/// Findings about the streams of lines and the transforms of a program.
fn of_plan(before: &Trace, after: &Trace, comparison: &Comparison) -> Vec<Finding> {
    let mut found = Vec::new();
    let moved = comparison.counts().rescheduled;
    if moved > 0 {
        let text = format!("{} on another stream, or waiting for others", plural(moved, "line"));
        found.push(Finding { about: "streams", text, weight: weight::PLAN });
    }
    let alone = |of: &Trace, other: &Trace| -> Vec<String> {
        of.history.iter().filter(|name| !other.history.contains(name)).cloned().collect()
    };
    for (verb, names) in [("new", alone(after, before)), ("gone", alone(before, after))] {
        if !names.is_empty() {
            let text = format!("{verb}: {}", listed(&names));
            found.push(Finding { about: "transforms", text, weight: weight::HISTORY });
        }
    }
    found
}

/// Whether lines differ in names, order and places in memory alone.
fn is_trivial(comparison: &Comparison) -> bool {
    let told = ["renamed", "moved", "moved in memory", "added", "removed"];
    // Ends of values are lines of a comparison, and follow from the others.
    comparison.counts().rows().into_iter().all(|(name, count)| count == 0 || told.contains(&name))
}
