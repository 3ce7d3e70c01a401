//! The `main` of a test target without a harness: one trial for each generated test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use fulgurite_kernels::DType;
use libtest_mimic::{Arguments, Failed, Trial};

use super::causes::Causes;
use super::directives::Template;
use super::generate::{Filter, absent_devices, generated_tests, unmatched_directives};
use super::golden::Golden;
use super::problem::excerpt;
use super::registry;
use super::test::{GeneratedTest, Outcome, Settings};
use crate::operator::did_you_mean;
use fulgurite_ir::registry::{find_operator, operators};

/// Runs every test that the linked declarations generate, with the arguments of `cargo test` or `cargo nextest`.
pub fn main() -> ExitCode {
    run(&Settings::default(), Vec::new())
}

/// Runs the generated tests of one operator, rewrite or other owner of tests in this process, but for snapshots and
/// PyTorch's vectors, which are files of a package: how many of them passed. For what a running program
/// [registers](fulgurite_compile::registration).
///
/// # Errors
/// What fails, by cause; that there is no such test.
pub fn check(name: &str) -> std::result::Result<usize, String> {
    let kept = |test: &GeneratedTest| !matches!(test.template, Template::Snapshot | Template::Golden);
    let mut tests = generated_tests(&Filter::operator(name), &Settings::default());
    tests.retain(|test| kept(test) && test.skip.is_none() && test.lacks.is_none());
    let causes = Causes::default();
    for test in &tests {
        if let Err(message) = (test.run)() {
            // No command repeats the test: it may be of what this program alone registers.
            let lines: Vec<&str> = message.lines().filter(|line| !line.starts_with("  repeat: ")).collect();
            causes.add(&test.operator, test.template, &test.name, lines.join("\n"));
        }
    }
    match (causes.report(), tests.len()) {
        (_, 0) => Err(format!("no test is generated for '{name}'")),
        (report, count) if report.is_empty() => Ok(count),
        (report, _) => Err(report.trim().to_owned()),
    }
}

/// As [`main`], for the operators of these names alone.
pub fn main_of(operators: &[&str]) -> ExitCode {
    let operators = operators.iter().map(|name| (*name).to_owned()).collect();
    run_filtered(&Filter { operators, ..Filter::default() }, &Settings::default(), Vec::new())
}

/// As [`main`], for what the package declares: its operators, its rewrites, and whatever its executors run. The macro
/// [`main_of_crate!`](crate::main_of_crate) names the package.
pub fn main_of_package(package: &str) -> ExitCode {
    let filter = Filter { package: Some(package.to_owned()), ..Filter::default() };
    let crate_name = package.replace('-', "_");
    let others = if registry::declared_by(package).is_empty() {
        let message = format!(
            "package '{package}' declares nothing that is linked here: name its library, `use {crate_name} as _;`, and list its files \
             in `operator_files!`"
        );
        vec![Trial::test("registry::something_is_declared", move || Err(Failed::from(message)))]
    } else {
        Vec::new()
    };
    run_filtered(&filter, &Settings::default(), others)
}

/// Runs the generated tests of everything that the calling package declares: the body of `main` in a test target
/// without a harness.
///
/// ```ignore
/// use my_operators as _; // links the declarations
///
/// fn main() -> std::process::ExitCode {
///     fulgurite::main_of_crate!()
/// }
/// ```
#[macro_export]
macro_rules! main_of_crate {
    () => {
        $crate::main_of_package(env!("CARGO_PKG_NAME"))
    };
}

/// As [`main`], for a device kind: runs every linked operator with the default executors of the kind, by all templates
/// that run a program. Operators without a kernel are decomposed, or fall back to the host where the kind does.
///
/// ```no_run
/// use my_device as _; // links the kind and its executors
/// # mod my_device {}
/// # mod fulgurite { pub use fulgurite_testing as testing; }
///
/// fn main() -> std::process::ExitCode {
///     fulgurite::testing::main_of_device("mine")
/// }
/// ```
pub fn main_of_device(kind: &str) -> ExitCode {
    run_device(kind, &Settings::default())
}

