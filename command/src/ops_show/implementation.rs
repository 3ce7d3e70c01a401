//! `ops show` of implementations: of one by its name, and of those that an operator has.

use std::path::Path;

use fulgurite::executor::{ExecutorDef, ImplementationDef, find_executor, implementations};
use fulgurite::registry::find_operator;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite::{DType, Target};
use serde::Serialize;

use super::super::outcome::Failed;
use super::super::output::{say, say_json};
use super::super::subject;

/// An implementation in the description of its operator.
#[derive(Serialize)]
pub struct Row {
    pub executor: &'static str,
    pub rules: Vec<&'static str>,
    pub file: &'static str,
    pub line: u32,
}

/// The implementations of an operator.
pub(super) fn of_operator(operator: &str) -> Vec<Row> {
    let own = implementations().into_iter().filter(|own| own.of == operator);
    own.map(|own| Row { executor: own.by, rules: rules(own), file: own.file, line: own.line }).collect()
}

/// The rules that it has beside its checker.
fn rules(own: &ImplementationDef) -> Vec<&'static str> {
    let rules = [
        ("cpu", own.kernel.cpu.is_some()),
        ("plan", own.kernel.plan.is_some()),
        ("execution", own.execution.is_some()),
        ("grad", own.grad.is_some()),
        ("padded", own.padded.is_some()),
    ];
    rules.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// The implementation of that name: `OPERATOR_by_EXECUTOR`, or the file that has it alone and is called after the
/// operator, as `ops new` writes it.
pub(super) fn named(name: &str) -> Option<&'static ImplementationDef> {
    let all = implementations();
    let short = |own: &ImplementationDef| own.of.rsplit("::").next().unwrap_or(own.of);
    if let Some(own) = all.iter().copied().find(|own| format!("{}_by_{}", short(own), own.by) == name) {
        return Some(own);
    }
    let of_file = |own: &&&ImplementationDef| {
        name.contains(short(own)) && Path::new(own.file).file_stem().is_some_and(|stem| stem == name)
    };
    match all.iter().filter(of_file).collect::<Vec<_>>()[..] {
        [own] => Some(*own),
        _ => None,
    }
}

#[derive(Serialize)]
struct Description {
    kind: &'static str,
    operator: &'static str,
    executor: &'static str,
    device: &'static str,
    rules: Vec<&'static str>,
    /// The element types in which it takes a sample of the operator.
    dtypes: Vec<&'static str>,
    /// How many samples of all element types it takes, of how many.
    taken: usize,
    of: usize,
    refusal: Option<String>,
    tests: usize,
    file: &'static str,
    line: u32,
}

/// Shows an implementation.
pub(super) fn show(own: &'static ImplementationDef, json: bool) -> Result<(), Failed> {
    let failed = |error: fulgurite::Error| Failed(format!("{}:{}: {error}", own.file, own.line));
    let def = find_operator(own.of).map_err(failed)?;
    let executor: &ExecutorDef = find_executor(own.by).map_err(failed)?;
    let (mut dtypes, mut claims) = (Vec::new(), Vec::new());
    for dtype in DType::ALL {
        let samples = subject::accepted(def, dtype, &Target::cpu());
        let metas = samples.iter().map(|(_, sample, _)| subject::metas_for(executor, sample));
        let answers: Vec<_> = metas.map(|metas| subject::claim(def, executor, &metas)).collect();
        if answers.iter().any(Result::is_ok) {
            dtypes.push(dtype.name());
        }
        claims.extend(answers);
    }
    let filter = Filter { executors: vec![own.by.to_owned()], ..Filter::operator(own.of) };
    let tests = generated_tests(&filter, &Settings::default()).into_iter();
    let description = Description {
        kind: "implementation",
        operator: own.of,
        executor: own.by,
        device: executor.device,
        rules: rules(own),
        dtypes,
        taken: claims.iter().filter(|claim| claim.is_ok()).count(),
        of: claims.len(),
        refusal: claims.into_iter().find_map(Result::err),
        tests: tests.filter(|test| test.executor == Some(own.by)).count(),
        file: own.file,
        line: own.line,
    };
    if json {
        say_json(&description)?;
    } else {
        say!("{}", in_words(&description, &format!("{}:{}", def.file, def.line)))?;
    }
    Ok(())
}

fn in_words(own: &Description, operator: &str) -> String {
    let refusal = own.refusal.as_ref().map(|reason| format!("; refuses: {reason}")).unwrap_or_default();
    let rows = [
        ("kind", own.kind.to_owned()),
        ("operator", format!("{}, declared at {operator}", own.operator)),
        ("executor", format!("{}, on {}", own.executor, own.device)),
        ("rules", std::iter::once(&"checker").chain(&own.rules).copied().collect::<Vec<_>>().join(", ")),
        ("dtypes", own.dtypes.join(", ")),
        ("samples", format!("takes {} of {}{refusal}", own.taken, own.of)),
        // There are none of a device that this machine lacks.
        ("tests", if own.tests == 0 { String::new() } else { format!("{} with the executor", own.tests) }),
        ("declared at", format!("{}:{}", own.file, own.line)),
    ];
    let mut text = format!("{} by {}\n", own.operator, own.executor);
    text.extend(rows.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name:14} {value}\n")));
    text.truncate(text.trim_end().len());
    text
}
