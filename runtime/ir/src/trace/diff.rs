//! What changed between two traces: lines are matched by what they compute, then by the names that they define.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;

use super::correspond::Correspondence;
use super::print::{PrintOptions, print, print_return, print_symbol, print_typed};
use super::{Block, BoundSymbol, Trace};
use crate::refusal::Refusal;
use crate::stream_kind::StreamKind;

/// The changes from one trace to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceDiff {
    /// What changed in name, target, history, inputs, outputs and arena: (what, before, after).
    pub header: Vec<(String, String, String)>,
    /// How many lines call each operator, before and after, where the numbers differ.
    pub operators: BTreeMap<String, (usize, usize)>,
    /// Changed lines, in the order of the second trace, what was removed at its old place.
    pub lines: Vec<LineDiff>,
}

/// What happened to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineDiff {
    /// The line was removed.
    Removed {
        /// The line.
        line: String,
    },
    /// The line was added.
    Added {
        /// The line.
        line: String,
    },
    /// It is elsewhere among the lines that stayed, or differs.
    Changed {
        /// The line before.
        before: String,
        /// The line after.
        after: String,
        /// In what it differs.
        what: Changes,
    },
}

/// In what two lines that define the same names differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Another place among the lines that stayed.
    pub moved: bool,
    /// Another operator, or other arguments.
    pub call: bool,
    /// Results of another type.
    pub types: bool,
    /// Other places in the memory plan: those of all results, before and after.
    pub storage: Option<(String, String)>,
    /// Claimed by another executor, or by none.
    pub claim: bool,
    /// On another stream, or waits for other lines.
    pub schedule: bool,
    /// Other refusals.
    pub refusals: bool,
    /// Computes the same, with other names of results or operands.
    pub renamed: bool,
    /// Changes of the nested body.
    pub body: Vec<LineDiff>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Whether nothing but names changed.
    pub fn is_renaming(&self) -> bool {
        let renamed = |line: &LineDiff| matches!(line, LineDiff::Changed { what, .. } if what.is_renaming());
        let rest = Changes { renamed: false, body: Vec::new(), ..self.clone() };
        rest.is_empty() && !self.is_empty() && self.body.iter().all(renamed)
    }
}

/// Compares two traces. The result is empty if their full texts are equal.
pub fn diff(before: &Trace, after: &Trace) -> TraceDiff {
    let texts = [before, after].map(|trace| print(trace, PrintOptions::COMPACT));
    // Also of traces that are not valid, whose lines may correspond to none of their own.
    if texts[0] == texts[1] {
        return TraceDiff::default();
    }
    let mut header = Vec::new();
    let mut compare = |what: &str, before: String, after: String| {
        if before != after {
            header.push((what.to_owned(), before, after));
        }
    };
    compare("name", before.name.clone(), after.name.clone());
    compare("target", before.target.to_string(), after.target.to_string());
    compare("history", before.history.join(", "), after.history.join(", "));
    let found = Correspondence::of(&before.block, &after.block);
    let renamed = Trace { block: found.renamed(&before.block, &after.block), ..after.clone() };
    // Inputs that have other names are named below.
    if print_return(before) != print_return(&renamed) {
        compare("return", print_return(before), print_return(after));
    }
    let arena = |trace: &Trace| trace.arena.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
    compare("arena", arena(before), arena(after));
    let inputs = |trace: &Trace| -> Vec<(String, String)> {
        let line = |i| super::print::print_input(trace, i);
        let name = |i: usize| {
            let id = trace.block.parameters[i];
            trace.block.values.get(id.index()).map_or_else(String::new, |value| value.name.to_string())
        };
        (0..trace.block.parameters.len()).map(|i| (name(i), line(i))).collect()
    };
    let (old, new) = (inputs(before), inputs(after));
    let by_name: FxHashMap<&str, &str> = new.iter().map(|(name, line)| (&**name, &**line)).collect();
    for (name, line) in &old {
        compare("input", line.clone(), by_name.get(&**name).copied().unwrap_or("none").to_owned());
    }
    let known: FxHashMap<&str, ()> = old.iter().map(|(name, _)| (&**name, ())).collect();
    for (_, line) in new.iter().filter(|(name, _)| !known.contains_key(&**name)) {
        compare("input", "none".to_owned(), line.clone());
    }
    let order = |inputs: &[(String, String)]| inputs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (mut a, mut b) = (order(&old), order(&new));
    if a != b {
        let (was, is) = (a.join(", "), b.join(", "));
        a.sort();
        b.sort();
        if a == b {
            compare("order of inputs", was, is);
        }
    }
    let mut operators: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for symbol in &before.block.symbols {
        operators.entry(symbol.name().to_owned()).or_default().0 += 1;
    }
    for symbol in &after.block.symbols {
        operators.entry(symbol.name().to_owned()).or_default().1 += 1;
    }
    operators.retain(|_, (before, after)| before != after);
    let lines = lines(&before.block, &after.block, &found);
    let mut difference = TraceDiff { header, operators, lines };
    // Whatever the comparison above does not see (a path or a name that hides behind a quote) still is a difference.
    if difference.is_empty() {
        let differing = texts[0].lines().zip(texts[1].lines()).find(|(a, b)| a != b);
        if let Some((a, b)) = differing {
            difference.header.push(("text".to_owned(), a.trim().to_owned(), b.trim().to_owned()));
        }
    }
    difference
}

