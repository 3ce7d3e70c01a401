//! Whether the registry is complete and consistent.

use std::collections::BTreeMap;

use fulgurite_runtime::executor::{
    IMPLEMENTATIONS, default_executors, executors, find_executor, implementations, rewrites,
};
use fulgurite_runtime::operator::{OperatorDef, OperatorKind, RuleSet};
use fulgurite_runtime::registry::{OPERATORS, find_operator, operators};
use fulgurite_runtime::testing::rules::TestRules;

type Outcome = Result<(), String>;

fn fail_on(problems: Vec<String>) -> Outcome {
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// No two operators, executors, rewrites of one name; one implementation for a pair.
pub fn names_are_unique() -> Outcome {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let names = OPERATORS
        .iter()
        .map(|def| format!("operator {}", def.name))
        .chain(executors().into_iter().map(|executor| format!("executor {}", executor.name)))
        .chain(rewrites().into_iter().map(|rewrite| format!("rewrite {}", rewrite.name)))
        .chain(IMPLEMENTATIONS.iter().map(|imp| format!("implementation of {} by {}", imp.of, imp.by)));
    names.for_each(|name| *seen.entry(name).or_default() += 1);
    fail_on(seen.iter().filter(|(_, n)| **n > 1).map(|(name, n)| format!("{name} is declared {n} times")).collect())
}

/// Implementations and kernel symbols belong to executors that are registered, and implement operators that are.
pub fn implementations_name_what_exists() -> Outcome {
    let mut problems = Vec::new();
    for imp in implementations() {
        let place = format!("{}:{}", imp.file, imp.line);
        problems.extend(find_operator(imp.of).err().map(|error| format!("{place}: {error}")));
        problems.extend(find_executor(imp.by).err().map(|error| format!("{place}: {error}")));
    }
    for def in operators() {
        if let OperatorKind::Symbol(owners) = def.kind {
            let unknown = owners.iter().filter_map(|owner| find_executor(owner).err());
            problems.extend(unknown.map(|error| format!("{}:{}: {error}", def.file, def.line)));
        }
    }
    fail_on(problems)
}

/// An operator of the library says nothing of an executor by name: what an executor rounds is a fact of the executor.
pub fn operators_name_no_executor() -> Outcome {
    let of_library = |def: &&'static OperatorDef| def.package == "fulgurite-ops";
    let directives = operators().into_iter().filter(of_library).flat_map(|def| {
        let named = TestRules::of(def).directives.iter().filter_map(|directive| directive.executor);
        named.map(move |name| {
            format!("{}:{}: a directive of {} names the executor {name}", def.file, def.line, def.name)
        })
    });
    fail_on(directives.collect())
}

/// The host has a list to run programs with, and the reference is its last executor.
pub fn default_lists_have_executors() -> Outcome {
    let names: Vec<&str> = default_executors("cpu").iter().map(|executor| executor.name).collect();
    match names.last() {
        Some(&"reference") => Ok(()),
        _ => Err(format!("the default list of the host is {names:?}, expected it to end with the reference executor")),
    }
}
