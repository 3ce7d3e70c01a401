//! What a change did to one program, in sentences that name the lines, the weightiest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fulgurite::comparison::Comparison;
use fulgurite::trace::{InputRole, Trace};
use fulgurite::transforms::donate::donations;

use super::lines::{Line, Matched, matched};
use super::words::{changed_words, number, percent};

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
mod weight {
    /// Other numbers may come out.
    pub const CALL: u64 = 150_000;
    pub const TYPE: u64 = 120_000;
    pub const INTERFACE: u64 = 120_000;
    pub const DONATION: u64 = 100_000;
    pub const FUSION: u64 = 80_000;
    pub const EXECUTOR: u64 = 60_000;
    pub const REFUSAL: u64 = 40_000;
    pub const LINES: u64 = 20_000;
    pub const STREAM: u64 = 10_000;
}

/// Names that a sentence has at most.
const NAMES: usize = 3;

/// What differs between two programs, the weightiest first. What is empty differs in names and places alone.
pub fn findings(before: &Trace, after: &Trace, comparison: &Comparison) -> Vec<Finding> {
    let mut found = costs(comparison);
    let lines = matched(before, after);
    calls(&lines, &mut found);
    executors(&lines, &mut found);
    refusals(&lines, &mut found);
    fusions(&lines, &mut found);
    counted("added", &lines.added, &mut found);
    counted("removed", &lines.removed, &mut found);
    interface(before, after, &mut found);
    donated(before, after, &mut found);
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
            found.push(Finding { about, text: text.into(), weight: weight::STREAM });
            continue;
        };
        let part = u128::from(before.abs_diff(after)) * 1_000_000 / u128::from(before.max(after).max(1));
        let bytes = about != "launches" && about != "FLOPs";
        let text = format!("{} → {} ({})", number(before, bytes), number(after, bytes), percent(before, after));
        found.push(Finding { about, text, weight: u64::try_from(part).unwrap_or(u64::MAX).max(1) });
    }
    found
}