/// Positions (in `order`) of a longest ascending run of `order`.
fn longest_ascending(order: &[usize]) -> Vec<bool> {
    let mut tails: Vec<usize> = Vec::new();
    let mut previous = vec![None; order.len()];
    for (i, value) in order.iter().enumerate() {
        let at = tails.partition_point(|tail| order[*tail] < *value);
        previous[i] = at.checked_sub(1).map(|before| tails[before]);
        if at == tails.len() {
            tails.push(i);
        } else {
            tails[at] = i;
        }
    }
    let mut keep = vec![false; order.len()];
    let mut at = tails.last().copied();
    while let Some(i) = at {
        keep[i] = true;
        at = previous[i];
    }
    keep
}

fn lines(before: &Block, after: &Block, found: &Correspondence) -> Vec<LineDiff> {
    // For each line of `after` the line of `before` that it was.
    let matched = &found.symbols;
    let renamed = found.renamed(before, after);
    let order: Vec<usize> = matched.iter().flatten().copied().collect();
    let stays = longest_ascending(&order);
    let mut stays_old = vec![false; before.symbols.len()];
    let mut survives = stays_old.clone();
    for (position, stays) in order.iter().zip(&stays) {
        survives[*position] = true;
        stays_old[*position] = *stays;
    }
    let removed = |i: usize| LineDiff::Removed { line: print_symbol(before, &before.symbols[i]) };
    let mut changes = Vec::new();
    let mut next_old = 0;
    for (i, symbol) in after.symbols.iter().enumerate() {
        let Some(position) = matched[i] else {
            changes.push(LineDiff::Added { line: print_symbol(after, symbol) });
            continue;
        };
        if stays_old[position] {
            changes.extend((next_old..position).filter(|i| !survives[*i]).map(removed));
            next_old = position + 1;
        }
        let was = &before.symbols[position];
        let moved = !stays_old[position];
        let mut what = compare_symbols((before, was), (&renamed, symbol), moved);
        if let (Some(a), Some(b)) = (&was.body, &symbol.body)
            && !std::sync::Arc::ptr_eq(a, b)
        {
            what.body = bodies(a, b, &found.of_bodies(was, symbol, a, b));
        }
        let (before, after) = (print_symbol(before, was), print_symbol(after, symbol));
        let same = Changes { moved: false, storage: None, refusals: false, body: Vec::new(), ..what.clone() };
        what.renamed = same.is_empty() && before != after;
        if !what.is_empty() {
            changes.push(LineDiff::Changed { before, after, what });
        }
    }
    changes.extend((next_old..before.symbols.len()).filter(|i| !survives[*i]).map(removed));
    changes
}

