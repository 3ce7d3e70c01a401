//! Two programs side by side: which lines changed and how, and what that costs. As text, as JSON, and as Markdown for a
//! pull request.

use std::fmt;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cost::Totals;
use crate::trace::diff::{Changes, LineDiff};
use crate::trace::{Trace, TraceDiff, diff};

/// Two traces compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The cost of the first.
    pub before: Totals,
    /// The cost of the second.
    pub after: Totals,
    /// The lines that differ.
    pub changes: TraceDiff,
}

/// How many lines changed in which way. A line may have changed in several ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
    /// Lines whose results have another type.
    pub retyped: usize,
    /// Lines with another executor, or with none any more.
    pub reclaimed: usize,
    /// Lines on another stream, or that wait for others.
    pub rescheduled: usize,
    /// Lines that other executors refused, or for other reasons.
    pub refused: usize,
    /// Lines whose results moved in memory.
    pub moved_in_memory: usize,
    /// Lines that call something else, or with other arguments.
    pub called: usize,
    /// Lines that moved.
    pub moved: usize,
    /// Lines whose body changed in more than names.
    pub bodies: usize,
    /// Lines that compute the same with other names.
    pub renamed: usize,
}

impl Counts {
    fn of(changes: &TraceDiff) -> Counts {
        let mut counts = Counts::default();
        for line in &changes.lines {
            match line {
                LineDiff::Added { .. } => counts.added += 1,
                LineDiff::Removed { .. } => counts.removed += 1,
                LineDiff::Changed { what, .. } => {
                    counts.retyped += usize::from(what.types);
                    counts.reclaimed += usize::from(what.claim);
                    counts.rescheduled += usize::from(what.schedule);
                    counts.refused += usize::from(what.refusals);
                    counts.moved_in_memory += usize::from(what.storage.is_some());
                    counts.called += usize::from(what.call);
                    counts.moved += usize::from(what.moved);
                    counts.bodies += usize::from(!what.body.is_empty() && !what.is_renaming());
                    counts.renamed += usize::from(what.is_renaming());
                }
            }
        }
        counts
    }

    /// Each count with its name.
    pub fn rows(&self) -> [(&'static str, usize); 11] {
        [
            ("added", self.added),
            ("removed", self.removed),
            ("other call", self.called),
            ("retyped", self.retyped),
            ("reclaimed", self.reclaimed),
            ("rescheduled", self.rescheduled),
            ("other refusals", self.refused),
            ("moved in memory", self.moved_in_memory),
            ("moved", self.moved),
            ("other body", self.bodies),
            ("renamed", self.renamed),
        ]
    }
}

impl Comparison {
    /// Compares two traces.
    pub fn of(before: &Trace, after: &Trace) -> Comparison {
        Comparison { before: Totals::of(before), after: Totals::of(after), changes: diff(before, after) }
    }

    /// Whether the traces are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many lines changed in which way.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.changes)
    }

    /// How much there is to look at: a difference of what a run costs outweighs one of lines.
    pub fn weight(&self) -> u64 {
        let costs = self.before.rows().into_iter().zip(self.after.rows());
        let part = |(before, after): (u64, u64)| before.abs_diff(after).saturating_mul(1000) / before.max(after).max(1);
        let costs: u64 = costs.filter_map(|((_, a), (_, b))| Some(part((a?, b?)))).sum();
        costs.saturating_mul(1000).saturating_add(self.changes.lines.len() as u64)
    }

    /// The totals that differ: name, before, after.
    fn totals(&self) -> Vec<(&'static str, Option<u64>, Option<u64>)> {
        let pairs = self.before.rows().into_iter().zip(self.after.rows());
        pairs.filter(|(a, b)| a != b).map(|((name, a), (_, b))| (name, a, b)).collect()
    }

    /// The comparison as an object: `totals` before and after, `counts`, and `lines`, each with `change` and its
    /// texts; those that have other names alone are counted.
    pub fn to_json(&self) -> Value {
        let counts: serde_json::Map<String, Value> =
            self.counts().rows().into_iter().map(|(name, count)| (name.replace(' ', "_"), json!(count))).collect();
        let header: Vec<Value> =
            self.changes.header.iter().map(|(what, a, b)| json!({"what": what, "before": a, "after": b})).collect();
        json!({
            "totals": {"before": self.before.to_json(), "after": self.after.to_json()},
            "counts": counts,
            "header": header,
            "lines": lines_to_json(&self.changes.lines),
        })
    }

    /// The comparison for a pull request: a table of totals, and the changed lines folded.
    pub fn to_markdown(&self) -> String {
        if self.is_empty() {
            return "No difference.\n".into();
        }
        let mut text = self.summary_markdown();
        // Lines of traces may hold what ends a block of code.
        let lines = self.changes.to_string();
        let fence = "`".repeat(longest_run(&lines, '`').max(2) + 1);
        let _ = write!(text, "\n<details><summary>lines</summary>\n\n{fence}diff\n{lines}{fence}\n\n</details>\n");
        text
    }