/// As [`main_of_device`], with files where `settings` say: the results of PyTorch, for example.
pub fn run_device(kind: &str, settings: &Settings) -> ExitCode {
    run_filtered(&Filter::device(kind), settings, Vec::new())
}

/// As [`main`], with files where `settings` say and trials of the caller's own beside the generated ones.
pub fn run(settings: &Settings, others: Vec<Trial>) -> ExitCode {
    run_filtered(&Filter::default(), settings, others)
}

fn run_filtered(filter: &Filter, settings: &Settings, others: Vec<Trial>) -> ExitCode {
    let (mut arguments, filters) = arguments_of(std::env::args().collect());
    let tests = generated_tests(filter, settings);
    let mut trials = others;
    for name in filter.operators.iter().filter(|name| tests.iter().all(|test| test.operator != **name)) {
        let message =
            format!("no test is generated for '{name}': it is not declared, or the crate that does is not linked");
        trials.push(Trial::test(format!("{name}::is_declared"), move || Err(Failed::from(message))));
    }
    let unlisted = registry::unlisted(&settings.sources);
    let all_listed = lines_of(unlisted.iter().map(registry::describe_unlisted));
    trials.push(Trial::test("registry::every_declaration_is_linked", move || all_listed));
    let clashes = lines_of(fulgurite_ir::registry::clashes().into_iter());
    trials.push(Trial::test("registry::every_name_is_declared_once", move || clashes));
    let stale = registry::stale_snapshots(&settings.snapshots);
    let stale =
        lines_of(stale.iter().map(|path| format!("{}: no operator has this snapshot; remove it", path.display())));
    trials.push(Trial::test("snapshots::none_is_stale", move || stale));
    if let (Some(kind), true) = (&filter.device, tests.is_empty()) {
        let message =
            format!("no executor of a device '{kind}' with a `priority` is linked, or there is no such device");
        trials.push(Trial::test(format!("device::{kind}::is_tested"), move || Err(Failed::from(message))));
    }
    // Of a device alone there are not all tests.
    let mut unmatched = if filter.device.is_none() { unmatched_directives(&tests) } else { Vec::new() };
    // Those of other operators were not asked for.
    let own = |message: &String| {
        let operator = message.split(" (").next().unwrap_or_default();
        let declares = |package: &String| find_operator(operator).is_ok_and(|def| def.package == package);
        (filter.operators.is_empty() || filter.operators.iter().any(|name| name == operator))
            && filter.package.as_ref().is_none_or(declares)
    };
    unmatched.retain(own);
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
    let causes = Arc::new(Causes::default());
    let on_request = settings.on_request.unwrap_or(|_| false);
    let known: Vec<Known> = tests.iter().map(|test| Known::of(test, on_request(test))).collect();
    trials.extend(
        tests.into_iter().zip(&known).map(|(test, known)| trial(test, &causes).with_ignored_flag(known.ignored)),
    );
    for (kind, reason) in absent_devices() {
        eprintln!("the tests of {kind} executors are skipped: {reason}");
        // Skipped, unless the environment says that this machine has to have one.
        let variable = format!("FULGURITE_REQUIRE_{}", kind.to_uppercase());
        let required = std::env::var_os(&variable).is_some_and(|value| value == "1");
        let trial = Trial::test(format!("device::{kind}::is_absent"), move || Err(Failed::from(reason)));
        trials.push(trial.with_ignored_flag(!required));
    }
    let unmatched = |filter: &&String| !trials.iter().any(|trial| trial.name().contains(filter.as_str()));
    for wanted in filters.iter().filter(unmatched).filter(|_| !arguments.list) {
        if let Some(message) = asked_for(wanted, &unlisted) {
            eprintln!("error: no generated test is called '{wanted}': {message}");
            return ExitCode::FAILURE;
        }
        // Not a failure: a filter may be meant for another test target of the workspace.
        let operator = wanted.split("::").next().unwrap_or(wanted);
        let names = || operators().into_iter().flat_map(|def| [def.name, def.short_name()]);
        let hint = if operator.is_empty() { String::new() } else { did_you_mean(operator, names()) };
        let hint = if hint.is_empty() { "." } else { hint.as_str() };
        eprintln!("no generated test is called '{wanted}'{hint} Tests are called operator::template::executor::dtype");
    }
    let selection = Selection { filters, skip: arguments.skip.clone(), exact: arguments.exact };
    if selection.filters.len() > 1 {
        trials.retain(|trial| selection.takes(trial.name()));
        arguments.filter = None;
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    print!("{}", causes.report());
    if !arguments.list {
        for note in ignored_for_lack(&known, &selection).into_iter().chain(unseen_gradients(&known, &selection)) {
            eprintln!("note: {note}");
        }
    }
    conclusion.exit_code()
}

/// The tests that the arguments ask for.
struct Selection {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
}

impl Selection {
    fn takes(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skip.iter().any(fits)
    }
}

/// What is known of a test when the run has ended.
struct Known {
    name: String,
    operator: String,
    /// Whether it checks a gradient, and whether in f64.
    gradient: Option<bool>,
    ignored: bool,
    lacks: Option<String>,
}

impl Known {
    fn of(test: &GeneratedTest, on_request: bool) -> Known {
        Known {
            name: test.name.clone(),
            operator: test.operator.clone(),
            gradient: (test.template == Template::Gradient).then_some(test.dtype == Some(DType::F64)),
            ignored: test.skip.is_some() || test.lacks.is_some() || on_request,
            lacks: test.lacks.clone(),
        }
    }
}

/// The tests that this machine cannot run, by what it lacks.
fn ignored_for_lack(known: &[Known], selection: &Selection) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for test in known.iter().filter(|test| selection.takes(&test.name)) {
        if let Some(lacks) = &test.lacks {
            *counts.entry(lacks).or_default() += 1;
        }
    }
    let worded = |(lacks, count)| format!("{count} tests that compile device sources are ignored: {lacks}");
    counts.into_iter().map(worded).collect()
}