fn compare_symbols((a_block, a): (&Block, &BoundSymbol), (b_block, b): (&Block, &BoundSymbol), moved: bool) -> Changes {
    // Each aspect as text, since numbers of values mean nothing across traces.
    let strip = |block: &Block, symbol: &BoundSymbol| {
        let (results, schedule) = (super::Results::new(), super::Schedule::default());
        let bare = BoundSymbol { executor: None, results, schedule, ..symbol.clone() };
        print_symbol(block, &bare)
    };
    let types = |block: &Block, symbol: &BoundSymbol| -> Vec<String> {
        let values = symbol.results.iter().map(|id| block.values.get(id.index()));
        values.map(|value| value.map_or_else(String::new, |value| value.meta.to_string())).collect()
    };
    let planned = |block: &Block, symbol: &BoundSymbol| {
        symbol.results.iter().any(|id| block.values.get(id.index()).is_some_and(|value| value.storage.is_some()))
    };
    let storage = |block: &Block, symbol: &BoundSymbol| -> String {
        let of = |id: &super::ValueId| block.values.get(id.index()).and_then(|value| value.storage);
        let text = |storage| match storage {
            None => "none".to_owned(),
            Some(super::Storage::Arena(offset)) => offset.to_string(),
            Some(super::Storage::Output) => "output".to_owned(),
            Some(super::Storage::Shared(id)) => {
                format!("in {}", block.values.get(id.index()).map_or("?", |value| &value.name))
            }
        };
        symbol.results.iter().map(|id| text(of(id))).collect::<Vec<String>>().join(", ")
    };
    let places = (storage(a_block, a), storage(b_block, b));
    let schedule = |block: &Block, symbol: &BoundSymbol| -> (StreamKind, Vec<Option<String>>) {
        let name = |id: &super::ValueId| block.values.get(id.index()).map(|value| value.name.to_string());
        (symbol.schedule.stream, symbol.schedule.after.iter().map(name).collect())
    };
    let refusals = |refusals: &[Refusal]| -> Vec<(String, String)> {
        refusals.iter().map(|refusal| (refusal.executor.to_owned(), refusal.reason.clone())).collect()
    };
    let body = match (&a.body, &b.body) {
        // The bodies of two are compared by their own names.
        (Some(_), Some(_)) | (None, None) => Vec::new(),
        (None, Some(_)) => vec![LineDiff::Added { line: "a body".into() }],
        (Some(_), None) => vec![LineDiff::Removed { line: "the body".into() }],
    };
    Changes {
        moved,
        call: strip(a_block, a) != strip(b_block, b),
        types: types(a_block, a) != types(b_block, b),
        // Before the memory plan nothing has a place, however many results there are.
        storage: (places.0 != places.1 && (planned(a_block, a) || planned(b_block, b))).then_some(places),
        claim: a.executor != b.executor,
        schedule: schedule(a_block, a) != schedule(b_block, b),
        refusals: refusals(&a.refusals) != refusals(&b.refusals),
        renamed: false,
        body,
    }
}

