//! Passes, generators of fused kernels and the generated tests read what operators declare. They know no operator by
//! its name.

#[path = "facts/allocations.rs"]
mod allocations;
#[path = "facts/openings.rs"]
mod openings;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fulgurite_executors as _;
use fulgurite_runtime::registry::operators;

/// Where no operator may be named.
const SOURCES: [&str; 8] = [
    "runtime/base/src",
    "runtime/ir/src",
    "runtime/compile/src",
    "runtime/run/src",
    "runtime/testing/src",
    "executors/regions/src",
    "executors/cpu/src/fusion.rs",
    "executors/cuda/src/fusion.rs",
];

/// Words that operators are called as well, and what they mean there.
const OTHER_MEANINGS: [(&str, &str, &str); 38] = [
    ("runtime/ir/src/testing/directives.rs", "gradient", "a template of tests"),
    ("runtime/run/src/jit/vjp.rs", "gradient", "what is at a path, in errors"),
    ("runtime/testing/src/templates/samples.rs", "empty", "inputs without elements, in messages"),
    ("runtime/ir/src/trace/stage_name.rs", "split", "the stage that makes two programs of one"),
    ("runtime/ir/src/trace/stage_name.rs", "pad", "the stage that makes operands larger"),
    ("runtime/compile/src/compile/options.rs", "pad", "the option for it"),
    ("runtime/base/src/array/values.rs", "place", "an argument of a method, in its errors"),
    ("runtime/ir/src/comparison.rs", "place", "what differs between two traces: where a line is"),
    ("runtime/base/src/array.rs", "slice", "the method of arrays, in its errors"),
    ("runtime/base/src/operator/autocast.rs", "full", "a class of autocast"),
    ("runtime/run/src/program/profile.rs", "floor", "the least time that a line needs, a column of the table"),
    ("runtime/ir/src/executor.rs", "view", "the executor of what only looks at memory"),
    ("runtime/ir/src/trace/parse/nested.rs", "view", "a word of the text of traces"),
    ("runtime/ir/src/trace/parse/runs.rs", "to", "a word of the text of traces"),
    ("runtime/ir/src/trace/parse/lines.rs", "to", "the same word"),
    ("runtime/testing/src/templates/samples.rs", "zeros", "inputs of zeros, in messages"),
    ("runtime/testing/src/templates/samples.rs", "ones", "inputs of ones, in messages"),
    ("runtime/compile/src/transforms/batch/write.rs", "stack", "what operands that stand side by side are called"),
    ("runtime/run/src/program/profile.rs", "cat", "the category of an event in Chrome's traces"),
    ("runtime/compile/src/transforms/ddp.rs", "mean", "how `Role::AllReduce` makes one tensor of the ranks'"),
    ("runtime/compile/src/transforms/fsdp.rs", "sum", "how `Role::AllReduce` makes one tensor of the ranks'"),
    ("runtime/compile/src/transforms/tensor_parallel/meet.rs", "sum", "the same"),
    ("runtime/compile/src/transforms/tensor_parallel/rules.rs", "max", "the same"),
    ("runtime/compile/src/transforms/tensor_parallel/rules.rs", "min", "the same"),
    ("runtime/ir/src/trace/parse/header.rs", "trace", "the first word of a trace's text"),
    ("runtime/ir/src/executor.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/compile/src/registration/signature.rs", "any", "a class of element types"),
    ("runtime/compile/src/registration/signature.rs", "complex", "a class of element types"),
    ("runtime/compile/src/registration/executor.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/compile/src/compile/explain.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/compile/src/compile/programs.rs", "trace", "an argument of a function, in errors"),
    ("runtime/run/src/program/profile.rs", "all", "the row of a profile's totals"),
    ("runtime/run/src/fallback.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/run/src/whole.rs", "trace", "an argument of a function, in errors"),
    ("runtime/run/src/choices/confirm.rs", "trace", "an argument of a function, in errors"),
    ("runtime/testing/src/templates/programs.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/testing/src/generate/choice.rs", "any", "the device of an executor that runs on every kind"),
    ("runtime/testing/src/concerned.rs", "any", "the device of an executor that runs on every kind"),
];

/// Rust files, without those of tests.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.for_each(|entry| files(&entry, found));
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !["tests", "test_support", "mutations"].contains(&&*name) {
            found.push(path.to_owned());
        }
    }
}

/// The string literals of a line of code, without escapes: names of operators have none.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

#[test]
fn no_pass_matches_operators_by_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // What a prim is called in a short text counts as its name.
    let names: BTreeSet<&str> =
        operators().iter().flat_map(|def| [def.name, def.name.strip_prefix("prims::").unwrap_or(def.name)]).collect();
    assert!(names.contains("prims::sum") && names.contains("linear"), "the operators are linked");
    let mut all = Vec::new();
    SOURCES.iter().for_each(|source| files(&root.join(source), &mut all));
    assert!(all.len() > 50, "{all:?}");
    let mut unused: BTreeSet<(&str, &str)> = OTHER_MEANINGS.iter().map(|(file, word, _)| (*file, *word)).collect();
    let expected = unused.clone();
    let mut named = Vec::new();
    for file in &all {
        let text = std::fs::read_to_string(file).unwrap();
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        // Modules of tests are the last of a file.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            // Quotes that neither begin nor end a string.
            let line = line.replace("\\\"", "").replace("'\"'", "");
            let line = line.split("//").next().unwrap_or_default();
            for word in literals(line).filter(|word| names.contains(word)) {
                if expected.contains(&(&*path, word)) {
                    unused.retain(|(file, known)| (*file, *known) != (&*path, word));
                } else {
                    named.push(format!("{path}:{}: \"{word}\"", number + 1));
                }
            }
            let record = line.replace("::OPERATORS", "").replace("expansion::OPERATOR", "");
            // In the macros of expansions the same record.
            let record = record.replace("__f::OPERATOR", "");
            if record.contains("::OPERATOR") {
                named.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(named.is_empty(), "declare a fact and ask for it, or list what the word means here:\n{}", named.join("\n"));
    assert!(unused.is_empty(), "listed, and not there: {unused:?}");
}