    /// The table of totals and the counts, as Markdown.
    pub fn summary_markdown(&self) -> String {
        let mut text = String::new();
        let totals = self.totals();
        if !totals.is_empty() {
            text += "| | before | after | change |\n|---|---:|---:|---:|\n";
            for (name, before, after) in totals {
                let _ =
                    writeln!(text, "| {name} | {} | {} | {} |", number(before), number(after), change(before, after));
            }
            text += "\n";
        }
        let _ = writeln!(text, "{}", self.in_words());
        text
    }

    /// `2 added, 1 reclaimed`, or that only the header differs.
    pub fn in_words(&self) -> String {
        let counts = self.counts().rows().into_iter().filter(|(_, count)| *count > 0);
        let words: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
        match words[..] {
            [] if self.is_empty() => "no difference".into(),
            [] => "only the header differs".into(),
            _ => format!("lines: {}", words.join(", ")),
        }
    }
}

impl fmt::Display for Comparison {
    /// Totals that differ, counts, and the changed lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, before, after) in self.totals() {
            writeln!(f, "{name}: {} -> {} ({})", number(before), number(after), change(before, after))?;
        }
        writeln!(f, "{}", self.in_words())?;
        write!(f, "{}", self.changes)
    }
}

fn number(total: Option<u64>) -> String {
    total.map_or_else(|| "none".into(), |total| total.to_string())
}

/// `+12, +3.4 %`.
fn change(before: Option<u64>, after: Option<u64>) -> String {
    let (Some(before), Some(after)) = (before, after) else { return String::new() };
    let sign = if after < before { '-' } else { '+' };
    let difference = before.abs_diff(after);
    match before {
        0 => format!("{sign}{difference}"),
        _ => format!("{sign}{difference}, {sign}{:.1} %", difference as f64 / before as f64 * 100.0),
    }
}

fn longest_run(text: &str, of: char) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == of { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

fn lines_to_json(lines: &[LineDiff]) -> Vec<Value> {
    let one = |line: &LineDiff| match line {
        LineDiff::Added { line } => json!({"change": "added", "after": line}),
        LineDiff::Removed { line } => json!({"change": "removed", "before": line}),
        LineDiff::Changed { before, after, what } => {
            let Changes { moved, call, types, storage, claim, schedule, refusals, renamed, body } = what;
            let named = [
                (*call, "call"),
                (*types, "types"),
                (storage.is_some(), "storage"),
                (*claim, "claim"),
                (*schedule, "stream"),
                (*refusals, "refusals"),
                (*moved, "place"),
                (*renamed, "names"),
            ];
            let what: Vec<&str> = named.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            json!({"change": "changed", "what": what, "before": before, "after": after, "body": lines_to_json(body)})
        }
    };
    // Lines that have other names alone are counted, and nothing to look at.
    let renaming = |line: &&LineDiff| matches!(line, LineDiff::Changed { what, .. } if what.is_renaming());
    lines.iter().filter(|line| !renaming(line)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;
    use crate::trace::test_support::GOOD;

    fn compared(from: &str, to: &str) -> Comparison {
        assert!(GOOD.contains(from));
        Comparison::of(&parse(GOOD).unwrap(), &parse(&GOOD.replacen(from, to, 1)).unwrap())
    }

    #[test]
    fn an_added_line_changes_the_totals() {
        let comparison = compared("  tt::barrier(every)", "  extra: f32[8] = tt::exp(x)\n  tt::barrier(every)");
        assert_eq!(comparison.after.symbols, comparison.before.symbols + 1);
        let text = comparison.to_string();
        assert!(text.contains("(+1, +") && text.contains("lines: 1 added\n") && text.contains("+ extra"), "{text}");
        let json = comparison.to_json();
        assert_eq!(json["counts"]["added"], 1);
        assert_eq!(json["lines"][0]["change"], "added");
        assert!(comparison.to_markdown().contains("| symbols |"), "{}", comparison.to_markdown());
        assert!(comparison.weight() > 1000);
    }

    #[test]
    fn another_executor_is_counted_and_costs_nothing() {
        let comparison = compared("tt::exp(x) by tt_host", "tt::exp(x) by tt_other_host");
        assert_eq!(comparison.counts(), Counts { reclaimed: 1, ..Counts::default() });
        assert_eq!(comparison.before, comparison.after);
        assert_eq!(comparison.in_words(), "lines: 1 reclaimed");
    }

    #[test]
    fn equal_traces_have_nothing_to_tell() {
        let trace = parse(GOOD).unwrap();
        let comparison = Comparison::of(&trace, &trace);
        assert!(comparison.is_empty() && comparison.weight() == 0);
        assert_eq!(comparison.to_markdown(), "No difference.\n");
    }

    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert_eq!(longest_run("a ``` b `` c", '`'), 3);
        assert_eq!(longest_run("", '`'), 0);
    }
}
