//! Runs the generated tests of some operators, with or without a mutant, and says which test fails first. It is built
//! with the changed operators; see `../src/main.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::executor::{executors, implementations, rewrites};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::samples::Samples;
use fulgurite_runtime::testing::{Filter, Settings, generated_tests};
use fulgurite_runtime::{DType, Device};

use fulgurite_executors as _;

/// Templates in the order that finds most for the least time; snapshots last, since they tell changes and not mistakes.
const ORDER: [Template; Template::ALL.len()] = [
    Template::Errors,
    Template::Meta,
    Template::Types,
    Template::Consistency,
    Template::Decomposition,
    Template::Gradient,
    Template::Samples,
    Template::CotangentLinearity,
    Template::SecondGradient,
    Template::Golden,
    Template::Layout,
    Template::Checker,
    Template::Bounds,
    Template::InPlace,
    Template::Bits,
    Template::Effects,
    Template::Determinism,
    Template::RoundTrip,
    Template::Autocast,
    Template::Sources,
    Template::Rewrite,
    Template::Programs,
    Template::Snapshot,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => list(),
        ["run", root, names] => run(root, names),
        _ => {
            eprintln!("runner list | runner run ROOT NAMES");
            ExitCode::from(2)
        }
    }
}

/// Operators, implementations and rewrites with the files that declare them; what executors of the host take by rules
/// of their own, with their files.
fn list() -> ExitCode {
    for def in operators() {
        println!("{}\t{}", def.name, def.file);
    }
    for implementation in implementations() {
        println!("{}\t{}", implementation.of, implementation.file);
    }
    for rewrite in rewrites() {
        println!("{}\t{}", rewrite.name, rewrite.file);
    }
    for executor in executors().into_iter().filter(|executor| executor.device == "cpu") {
        let Some(claims) = executor.claims else { continue };
        for def in operators() {
            let mut samples = Samples::of_operator(def, DType::F32).into_iter();
            let takes = |metas: &[_]| claims(def, metas).is_ok();
            if samples.next().is_some_and(|sample| takes(&map_arguments(&sample.arguments, |t| t.meta(Device::CPU)))) {
                println!("{}\texecutors/{}/src/lib.rs", def.name, executor.name);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Exits with 0 if all tests pass, with 1 if one fails, with 3 if a snapshot alone differs.
fn run(root: &str, names: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let settings = Settings {
        snapshots: PathBuf::from(root).join("tests/snapshots"),
        golden: PathBuf::from(root).join("tests/golden"),
        command: "again".into(),
        ..Settings::default()
    };
    let filter = Filter { operators: names.split(',').map(str::to_owned).collect(), ..Filter::default() };
    // A rule that panics when it is asked for its samples or shapes is found as well.
    let Ok(mut tests) = catch_unwind(AssertUnwindSafe(|| generated_tests(&filter, &settings))) else {
        println!("the list of tests");
        return ExitCode::from(1);
    };
    // Mutants are of what runs on the host: no device source differs.
    tests.retain(|test| test.skip.is_none() && test.template != Template::Sources);
    let place = |template: Template| ORDER.iter().position(|other| *other == template);
    // Of one template, every operator's tests in f32 and f64 before those in other types.
    tests.sort_by_key(|test| (place(test.template), test.dtype.map(|dtype| dtype.size() < 4)));
    for test in &tests {
        if (test.run)().is_err() {
            println!("{}", test.name);
            return ExitCode::from(if test.template == Template::Snapshot { 3 } else { 1 });
        }
    }
    ExitCode::SUCCESS
}
