//! The `main` of a test target without a harness: one trial for each generated test.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use super::generate::{
    Filter, GeneratedTest, Outcome, Settings, absent_devices, generated_tests, unmatched_directives,
};
use super::golden::Golden;

/// Runs every test that the linked declarations generate, with the arguments of `cargo test` or `cargo nextest`.
pub fn main() -> ExitCode {
    run(&Settings::default(), Vec::new())
}

/// As [`main`], for the operators of these names alone: a crate tests what it declares, not all that it links.
pub fn main_of(operators: &[&str]) -> ExitCode {
    let operators = operators.iter().map(|name| (*name).to_owned()).collect();
    run_filtered(&Filter { operators, ..Filter::default() }, &Settings::default(), Vec::new())
}

/// As [`main`], with files where `settings` say and trials of the caller's own beside the generated ones.
pub fn run(settings: &Settings, others: Vec<Trial>) -> ExitCode {
    run_filtered(&Filter::default(), settings, others)
}

fn run_filtered(filter: &Filter, settings: &Settings, others: Vec<Trial>) -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = generated_tests(filter, settings);
    let mut trials = others;
    for name in filter.operators.iter().filter(|name| tests.iter().all(|test| test.operator != **name)) {
        let message =
            format!("no test is generated for '{name}': it is not declared, or the crate that does is not linked");
        trials.push(Trial::test(format!("{name}::is_declared"), move || Err(Failed::from(message))));
    }
    let mut unmatched = unmatched_directives(&tests);
    // Those of other operators were not asked for.
    let own = |message: &String| filter.operators.iter().any(|name| message.starts_with(&format!("{name} (")));
    unmatched.retain(|message| filter.operators.is_empty() || own(message));
    trials.push(Trial::test("directives::all_match", move || {
        if unmatched.is_empty() { Ok(()) } else { Err(Failed::from(unmatched.join("\n"))) }
    }));
    let golden = Golden::open(&settings.golden);
    trials.push(Trial::test("golden::none_is_stale", move || {
        let stale = golden.stale();
        if stale.is_empty() { Ok(()) } else { Err(Failed::from(stale.join("\n"))) }
    }));
    let golden = Golden::open(&settings.golden);
    trials.push(Trial::test("golden::lists_what_is_missing", move || {
        let missing: String = golden.missing().iter().map(|line| format!("\n    {line}")).collect();
        if !missing.is_empty() {
            eprintln!("operators that mirror a function of PyTorch, without golden vectors:{missing}");
        }
        Ok(())
    }));
    trials.extend(tests.into_iter().map(trial));
    for (kind, reason) in absent_devices() {
        eprintln!("the tests of {kind} executors are skipped: {reason}");
        // Skipped, unless the environment says that this machine has to have one.
        let variable = format!("FULGURITE_REQUIRE_{}", kind.to_uppercase());
        let required = std::env::var_os(&variable).is_some_and(|value| value == "1");
        let trial = Trial::test(format!("device::{kind}::is_absent"), move || Err(Failed::from(reason)));
        trials.push(trial.with_ignored_flag(!required));
    }
    if let Some(wanted) = &arguments.filter
        && !arguments.list
        && !trials.iter().any(|trial| trial.name().contains(wanted.as_str()))
    {
        // Not a failure: a filter may be meant for another test target of the workspace.
        eprintln!(
            "no generated test is called '{wanted}'. Tests are called operator::template::executor::dtype; an operator \
             whose file is in no operator_files! list has none (registry::every_declaration_is_linked finds it)"
        );
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(test: GeneratedTest) -> Trial {
    let GeneratedTest { name, skip, run, .. } = test;
    Trial::test(name, move || match run() {
        Ok(Outcome::Passed | Outcome::Nothing(_)) => Ok(()),
        Err(message) => Err(Failed::from(message)),
    })
    .with_ignored_flag(skip.is_some())
}