fn bodies(a: &Block, b: &Block, found: &Correspondence) -> Vec<LineDiff> {
    let renamed = found.renamed(a, b);
    let mut changes = Vec::new();
    let names = |block: &Block, ids: &[super::ValueId]| {
        let one = |id: &super::ValueId| block.values.get(id.index()).map_or("?".into(), |value| value.name.to_string());
        ids.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let parameters = |block: &Block| {
        let typed: Vec<String> = block.parameters.iter().map(|id| print_typed(block, *id)).collect();
        format!("({})", typed.join(", "))
    };
    if parameters(a) != parameters(&renamed) {
        let what = Changes { types: true, ..Changes::default() };
        changes.push(LineDiff::Changed { before: parameters(a), after: parameters(b), what });
    }
    let result = |block: &Block| format!("yield {}", names(block, &block.results));
    changes.extend(lines(a, b, found));
    if result(a) != result(&renamed) {
        let what = Changes { call: true, ..Changes::default() };
        changes.push(LineDiff::Changed { before: result(a), after: result(b), what });
    }
    changes
}

impl TraceDiff {
    /// Whether the traces are equal.
    pub fn is_empty(&self) -> bool {
        self.header.is_empty() && self.operators.is_empty() && self.lines.is_empty()
    }

    /// The lines that are new.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| if let LineDiff::Added { line } = line { Some(&**line) } else { None })
    }

    /// The lines that are gone.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| if let LineDiff::Removed { line } = line { Some(&**line) } else { None })
    }

    /// The lines that changed: before, after, and in what.
    pub fn changed(&self) -> impl Iterator<Item = (&str, &str, &Changes)> {
        self.lines.iter().filter_map(|line| match line {
            LineDiff::Changed { before, after, what } => Some((&**before, &**after, what)),
            _ => None,
        })
    }

    /// Lines whose results have other types: before and after.
    pub fn retyped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.changed().filter(|(_, _, what)| what.types).map(|(before, after, _)| (before, after))
    }

    /// Lines that another executor claims: before and after.
    pub fn reclaimed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.changed().filter(|(_, _, what)| what.claim).map(|(before, after, _)| (before, after))
    }
}

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[LineDiff], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    let mut renamed = 0;
    for line in lines {
        match line {
            LineDiff::Removed { line } => writeln!(f, "{indent}- {line}")?,
            LineDiff::Added { line } => writeln!(f, "{indent}+ {line}")?,
            LineDiff::Changed { what, .. } if what.is_renaming() => renamed += 1,
            LineDiff::Changed { before, after, what } => {
                let Changes { moved, call, types, storage, claim, schedule, refusals, renamed: _, body } = what;
                let storage = storage.as_ref().map(|(was, is)| format!("storage {was} -> {is}"));
                let named = [
                    (*call, "call"),
                    (*types, "types"),
                    (storage.is_some(), storage.as_deref().unwrap_or("")),
                    (*claim, "claim"),
                    (*schedule, "stream"),
                    (*refusals, "refusals"),
                    (*moved, "moved"),
                    (!body.is_empty(), "body"),
                ];
                let named: Vec<&str> = named.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
                if before == after {
                    writeln!(f, "{indent}~ {after}  # {}", named.join(", "))?;
                } else {
                    writeln!(f, "{indent}- {before}")?;
                    writeln!(f, "{indent}+ {after}  # {}", named.join(", "))?;
                }
                write_lines(f, body, depth + 1)?;
            }
        }
    }
    match renamed {
        0 => Ok(()),
        1 => writeln!(f, "{indent}~ 1 line has other names alone"),
        count => writeln!(f, "{indent}~ {count} lines have other names alone"),
    }
}