/// The operators whose gradients were checked, but not in f64, because the tests of f64 are not selected.
fn unseen_gradients(known: &[Known], selection: &Selection) -> Vec<String> {
    // Whether one ran in f64, whether one ran in another type, how many of f64 were left out.
    let mut counts: BTreeMap<&str, (bool, bool, usize)> = BTreeMap::new();
    for test in known.iter().filter(|test| !test.ignored) {
        let Some(in_f64) = test.gradient else { continue };
        let (sharp, other, left_out) = counts.entry(&test.operator).or_default();
        match (selection.takes(&test.name), in_f64) {
            (true, true) => *sharp = true,
            (true, false) => *other = true,
            (false, true) => *left_out += 1,
            (false, false) => {}
        }
    }
    let unseen = counts.into_iter().filter(|(_, (sharp, other, left_out))| !sharp && *other && *left_out > 0);
    let worded = |(operator, (_, _, count))| {
        let (tests, were) = if count == 1 { ("test", "was") } else { ("tests", "were") };
        format!(
            "{count} {tests} of f64 of {operator} {were} left out by the filter; a gradient is checked most sharply \
             there, by differences of results: `-- {operator}::gradient`"
        )
    };
    unseen.map(worded).collect()
}

/// Options of test targets whose value is the next word.
const WITH_VALUE: [&str; 6] = ["--format", "--skip", "--test-threads", "--color", "--logfile", "-Z"];

/// The arguments, of which the first filter is one, and all filters: like the standard harness this one takes several.
fn arguments_of(words: Vec<String>) -> (Arguments, Vec<String>) {
    let mut kept: Vec<String> = Vec::new();
    let mut filters: Vec<String> = Vec::new();
    for word in words {
        let value = kept.last().is_some_and(|last| WITH_VALUE.contains(&last.as_str()));
        if kept.is_empty() || word.starts_with('-') || value {
            kept.push(word);
        } else {
            filters.push(word);
        }
    }
    kept.extend(filters.first().cloned());
    (Arguments::from_iter(kept), filters)
}

/// Fails with all lines, if there are any.
fn lines_of(lines: impl Iterator<Item = String>) -> Result<(), Failed> {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { Ok(()) } else { Err(Failed::from(lines.join("\n"))) }
}