/// Lines that compute something else, or results of another type.
fn calls(lines: &Matched, found: &mut Vec<Finding>) {
    let (mut operators, mut arguments, mut types) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (was, is) in &lines.both {
        let name = is.name.clone();
        if was.symbol.name() != is.symbol.name() {
            names_of(&mut operators, (was.symbol.name().to_owned(), is.symbol.name().to_owned())).push(name);
        } else if was.types() != is.types() {
            names_of(&mut types, (was.types(), is.types())).push(name);
        } else {
            let (was, is) = (was.call(), is.call());
            if was != is {
                names_of(&mut arguments, changed_words(&was, &is)).push(name);
            }
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

fn names_of<K: Ord>(groups: &mut BTreeMap<K, Vec<String>>, key: K) -> &mut Vec<String> {
    groups.entry(key).or_default()
}

/// Lines that another executor runs. Of lines that a region took or left, the fusion is told instead.
fn executors(lines: &Matched, found: &mut Vec<Finding>) {
    let mut groups = BTreeMap::new();
    for (was, is) in &lines.both {
        let (from, to) = (was.symbol.executor, is.symbol.executor);
        if from != to && was.region.is_some() == is.region.is_some() {
            names_of(&mut groups, (from, to, is.symbol.name())).push(is.name.clone());
        }
    }
    for ((from, to, operator), names) in groups {
        let word = |executor: Option<&str>| executor.unwrap_or("nobody").to_owned();
        let text = format!("{operator} moved from {} to {}: {}", word(from), word(to), listed(&names));
        found.push(Finding { about: "executor", text, weight: weight::EXECUTOR });
    }
}

/// Refusals that are new, and those that are gone.
fn refusals(lines: &Matched, found: &mut Vec<Finding>) {
    let (mut new, mut gone) = (BTreeMap::new(), BTreeMap::new());
    let mut compare = |was: Option<&Line>, is: Option<&Line>| {
        let of = |line: Option<&Line>| -> Vec<(String, String)> {
            let all = line.into_iter().flat_map(|line| &line.symbol.refusals);
            all.map(|refusal| (refusal.executor.to_owned(), refusal.reason.clone())).collect()
        };
        let Some(line) = is.or(was) else { return };
        let (old, now) = (of(was), of(is));
        for refusal in now.iter().filter(|refusal| !old.contains(refusal)) {
            names_of(&mut new, (refusal.clone(), line.symbol.name().to_owned())).push(line.name.clone());
        }
        for refusal in old.iter().filter(|refusal| !now.contains(refusal)) {
            names_of(&mut gone, (refusal.clone(), line.symbol.name().to_owned())).push(line.name.clone());
        }
    };
    lines.both.iter().for_each(|(was, is)| compare(Some(was), Some(is)));
    lines.added.iter().for_each(|line| compare(None, Some(line)));
    lines.removed.iter().for_each(|line| compare(Some(line), None));
    for (verb, weight, groups) in [("refuses", weight::REFUSAL, new), ("no longer refuses", weight::REFUSAL / 2, gone)]
    {
        for (((executor, reason), operator), names) in groups {
            let text = format!("{executor} {verb} {operator}: {reason} ({})", listed(&names));
            found.push(Finding { about: "refusal", text, weight });
        }
    }
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
    let count = |n: usize| if n == 1 { "1 line".to_owned() } else { format!("{n} lines") };
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
    if lines.is_empty() {
        return;
    }
    let mut counts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in lines {
        names_of(&mut counts, line.symbol.name()).push(line.name.clone());
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let mut text = String::new();
    for (i, (operator, names)) in counts.iter().take(2 * NAMES).enumerate() {
        let _ = write!(text, "{}{} × {operator} ({})", if i == 0 { "" } else { "; " }, names.len(), listed(names));
    }
    if counts.len() > 2 * NAMES {
        let _ = write!(text, "; and {} more operators", counts.len() - 2 * NAMES);
    }
    let weight = weight::LINES.saturating_add(1000 * lines.len() as u64);
    found.push(Finding { about, text, weight });
}

/// Inputs and outputs: those that are new, gone, or of another type.
fn interface(before: &Trace, after: &Trace, found: &mut Vec<Finding>) {
    let inputs = |trace: &Trace| -> BTreeMap<String, String> {
        let values = trace.block.parameters.iter().zip(&trace.inputs);
        let typed = values.filter_map(|(id, input)| {
            let value = trace.block.values.get(id.index())?;
            let role = if input.role == InputRole::Input { String::new() } else { format!(" {:?}", input.role) };
            Some((value.name.to_string(), format!("{}{}", value.meta, role.to_lowercase())))
        });
        typed.collect()
    };
    let outputs = |trace: &Trace| -> BTreeMap<String, String> {
        let values = trace.block.results.iter().zip(&trace.outputs);
        let typed = values.filter_map(|(id, output)| {
            Some((output.path.clone(), trace.block.values.get(id.index())?.meta.to_string()))
        });
        typed.collect()
    };
    for (about, old, new) in [("inputs", inputs(before), inputs(after)), ("outputs", outputs(before), outputs(after))] {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let mut changed = Vec::new();
        for name in names {
            match (old.get(name), new.get(name)) {
                (Some(was), Some(is)) if was != is => changed.push(format!("{name} {was} → {is}")),
                (None, Some(is)) => changed.push(format!("{name} ({is}) is new")),
                (Some(was), None) => changed.push(format!("{name} ({was}) is gone")),
                _ => {}
            }
        }
        if !changed.is_empty() {
            found.push(Finding { about, text: listed(&changed), weight: weight::INTERFACE });
        }
    }
    let target = [before, after].map(|trace| trace.target.to_string());
    if target[0] != target[1] {
        let text = format!("{} → {}", target[0], target[1]);
        found.push(Finding { about: "target", text, weight: weight::INTERFACE });
    }
}

/// Inputs whose memory no result takes any more, with the reason, and those that a result takes now.
fn donated(before: &Trace, after: &Trace, found: &mut Vec<Finding>) {
    let taken = |trace: &Trace| -> BTreeMap<String, Result<String, String>> {
        donations(trace).into_iter().map(|donation| (donation.input, donation.outcome)).collect()
    };
    let given = |trace: &Trace| -> BTreeSet<String> {
        let inputs = trace.block.parameters.iter().zip(&trace.inputs).filter(|(_, input)| input.donated);
        inputs.filter_map(|(id, _)| Some(trace.block.values.get(id.index())?.name.to_string())).collect()
    };
    let (given_before, given_after) = (given(before), given(after));
    let planned = before.arena.is_some() && after.arena.is_some();
    let (old, new) = if planned { (taken(before), taken(after)) } else { Default::default() };
    let mut lost: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut won = Vec::new();
    for name in given_before.difference(&given_after) {
        names_of(&mut lost, "the caller no longer gives it away".into()).push(name.clone());
    }
    for name in given_after.difference(&given_before) {
        won.push(name.clone());
    }
    for (name, outcome) in &new {
        match (old.get(name), outcome) {
            (Some(Ok(_)), Err(reason)) => names_of(&mut lost, reason.clone()).push(name.clone()),
            (Some(Err(_)), Ok(_)) => won.push(name.clone()),
            _ => {}
        }
    }
    for (reason, names) in lost {
        let text = format!("lost for {}: {reason}", listed(&names));
        found.push(Finding { about: "donation", text, weight: weight::DONATION });
    }
    if !won.is_empty() {
        let text = format!("new for {}", listed(&won));
        found.push(Finding { about: "donation", text, weight: weight::DONATION / 2 });
    }
}

/// A few names, and how many more there are.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES).map(|name| if name.is_empty() { "a line" } else { name });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