impl fmt::Display for TraceDiff {
    /// `-` before, `+` after, `~` a line whose text stayed but not its place, refusals or body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, before, after) in &self.header {
            writeln!(f, "{what}: {before} -> {after}")?;
        }
        for (operator, (before, after)) in &self.operators {
            writeln!(f, "operators: {operator} {before} -> {after}")?;
        }
        write_lines(f, &self.lines, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;
    use crate::trace::test_support::{GOOD, Generator, Random};

    fn change(from: &str, to: &str) -> TraceDiff {
        assert!(GOOD.contains(from));
        diff(&parse(GOOD).unwrap(), &parse(&GOOD.replacen(from, to, 1)).unwrap())
    }

    #[test]
    fn equal_traces_do_not_differ() {
        for seed in 0..200 {
            let trace = Generator { random: Random(seed) }.trace();
            assert!(diff(&trace, &trace).is_empty());
            let other = Generator { random: Random(seed + 1) }.trace();
            assert_eq!(diff(&trace, &other).is_empty(), trace.to_string() == other.to_string());
        }
    }

    #[test]
    fn an_added_line_is_one_line() {
        let to = "  extra: f32[8] = tt::exp(x)\n  tt::barrier(every)";
        let added = change("  tt::barrier(every)", to);
        assert_eq!(added.to_string(), "operators: tt::exp 1 -> 2\n+ extra: f32[8] = tt::exp(x)\n");
        assert_eq!(added.added().collect::<Vec<_>>(), ["extra: f32[8] = tt::exp(x)"]);
        let removed = diff(&parse(&GOOD.replacen("  tt::barrier(every)", to, 1)).unwrap(), &parse(GOOD).unwrap());
        assert_eq!(removed.to_string(), "operators: tt::exp 2 -> 1\n- extra: f32[8] = tt::exp(x)\n");
        assert_eq!(removed.removed().count(), 1);
    }

    #[test]
    fn changes_are_told_apart() {
        let claim = change("tt::exp(x) by tt_host", "tt::exp(x) by tt_other_host");
        assert_eq!(
            claim.to_string(),
            "- exp: f32[8] = tt::exp(x) by tt_host\n+ exp: f32[8] = tt::exp(x) by tt_other_host  # claim\n"
        );
        assert_eq!(claim.reclaimed().count(), 1);
        let stream = change("tt::exp(x) by tt_host", "tt::exp(x) by tt_host on copy");
        assert!(stream.to_string().ends_with("+ exp: f32[8] = tt::exp(x) by tt_host on copy  # stream\n"), "{stream}");
        let types = change("cat: f32[8]", "cat: f32[9]");
        assert_eq!(
            types.retyped().collect::<Vec<_>>(),
            [("cat: f32[8] = tt::cat([mixed, x], dim=0)", "cat: f32[9] = tt::cat([mixed, x], dim=0)")]
        );
        let call = change("other=-0.0", "other=0.0");
        assert!(call.to_string().ends_with("other=0.0, last=many)  # call\n"), "{call}");
        let storage = change("values at 32", "values at 64");
        assert!(storage.to_string().ends_with("# storage 32, none -> 64, none\n"), "{storage}");
        let refusals = change("needs CUDA", "wants CUDA");
        assert_eq!(refusals.to_string(), "~ exp: f32[8] = tt::exp(x) by tt_host  # refusals\n");
        let body = change("mean: f32[] = tt::mean(w)", "mean: f32[] = tt::mean(x)");
        assert_eq!(
            body.to_string(),
            "~ loss: f32[], grad.w: f32[8] = value_and_grad([params.w, x], wrt=[0])  # body\n  \
             - mean: f32[] = tt::mean(w)\n  + mean: f32[] = tt::mean(x)  # call\n"
        );
        let parameters = change("(a, b: f32[8])", "(a: f32[8], b: f32[9])");
        assert!(
            parameters.to_string().contains("  - (a: f32[8], b: f32[8])\n  + (a: f32[8], b: f32[9])  # types\n"),
            "{parameters}"
        );
        let header = change("arena 96", "arena 128");
        assert_eq!(header.to_string(), "arena: 96 -> 128\n");
        let input = change("saved: f32[8] saved", "saved: f32[8] saved donated");
        assert_eq!(input.to_string(), "input: saved: f32[8] saved -> saved: f32[8] saved donated\n");
        let history = change("acquire, delete-last-used", "acquire");
        assert_eq!(history.to_string(), "history: acquire, delete-last-used -> acquire\n");
        let output = change("return loss = loss", "return value = loss");
        assert!(output.to_string().starts_with("return: return loss = loss, "), "{output}");
    }

    #[test]
    fn moved_lines_are_the_fewest() {
        let many = "  many, many.1: f32[8] = tt::split(saved, parts=2)\n";
        let before = parse(GOOD).unwrap();
        let text = GOOD.replacen(many, "", 1).replacen("  exp: f32[8] =", &format!("{many}  exp: f32[8] ="), 1);
        let moved = diff(&before, &parse(&text).unwrap());
        assert_eq!(moved.to_string(), format!("~ {}  # moved\n", many.trim()));
    }
}
