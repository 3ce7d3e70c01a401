//! What another order of the executors changes.

use std::collections::BTreeMap;

use fulgurite_runtime::comparison::Comparison;
use fulgurite_runtime::cost::Totals;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::trace::correspond::Correspondence;
use serde_json::{Value, json};

/// The program compiled with one executor asked before all others.
#[derive(Debug, Clone)]
pub struct Order {
    /// The executor.
    pub first: String,
    /// What that changes, or why the program cannot be compiled so.
    pub outcome: Result<Reordered, String>,
}

/// What another order of the executors changes.
#[derive(Debug, Clone)]
pub struct Reordered {
    /// The lines, once they are claimed.
    claimed: Comparison,
    /// How many lines of an operator an executor takes from another, or from nobody.
    taken: BTreeMap<[Option<&'static str>; 2], BTreeMap<String, usize>>,
    /// The cost of the planned program in the usual order and in this one.
    totals: [Totals; 2],
}

impl Reordered {
    /// What differs between the programs of the usual order and those of another one: `claimed` are the lines once they
    /// are claimed, `planned` the programs at the end.
    pub fn of(claimed: [&Trace; 2], planned: [&Trace; 2]) -> Reordered {
        let [before, after] = claimed.map(|trace| &trace.block);
        let mut taken: BTreeMap<_, BTreeMap<String, usize>> = BTreeMap::new();
        for (is, was) in Correspondence::of(before, after).symbols.iter().enumerate() {
            let Some(was) = was else { continue };
            let (was, is) = (&before.symbols[*was], &after.symbols[is]);
            if was.executor != is.executor {
                let operators = taken.entry([was.executor, is.executor]).or_default();
                let operator = match was.name() == is.name() {
                    true => is.name().to_owned(),
                    false => format!("{} as {}", was.name(), is.name()),
                };
                *operators.entry(operator).or_default() += 1;
            }
        }
        Reordered { claimed: Comparison::of(claimed[0], claimed[1]), taken, totals: planned.map(Totals::of) }
    }
}

/// As data: `taken` are executors before and after, and operators with numbers of lines, the most first.
pub fn to_json(order: &Order) -> Value {
    let Reordered { claimed, taken, totals: [before, after] } = match &order.outcome {
        Err(error) => return json!({"first": order.first, "error": error}),
        Ok(reordered) => reordered,
    };
    let taken = taken.iter().map(|([from, to], operators)| {
        let mut operators: Vec<(&String, &usize)> = operators.iter().collect();
        operators.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
        json!([from, to, operators])
    });
    json!({
        "first": order.first,
        "words": claimed.in_words(),
        "difference": claimed.to_json(),
        "taken": taken.collect::<Vec<_>>(),
        "totals": {"before": before.to_json(), "after": after.to_json()},
    })
}
