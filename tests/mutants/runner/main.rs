//! Runs the generated tests of some operators, with or without a mutant, and says which test fails first. It is built
//! with the changed operators; see `../src/main.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fulgurite_runtime::testing::concerned::{Callers, Declared, Files, PROGRAMS};
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::{Filter, Settings, generated_tests};

use fulgurite_executors as _;

// `tests/src/builders.rs`, which is copied beside this.
mod builders;

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
    Template::Ranks,
    Template::Snapshot,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["concerned", copy] => concerned(copy),
        ["run", root, names] => run(root, names),
        _ => {
            eprintln!("runner concerned COPY | runner run ROOT NAMES");
            ExitCode::from(2)
        }
    }
}

/// For each line `FILE<tab>FUNCTION` of standard input the operators, with commas, whose tests say something about it.
/// `copy` is the folder of the sources that this was built from.
fn concerned(copy: &str) -> ExitCode {
    let declared = Declared::linked(&["cpu"]);
    let text = |file: &str| std::fs::read_to_string(PathBuf::from(copy).join(file)).unwrap_or_default();
    // `executors/cpu/src/lib.rs` is in `fulgurite-executor-cpu`.
    let package = |file: &str| {
        let folder = file.strip_prefix("executors/").and_then(|rest| rest.split('/').next());
        Some(folder.map_or_else(|| "fulgurite-ops".to_owned(), |folder| format!("fulgurite-executor-{folder}")))
    };
    let mut sources = Vec::new();
    ["ops/src", "executors", "runner/src"].iter().for_each(|folder| below(copy, Path::new(folder), &mut sources));
    let callers = Callers::new(sources);
    let files = Files { text: &text, package: &package, callers: &callers };
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (file, function) = line.split_once('\t').unwrap_or((&line, ""));
        let mut names: Vec<String> = declared.concerned(&files, file, function).into_iter().collect();
        // Nothing declares or calls it: random programs run what all operators share.
        if names.is_empty() {
            names.push(PROGRAMS.to_owned());
        }
        println!("{}", names.join(","));
    }
    ExitCode::SUCCESS
}

/// Adds the sources below a folder of the copy, by their paths from it.
fn below(copy: &str, folder: &Path, sources: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(Path::new(copy).join(folder)).into_iter().flatten().flatten() {
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            below(copy, &path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            sources.push((path.to_string_lossy().into_owned(), text));
        }
    }
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
        if let Err(problem) = (test.run)() {
            println!("{}", test.name);
            eprintln!("{problem}");
            return ExitCode::from(if test.template == Template::Snapshot { 3 } else { 1 });
        }
    }
    ExitCode::SUCCESS
}
