//! Two programs compared, as data: for each stage what `trace diff` says, and which line is which.

use fulgurite_runtime::comparison::Comparison;
use fulgurite_runtime::trace::Block;
use fulgurite_runtime::trace::correspond::Correspondence;
use fulgurite_runtime::trace::inlined::Inlined;
use serde_json::{Value, json};

use crate::subject::Subject;

/// The comparisons of the first two subjects; none if there are not two.
pub fn to_json(subjects: &[Subject]) -> Vec<Value> {
    let [before, after, ..] = subjects else { return Vec::new() };
    let one = |(i, j): (usize, usize)| {
        let (a, b) = (&before.stages[i], &after.stages[j]);
        let comparison = Comparison::of(&a.trace, &b.trace);
        json!({
            "stage": if a.name == b.name { a.name.clone() } else { format!("{} and {}", a.name, b.name) },
            "before": i,
            "after": j,
            "words": comparison.in_words(),
            "difference": comparison.to_json(),
            "matched": runs(&a.trace.block, &b.trace.block),
        })
    };
    pairs(before, after).into_iter().map(one).collect()
}

/// The stages that are compared: those that both have, or else the last ones.
fn pairs(before: &Subject, after: &Subject) -> Vec<(usize, usize)> {
    let at = |name: &str| after.stages.iter().position(|stage| stage.name == name);
    let common = before.stages.iter().enumerate().filter_map(|(i, stage)| Some((i, at(&stage.name)?)));
    let pairs: Vec<(usize, usize)> = common.collect();
    match (pairs.is_empty(), before.stages.len().checked_sub(1), after.stages.len().checked_sub(1)) {
        (true, Some(last), Some(other)) => vec![(last, other)],
        _ => pairs,
    }
}

/// The lines that correspond, as runs `[before, after, length]` in the order of `after`. Lines are counted with those
/// of regions in place of the regions, and without the ends of values.
fn runs(before: &Block, after: &Block) -> Vec<[usize; 3]> {
    let found = Correspondence::of(&Inlined::of(before).block, &Inlined::of(after).block);
    let mut runs: Vec<[usize; 3]> = Vec::new();
    for (is, was) in found.symbols.iter().enumerate() {
        let Some(was) = *was else { continue };
        match runs.last_mut() {
            Some([old, new, length]) if *old + *length == was && *new + *length == is => *length += 1,
            _ => runs.push([was, is, 1]),
        }
    }
    runs
}