/// What is wrong with the unlisted file that declares what a filter names, if there is one.
fn asked_for(filter: &str, unlisted: &[(PathBuf, usize, usize)]) -> Option<String> {
    let wanted = filter.trim_end_matches(':');
    let operator = wanted.split("::").next().unwrap_or(wanted);
    let declares = |path: &PathBuf| {
        let named = path.file_stem().is_some_and(|stem| stem.to_string_lossy() == *operator);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        named || text.contains(&format!("mod {operator} {{"))
    };
    unlisted.iter().find(|(path, _, _)| declares(path)).map(registry::describe_unlisted)
}

fn trial(test: GeneratedTest, causes: &Arc<Causes>) -> Trial {
    let GeneratedTest { name, operator, template, run, .. } = test;
    let (causes, own) = (causes.clone(), name.clone());
    Trial::test(name, move || {
        // A host kernel that writes out of bounds may end the process.
        let _doing = fulgurite_kernels::crash::doing(&own);
        match run() {
            Ok(Outcome::Passed | Outcome::Nothing(_)) => Ok(()),
            Err(message) => {
                // What differs from a snapshot is there to be read.
                let message = if template == Template::Snapshot { message } else { excerpt(&message) };
                causes.add(&operator, template, &own, message);
                Err(Failed::without_message())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_filters_are_taken() {
        let of = |words: &str| {
            let (arguments, filters) = arguments_of(words.split(' ').map(str::to_owned).collect());
            (arguments.filter, filters.join(","), arguments.skip.join(","), arguments.list)
        };
        assert_eq!(of("tests"), (None, String::new(), String::new(), false));
        assert_eq!(of("tests a::"), (Some("a::".into()), "a::".into(), String::new(), false));
        assert_eq!(of("tests a:: --skip b c --list"), (Some("a::".into()), "a::,c".into(), "b".into(), true));
    }

    #[test]
    fn gradients_that_f64_did_not_see_are_told() {
        let test = |name: &str, in_f64, ignored| Known {
            name: name.to_owned(),
            operator: name.split("::").next().unwrap_or_default().to_owned(),
            gradient: name.contains("::gradient::").then_some(in_f64),
            ignored,
            lacks: None,
        };
        let known = [
            test("a::gradient::cpu::f32", false, false),
            test("a::gradient::cpu::f64", true, false),
            test("a::gradient::cuda::f64", true, true),
            test("a::meta::cpu::f32", false, false),
            test("b::gradient::cpu::bf16", false, false),
        ];
        let unseen = |filters: &[&str], skip: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            unseen_gradients(&known, &Selection { filters: owned(filters), skip: owned(skip), exact: false })
        };
        let told = [
            "1 test of f64 of a was left out by the filter; a gradient is checked most sharply there, by differences of results: `-- a::gradient`",
        ];
        assert_eq!(unseen(&["f32"], &[]), told);
        assert_eq!(unseen(&[], &["f64"]), told);
        assert_eq!(unseen(&["a::gradient::cpu::f32"], &[]), told);
        for all in [&[][..], &["a::"], &["f32", "f64"], &["meta"], &["b::"]] {
            assert!(unseen(all, &[]).is_empty(), "{all:?}");
        }
    }

    #[test]
    fn who_asks_for_an_unlisted_file_is_told() {
        let folder = std::env::temp_dir().join(format!("fulgurite-asked-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("lost.rs"), "#[operator]\npub mod found_inside {\n}\n").expect("a file");
        let unlisted = registry::unlisted(std::slice::from_ref(&folder));
        std::fs::remove_file(folder.join("lost.rs")).expect("it is there");
        let asked = |filter: &str| asked_for(filter, &unlisted);
        assert!(asked("lost").is_some_and(|message| message.contains("operator_files! { lost, ... }")));
        assert!(asked("lost::").is_some() && asked("lost::meta::cpu").is_some());
        assert_eq!(asked("other"), None);
        std::fs::remove_dir_all(&folder).expect("it is empty");
    }
}
