//! What a change did to the lines of a program: what they call, their executors, and their regions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::finding::{Finding, NAMES, listed, names_of, weight};
use super::lines::{Line, Matched};
use super::words::{changed_words, plural};

/// The findings about lines.
pub fn of_lines(lines: &Matched) -> Vec<Finding> {
    let mut found = Vec::new();
    calls(lines, &mut found);
    executors(lines, &mut found);
    refusals(lines, &mut found);
    fusions(lines, &mut found);
    counted("added", &lines.added, &mut found);
    counted("removed", &lines.removed, &mut found);
    found
}

/// Lines that compute something else, or results of another type.
fn calls(lines: &Matched, found: &mut Vec<Finding>) {
    let (mut operators, mut arguments, mut types) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (was, is) in &lines.both {
        let name = is.name.clone();
        if was.operator != is.operator {
            names_of(&mut operators, (was.operator.clone(), is.operator.clone())).push(name);
        } else if was.types != is.types {
            names_of(&mut types, (was.types.clone(), is.types.clone())).push(name);
        } else if was.call != is.call {
            names_of(&mut arguments, changed_words(&was.shown, &is.shown)).push(name);
        }
    }
    for (about, weight, groups) in
        [("operator", weight::CALL, operators), ("type", weight::TYPE, types), ("arguments", weight::CALL, arguments)]
    {
        for ((was, is), names) in groups {
            found.push(Finding { about, text: format!("{was} → {is}: {}", listed(&names)), weight });
        }
    }
}

/// Names of lines by the operator that they call.
type ByOperator = BTreeMap<String, Vec<String>>;

/// Lines that another executor runs. Lines that moved into or out of a fused region are left to
/// the findings about fusion.
fn executors(lines: &Matched, found: &mut Vec<Finding>) {
    let mut groups: BTreeMap<_, ByOperator> = BTreeMap::new();
    for (was, is) in &lines.both {
        let (from, to) = (was.executor, is.executor);
        if from != to && was.region.is_some() == is.region.is_some() {
            names_of(groups.entry((from, to)).or_default(), is.operator.clone()).push(is.name.clone());
        }
    }
    for ((from, to), operators) in groups {
        let (what, names) = whose(&operators);
        let text = format!("{what} moved from {} to {}: {names}", from.unwrap_or("nobody"), to.unwrap_or("nobody"));
        found.push(Finding { about: "executor", text, weight: for_lines(weight::EXECUTOR, &operators) });
    }
}

/// Refusals that are new, and those that are gone.
fn refusals(lines: &Matched, found: &mut Vec<Finding>) {
    let (mut new, mut gone): (BTreeMap<_, ByOperator>, BTreeMap<_, ByOperator>) = Default::default();
    let mut compare = |was: Option<&Line>, is: Option<&Line>| {
        let Some(line) = is.or(was) else { return };
        let [old, now] = [was, is].map(|line| line.map_or(&[][..], |line| &line.refusals));
        let add = |groups: &mut BTreeMap<_, ByOperator>, refusal: &(String, String)| {
            names_of(groups.entry(refusal.clone()).or_default(), line.operator.clone()).push(line.name.clone());
        };
        now.iter().filter(|refusal| !old.contains(refusal)).for_each(|refusal| add(&mut new, refusal));
        old.iter().filter(|refusal| !now.contains(refusal)).for_each(|refusal| add(&mut gone, refusal));
    };
    lines.both.iter().for_each(|(was, is)| compare(Some(was), Some(is)));
    lines.added.iter().for_each(|line| compare(None, Some(line)));
    lines.removed.iter().for_each(|line| compare(Some(line), None));
    for (verb, weight, groups) in [("refuses", weight::REFUSAL, new), ("no longer refuses", weight::REFUSAL / 2, gone)]
    {
        for ((executor, reason), operators) in groups {
            let (what, names) = whose(&operators);
            let text = format!("{executor} {verb} {what}: {reason} ({names})");
            found.push(Finding { about: "refusal", text, weight: for_lines(weight, &operators) });
        }
    }
}

/// The operator that lines call, with their names; of several operators how many lines call each.
fn whose(operators: &ByOperator) -> (String, String) {
    if let (1, Some((operator, names))) = (operators.len(), operators.iter().next()) {
        return (operator.clone(), listed(names));
    }
    let lines = operators.values().map(Vec::len).sum();
    (plural(lines, "line"), counts(operators))
}

/// The weight of something that happened to lines: a little more for each.
fn for_lines(weight: u64, operators: &ByOperator) -> u64 {
    weight.saturating_add(1000 * operators.values().map(Vec::len).sum::<usize>() as u64)
}

/// `2 × prims::mul (a, b); 1 × prims::add (c)`, the most first.
fn counts(operators: &ByOperator) -> String {
    let mut counts: Vec<_> = operators.iter().collect();
    counts.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let mut text = String::new();
    for (i, (operator, names)) in counts.iter().take(2 * NAMES).enumerate() {
        let _ = write!(text, "{}{} × {operator} ({})", if i == 0 { "" } else { "; " }, names.len(), listed(names));
    }
    if counts.len() > 2 * NAMES {
        let _ = write!(text, "; and {} more operators", counts.len() - 2 * NAMES);
    }
    text
}

/// Regions that were split, joined, made or dissolved.
fn fusions(lines: &Matched, found: &mut Vec<Finding>) {
    type Regions<'a> = BTreeMap<&'a str, BTreeMap<Option<&'a str>, usize>>;
    let (mut from, mut into): (Regions, Regions) = Default::default();
    for (was, is) in &lines.both {
        let (a, b) = (was.region.as_deref(), is.region.as_deref());
        if let Some(a) = a {
            *from.entry(a).or_default().entry(b).or_default() += 1;
        }
        if let Some(b) = b {
            *into.entry(b).or_default().entry(a).or_default() += 1;
        }
    }
    let mut say = |text: String| found.push(Finding { about: "fusion", text, weight: weight::FUSION });
    let count = |lines: usize| plural(lines, "line");
    let parts = |parts: &BTreeMap<Option<&str>, usize>| {
        let part = |(region, lines): (&Option<&str>, &usize)| match region {
            Some(region) => format!("{} in {region}", count(*lines)),
            None => format!("{} by themselves", count(*lines)),
        };
        parts.iter().map(part).collect::<Vec<_>>().join(", ")
    };
    for (region, to) in &from {
        let whole: usize = to.values().sum();
        if to.len() == 1 && to.contains_key(&None) {
            say(format!("region {region} ({}) is no longer fused", count(whole)));
        } else if to.len() > 1 {
            say(format!("region {region} ({}) is split: {}", count(whole), parts(to)));
        }
    }
    for (region, of) in &into {
        if of.len() == 1 && of.contains_key(&None) {
            say(format!("region {region} is new, with {}", count(of.values().sum())));
        } else if of.len() > 1 {
            say(format!("region {region} is joined from {}", parts(of)));
        }
    }
}

/// How many lines of each operator are new, or gone.
fn counted(about: &'static str, lines: &[Line], found: &mut Vec<Finding>) {
    let mut operators = ByOperator::new();
    for line in lines {
        names_of(&mut operators, line.operator.clone()).push(line.name.clone());
    }
    if !operators.is_empty() {
        found.push(Finding { about, text: counts(&operators), weight: for_lines(weight::LINES, &operators) });
    }
}
