//! The lines of two programs as a review compares them: those of bodies too, each with its whole name and its region.

use fulgurite::trace::correspond::Correspondence;
use fulgurite::trace::inlined::Inlined;
use fulgurite::trace::{Block, BoundSymbol, Results, Schedule, Trace, ValueId, print_symbol};

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The first name that it defines, behind those of the lines whose body it is in: `rms_norm/mul`.
    pub name: String,
    /// The operator that it calls.
    pub operator: String,
    /// The executor that runs it.
    pub executor: Option<&'static str>,
    /// The call alone, without names of results, executor, stream and body. Names are those of the first program;
    /// values that only the second has are told apart from all others.
    pub call: String,
    /// The call for readers: such values have the names of the second program.
    pub shown: String,
    /// The types of its results.
    pub types: String,
    /// Executors that refused it, and their reasons.
    pub refusals: Vec<(String, String)>,
    /// The name of the fused region that it is in.
    pub region: Option<String>,
}

/// Lines of two programs, matched.
#[derive(Debug, Default)]
pub struct Matched {
    /// Lines of both, in the order of the second.
    pub both: Vec<(Line, Line)>,
    /// Lines of the second alone.
    pub added: Vec<Line>,
    /// Lines of the first alone.
    pub removed: Vec<Line>,
}

/// Matches the lines of two programs by what they compute, then by their names.
pub fn matched(before: &Trace, after: &Trace) -> Matched {
    let mut matched = Matched::default();
    let (before, after) = (Inlined::of(&before.block), Inlined::of(&after.block));
    let found = Correspondence::of(&before.block, &after.block);
    compare(&mut matched, &before, &after, &found, "");
    matched
}

fn compare(matched: &mut Matched, before: &Inlined, after: &Inlined, found: &Correspondence, path: &str) {
    let renamed = found.renamed(&before.block, &after.block);
    let mut readable = renamed.clone();
    for value in &mut readable.values {
        if let Some(own) = value.name.strip_suffix('\u{0}').map(str::to_owned) {
            value.name = own.into();
        }
    }
    let mut gone = vec![true; before.block.symbols.len()];
    for (i, symbol) in after.block.symbols.iter().enumerate() {
        let is = || Line { call: call(&renamed, symbol), shown: call(&readable, symbol), ..line(after, i, path) };
        let Some(at) = found.symbols[i] else {
            matched.added.push(is());
            continue;
        };
        gone[at] = false;
        let (was, is) = (line(before, at, path), is());
        let inside = format!("{}/", is.name);
        matched.both.push((was, is));
        let old = &before.block.symbols[at];
        if let (Some(a), Some(b)) = (&old.body, &symbol.body)
            && !std::sync::Arc::ptr_eq(a, b)
        {
            // Bodies of calls hold no regions.
            let (a, b) = (Inlined::whole(a), Inlined::whole(b));
            let found = found.of_bodies(old, symbol, &a.block, &b.block);
            compare(matched, &a, &b, &found, &inside);
        }
    }
    matched.removed.extend((0..gone.len()).filter(|at| gone[*at]).map(|at| line(before, at, path)));
}

fn line(program: &Inlined, at: usize, path: &str) -> Line {
    let (block, symbol) = (&program.block, &program.block.symbols[at]);
    let value = |id: &ValueId| block.values.get(id.index());
    let first = symbol.results.first().and_then(value).map_or("", |value| &value.name);
    let types: Vec<String> = symbol.results.iter().filter_map(value).map(|value| value.meta.to_string()).collect();
    let refusals = symbol.refusals.iter().map(|refusal| (refusal.executor.to_owned(), refusal.reason.clone()));
    let call = call(block, symbol);
    Line {
        name: format!("{path}{first}"),
        operator: symbol.name().to_owned(),
        executor: symbol.executor,
        shown: call.clone(),
        call,
        types: types.join(", "),
        refusals: refusals.collect(),
        region: program.regions[at].clone(),
    }
}

fn call(block: &Block, symbol: &BoundSymbol) -> String {
    let bare = BoundSymbol {
        executor: None,
        results: Results::new(),
        schedule: Schedule::default(),
        refusals: Vec::new(),
        body: None,
        ..symbol.clone()
    };
    print_symbol(block, &bare).trim().to_owned()
}
