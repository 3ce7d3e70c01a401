//! The lines of a program as a review compares them: those of bodies too, each with its whole name and its region.

use std::collections::HashMap;

use fulgurite::trace::{Block, BoundSymbol, Callee, Results, Schedule, Trace, ValueId, print_symbol};

/// A line.
pub struct Line<'a> {
    /// The first name that it defines, behind those of the lines whose body it is in: `rms_norm/mul`.
    pub name: String,
    /// The line itself.
    pub symbol: &'a BoundSymbol,
    /// The block that it is in.
    pub block: &'a Block,
    /// The name of the fused region that it is in.
    pub region: Option<String>,
}

impl Line<'_> {
    /// The call alone: what it computes, without names of results, executor, stream and body.
    pub fn call(&self) -> String {
        let bare = BoundSymbol {
            executor: None,
            results: Results::new(),
            schedule: Schedule::default(),
            refusals: Vec::new(),
            body: None,
            ..self.symbol.clone()
        };
        print_symbol(self.block, &bare).trim().to_owned()
    }

    /// The types of its results.
    pub fn types(&self) -> String {
        let types = self.symbol.results.iter().filter_map(|id| self.block.values.get(id.index()));
        types.map(|value| value.meta.to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// All lines of a program but regions, which their bodies stand for, and the ends of values.
pub fn lines(trace: &Trace) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    add(&mut found, &trace.block, "", None);
    found
}

fn add<'a>(found: &mut Vec<Line<'a>>, block: &'a Block, path: &str, region: Option<&str>) {
    for symbol in &block.symbols {
        let name = || format!("{path}{}", first_name(block, &symbol.results));
        match (&symbol.callee, &symbol.body) {
            (Callee::Delete, _) => {}
            (Callee::Region { .. }, Some(body)) => add(found, body, path, Some(&name())),
            (_, body) => {
                let name = name();
                let inside = format!("{name}/");
                found.push(Line { name, symbol, block, region: region.map(str::to_owned) });
                if let Some(body) = body {
                    add(found, body, &inside, region);
                }
            }
        }
    }
}

fn first_name<'a>(block: &'a Block, results: &[ValueId]) -> &'a str {
    results.first().and_then(|id| block.values.get(id.index())).map_or("", |value| &value.name)
}

/// Lines of two programs, matched.
pub struct Matched<'a> {
    /// Lines of both, in the order of the second.
    pub both: Vec<(Line<'a>, Line<'a>)>,
    /// Lines of the second alone.
    pub added: Vec<Line<'a>>,
    /// Lines of the first alone.
    pub removed: Vec<Line<'a>>,
}

/// Matches lines by their names.
pub fn matched<'a>(before: &'a Trace, after: &'a Trace) -> Matched<'a> {
    let mut matched = Matched { both: Vec::new(), added: Vec::new(), removed: Vec::new() };
    let mut old: HashMap<String, Vec<Line<'a>>> = HashMap::new();
    for line in lines(before).into_iter().rev() {
        old.entry(line.name.clone()).or_default().push(line);
    }
    for line in lines(after) {
        match old.get_mut(&line.name).and_then(Vec::pop) {
            Some(was) => matched.both.push((was, line)),
            None => matched.added.push(line),
        }
    }
    matched.removed = old.into_values().flatten().collect();
    matched.removed.sort_by(|a, b| a.name.cmp(&b.name));
    matched
}
