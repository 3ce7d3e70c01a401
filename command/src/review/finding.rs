//! One of the things that a change did to a program: a sentence with a weight.

use std::collections::BTreeMap;

/// One of the things that a change did to a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about: `executor`, `peak memory`.
    pub about: &'static str,
    /// What happened, with the lines it happened to.
    pub text: String,
    /// How much there is to look at; 1,000 are a thousandth of what a run costs.
    pub weight: u64,
}

/// Weights, as parts of a run's cost: 1,000,000 is all of it.
pub mod weight {
    /// Another operator, or other arguments: other numbers may come out.
    pub const CALL: u64 = 150_000;
    /// Results of another type.
    pub const TYPE: u64 = 120_000;
    /// Other inputs or outputs.
    pub const INTERFACE: u64 = 120_000;
    /// Memory of an input that no result takes any more.
    pub const DONATION: u64 = 100_000;
    /// Another fusion.
    pub const FUSION: u64 = 80_000;
    /// Another executor.
    pub const EXECUTOR: u64 = 60_000;
    /// Another refusal.
    pub const REFUSAL: u64 = 40_000;
    /// Lines that are new or gone.
    pub const LINES: u64 = 20_000;
    /// Other streams, a plan where there was none.
    pub const PLAN: u64 = 10_000;
    /// Other transforms.
    pub const HISTORY: u64 = 5_000;
    /// A text without bodies, so that not all is compared.
    pub const OUTLINE: u64 = 1;
}

/// Names that a sentence has at most.
pub const NAMES: usize = 3;

/// The names of a group, which is empty at first.
pub fn names_of<K: Ord>(groups: &mut BTreeMap<K, Vec<String>>, key: K) -> &mut Vec<String> {
    groups.entry(key).or_default()
}

/// A few names, and how many more there are.
pub fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES).map(|name| if name.is_empty() { "a line" } else { name });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
