//! The fuzzer finds kernels that are wrong where no sample looks, makes them small, and repeats itself.

use std::time::Duration;

use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::fuzz::{Event, Finding, Settings, Totals, fuzz};
use fulgurite_runtime::testing::{Filter, generated_tests};
use fulgurite_runtime::trace::parse;
use fulgurite_runtime::{Array, DType};

use fulgurite_executors as _;

#[path = "../../src/wrong/hasty.rs"]
mod hasty;

/// Cases within which every planted error must be found.
const CASES: u64 = 300;

fn search(settings: &Settings) -> (Totals, Vec<Finding>) {
    let mut found = Vec::new();
    let totals = fuzz(settings, &mut |event| {
        if let Event::Found(finding) = event {
            found.push(finding.clone());
        }
    });
    (totals.unwrap(), found)
}

fn planted(operator: &str) -> Settings {
    Settings {
        seed: 3,
        cases: Some(CASES),
        time: None,
        operators: [operator, "prims::abs"].map(str::to_owned).to_vec(),
        executors: vec!["hasty".into()],
        dtypes: vec![DType::F32],
        // The first one is enough.
        findings: Some(1),
        minimize: Duration::from_secs(20),
        ..Settings::default()
    }
}

/// What is found of a planted operator; the samples do not find it.
fn found(operator: &str) -> Vec<Finding> {
    let filter = Filter { templates: vec![Template::Consistency, Template::Bounds], ..Filter::operator(operator) };
    for test in generated_tests(&filter, &fulgurite_runtime::testing::Settings::default()) {
        (test.run)().unwrap_or_else(|message| panic!("{} is found by its samples: {message}", test.name));
    }
    let (totals, found) = search(&planted(operator));
    let found: Vec<Finding> = found.into_iter().filter(|finding| finding.program.contains(operator)).collect();
    assert!(!found.is_empty(), "{operator} is not found in {CASES} cases: {totals:?}");
    found
}

#[test]
fn a_forgotten_tail_is_found_and_made_small() {
    let found = found("wrong::tail_forgotten");
    let least = found.iter().map(|finding| finding.inputs[0].1.meta().len()).min().unwrap();
    let one = &found[0];
    // 65 elements are the least with such a tail. Fifteen rows of fifteen cannot lose one extent and keep it.
    assert!(least <= 225, "{}", one.program);
    assert!(one.program.ends_with("; wrong::tail_forgotten"), "{}", one.program);
    assert!(one.message.contains("hasty"), "{}", one.message);
    // What is written to files repeats it.
    let run = |executors: &[&str]| {
        let options = Options::default().with_executors(executors).unwrap();
        let trace = parse(&one.trace.to_string()).unwrap();
        let inputs: Vec<Array> = one.inputs.iter().map(|(_, array)| array.clone()).collect();
        compile(trace, &options).unwrap().0.run(inputs).unwrap()[0].to_f64().unwrap()
    };
    assert_ne!(run(&["hasty", "cpu", "reference"]), run(&["reference"]));
    assert!(one.flags.starts_with("--executors hasty,"), "{}", one.flags);
}

#[test]
fn an_argument_given_twice_is_found() {
    let found = found("wrong::argument_given_twice");
    let one = &found[0];
    assert!(one.inputs.len() == 1 || one.program.contains("same memory"), "{}", one.program);
}

#[test]
fn an_ignored_negative_stride_is_found() {
    let found = found("wrong::backwards_ignored");
    assert!(found[0].program.contains("Reversed"), "{}", found[0].program);
}

#[test]
fn a_reference_that_panics_is_a_failing_case() {
    let (totals, found) = search(&planted("hasty::reference_panics"));
    assert!(totals.failing > 0, "{totals:?}");
    let message = &found[0].message;
    assert!(message.starts_with("reference") && message.contains(" panicked: "), "{message}");
    // Where it panicked, beside where it is declared.
    assert!(message.contains("hasty.rs:") && message.contains(" (at "), "{message}");
}

#[test]
fn the_same_seed_finds_the_same() {
    let settings = Settings { cases: Some(60), findings: None, ..planted("wrong::tail_forgotten") };
    let ((first, a), (second, b)) = (search(&settings), search(&settings));
    assert_eq!((first.programs, first.calls, first.comparisons), (second.programs, second.calls, second.comparisons));
    let text = |found: &[Finding]| -> Vec<String> { found.iter().map(|f| f.message.clone() + &f.program).collect() };
    assert_eq!(text(&a), text(&b));
}

/// Pieces of one element, of rows of thousands, are thousands of symbols, and as many gradients of the whole row: such
/// programs are made shorter, and none takes minutes.
#[test]
fn tensors_in_thousands_of_pieces_are_done_in_seconds() {
    let operators = ["split", "split_with_sizes", "prims::abs"].map(str::to_owned).to_vec();
    let settings = Settings { seed: 1, cases: Some(40), time: None, operators, ..Settings::default() };
    let (totals, found) = search(&settings);
    assert!(found.is_empty(), "{}", found[0].message);
    assert!(totals.comparisons > 100 && totals.gradients > 4, "{totals:?}");
}

#[test]
fn unknown_names_are_errors() {
    let nobody = Settings { executors: vec!["nobody".into()], cases: Some(1), ..Settings::default() };
    assert!(fuzz(&nobody, &mut |_| {}).is_err());
    let nothing = Settings { operators: vec!["nothing".into()], cases: Some(1), ..Settings::default() };
    assert!(fuzz(&nothing, &mut |_| {}).unwrap_err().to_string().contains("nothing"));
}
