//! What a generated test does: its template for each sample, as directives say, and the message of a failure.

use std::sync::Arc;

use fulgurite_kernels::DType;

use crate::directives::{Directive, DirectiveKind, Template, Tolerance};
use crate::error::Failure;
use crate::executor::{ExecutorDef, RewriteDef, find_executor, find_implementation};
use crate::executor_list::REFERENCE;
use crate::golden::Golden;
use crate::operator::{OperatorDef, RuleSet};
use crate::problem::{Check, Problem};
use crate::rules::TestRules;
use crate::subject::{Subject, subjects};
use crate::templates;
use crate::test::{Body, Context, GeneratedTest, Outcome, PROGRAMS, Settings, sample_variable, selected_sample};

fn name_of(operator: &str, template: Template, executor: Option<&str>, dtype: Option<DType>) -> String {
    let mut name = format!("{operator}::{}", template.name());
    for part in executor.into_iter().chain(dtype.map(DType::name)) {
        name = format!("{name}::{part}");
    }
    name
}

pub(super) fn operator_test(
    def: &'static OperatorDef,
    template: Template,
    executor: Option<&'static ExecutorDef>,
    dtype: Option<DType>,
    settings: &Arc<Settings>,
    golden: &Arc<Golden>,
) -> GeneratedTest {
    let executor_name = executor.map(|executor| executor.name);
    let name = name_of(def.name, template, executor_name, dtype);
    // The executor whose tolerances hold: another one's, where a test of the templates asks for it.
    let meant = match settings.directives_of {
        Some([own, other]) if executor_name == Some(own) => find_executor(other).ok(),
        _ => executor,
    }
    .map(|executor| (executor.name, executor.precision));
    let directives: Vec<Directive> = TestRules::of(def)
        .directives
        .iter()
        .filter(|directive| directive.matches(template, meant, dtype))
        .copied()
        .collect();
    let whole =
        |kind: DirectiveKind| directives.iter().find(|d| d.sample.is_none() && d.kind == kind).map(|d| d.reason);
    let skip = whole(DirectiveKind::Skip).map(str::to_owned);
    let must_fail = whole(DirectiveKind::ExpectedFailure);
    let tolerance = directives
        .iter()
        .filter(|directive| directive.sample.is_none())
        .filter_map(|directive| match directive.kind {
            DirectiveKind::Tolerance(tolerance) => Some(tolerance),
            _ => None,
        })
        .fold(Tolerance { dtype, ..Tolerance::NONE }, Tolerance::and)
        .and(meant.map_or(Tolerance::NONE, |(_, precision)| Tolerance::of(precision, template, dtype)));
    let context =
        Context { def, template, executor, dtype, tolerance, settings: settings.clone(), golden: golden.clone() };
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        let outcome = guarded(|| run_template(&context, &directives, &repeat));
        match (outcome, must_fail) {
            (Ok(_), Some(reason)) => Err(format!(
                "{}: {} passes, although a directive expects it to fail ({reason}); remove the directive at \
                 {}:{}\n  repeat: {repeat}",
                def.name,
                template.name(),
                def.file,
                def.line
            )),
            (Err(_), Some(_)) => Ok(Outcome::Passed),
            (Ok(outcome), None) => Ok(outcome),
            (Err(Problem(message)), None) if message.contains("\n  repeat: ") => Err(message),
            (Err(Problem(message)), None) => {
                Err(format!("{}: {message}{}\n  repeat: {repeat}", def.name, places(def, executor)))
            }
        }
    });
    let (operator, lacks) = (def.name.to_owned(), None);
    GeneratedTest { name, operator, template, executor: executor_name, dtype, skip, lacks, run }
}

/// What `sources` checks where there is no compiler.
pub(super) fn uncompiled_test(
    def: &'static OperatorDef,
    executor: &'static ExecutorDef,
    settings: &Arc<Settings>,
) -> GeneratedTest {
    let name = format!("{}::uncompiled", name_of(def.name, Template::Sources, Some(executor.name), None));
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        guarded(|| templates::sources::check_uncompiled(def, executor))
            .map_err(|problem| format!("{}: {problem}{}\n  repeat: {repeat}", def.name, places(def, Some(executor))))
    });
    GeneratedTest {
        name,
        operator: def.name.to_owned(),
        template: Template::Sources,
        executor: Some(executor.name),
        dtype: None,
        skip: None,
        lacks: None,
        run,
    }
}

/// Where what failed is declared: the operator, and its implementation by the executor, if there is one.
fn places(def: &OperatorDef, executor: Option<&ExecutorDef>) -> String {
    let declared = format!("\n  declared at {}:{}", def.file, def.line);
    let Some(own) = executor.and_then(|executor| find_implementation(def.name, executor.name)) else { return declared };
    let grad = if own.grad.is_some() { ", with a `grad` of its own" } else { "" };
    format!("{declared}\n  implemented for {} at {}:{}{grad}", own.by, own.file, own.line)
}

/// Turns a panic of a rule into a failure of its test.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Check<T>) -> Check<T> {
    Failure::caught("a rule", f).unwrap_or_else(|failure| Err(Problem::from(failure)))
}

fn run_template(context: &Context, directives: &[Directive], repeat: &str) -> Check<Outcome> {
    let Some(check) = templates::per_sample(context.template) else { return templates::whole(context) };
    let Some(dtype) = context.dtype else { return Err("a template of samples needs an element type".into()) };
    let all = subjects(context.def, dtype)?;
    if let (Some(sample), Some(last)) = (sample_variable()?, all.iter().map(|subject| subject.index).max())
        && sample > last
    {
        return Err(Problem(format!("FULGURITE_SAMPLE is {sample}, the last sample in {dtype} is {last}")));
    }
    // A directive that names a sample is about a run of it.
    let small_alone = match all.iter().any(|subject| !subject.is_large()) {
        true if selected_sample().is_none() && directives.iter().all(|d| d.sample.is_none()) => small_alone(context),
        _ => "",
    };
    let mut tested = 0;
    let mut nothing = None;
    for subject in all.iter() {
        if selected_sample().is_some_and(|sample| sample != subject.index) {
            continue;
        }
        if !small_alone.is_empty() && subject.is_large() {
            nothing = Some(small_alone.into());
            continue;
        }
        let own = |kind: DirectiveKind| directives.iter().find(|d| d.sample == Some(subject.index) && d.kind == kind);
        if own(DirectiveKind::Skip).is_some() {
            continue;
        }
        let looser = directives
            .iter()
            .filter(|directive| directive.sample == Some(subject.index))
            .filter_map(|directive| match directive.kind {
                DirectiveKind::Tolerance(tolerance) => Some(tolerance),
                _ => None,
            })
            .fold(Tolerance::NONE, Tolerance::and);
        let context = Context {
            tolerance: context.tolerance.and(looser),
            settings: context.settings.clone(),
            golden: context.golden.clone(),
            ..*context
        };
        let outcome = guarded(|| check(&context, subject));
        match (outcome, own(DirectiveKind::ExpectedFailure)) {
            (Ok(_), Some(directive)) => {
                return Err(Problem(format!(
                    "sample {} passes, although a directive expects it to fail ({}); remove the directive",
                    subject.index, directive.reason
                )));
            }
            (Err(_), Some(_)) | (Ok(Outcome::Passed), None) => tested += 1,
            (Ok(Outcome::Nothing(reason)), None) => nothing = Some(reason),
            (Err(problem), None) => return Err(failure(subject, &context, &problem, repeat)),
        }
    }
    match (tested, nothing) {
        (0, Some(reason)) => Ok(Outcome::Nothing(reason)),
        (0, None) => Ok(Outcome::Nothing("no sample was asked for".into())),
        _ => Ok(Outcome::Passed),
    }
}

/// Why large samples say nothing that small ones do not; nothing if they do.
fn small_alone(context: &Context) -> &'static str {
    let interprets = context.executor.is_some_and(|executor| executor.name == REFERENCE);
    match context.template {
        // Beside values: how the interpreter of prims reads and writes does not depend on extents.
        Template::Bounds
        | Template::Layout
        | Template::InPlace
        | Template::Determinism
        | Template::Effects
        | Template::Gradient
        | Template::SecondGradient
        | Template::CotangentLinearity
        | Template::Autocast
        | Template::RoundTrip
            if interprets =>
        {
            "the interpreter has one way for all extents"
        }
        _ => "",
    }
}

fn failure(subject: &Subject, context: &Context, problem: &Problem, repeat: &str) -> Problem {
    let def = subject.def;
    let executor = context.executor.map(|executor| format!(", executor {}", executor.name)).unwrap_or_default();
    Problem(format!(
        "{}({}), sample {}{executor}: {}{}\n  repeat: FULGURITE_SAMPLE={} {repeat}",
        def.name,
        subject.describe(),
        subject.index,
        problem.0,
        places(def, context.executor),
        subject.index,
    ))
}

pub(super) fn rewrite_test(rewrite: &'static RewriteDef, settings: &Arc<Settings>) -> GeneratedTest {
    let name = name_of(rewrite.name, Template::Rewrite, None, None);
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        guarded(|| templates::rewrite::check(rewrite)).map_err(|problem| {
            format!(
                "rewrite {}: {problem}\n  declared at {}:{}\n  repeat: {repeat}",
                rewrite.name, rewrite.file, rewrite.line
            )
        })
    });
    let operator = rewrite.name.to_owned();
    GeneratedTest {
        name,
        operator,
        template: Template::Rewrite,
        executor: None,
        dtype: None,
        skip: None,
        lacks: None,
        run,
    }
}

pub(super) fn program_test(
    seed: u64,
    executor: &'static ExecutorDef,
    template: Template,
    settings: &Arc<Settings>,
) -> GeneratedTest {
    let (prefix, check): (&str, fn(u64, &'static ExecutorDef) -> Check<Outcome>) = match template {
        Template::Autocast => ("programs::autocast", templates::mixed_programs::check),
        _ => (PROGRAMS, templates::programs::check),
    };
    let name = format!("{prefix}::{}::seed_{seed}", executor.name);
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        guarded(|| check(seed, executor))
            .map_err(|problem| format!("random program {seed}: {problem}\n  repeat: {repeat}"))
    });
    GeneratedTest {
        name,
        operator: PROGRAMS.into(),
        template,
        executor: Some(executor.name),
        dtype: None,
        skip: None,
        lacks: None,
        run,
    }
}

/// What holds of all random programs together.
pub(super) fn programs_test(settings: &Settings) -> GeneratedTest {
    let name = format!("{PROGRAMS}::registry");
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        guarded(templates::programs::check_all).map_err(|problem| format!("{problem}\n  repeat: {repeat}"))
    });
    let operator = PROGRAMS.to_owned();
    GeneratedTest {
        name,
        operator,
        template: Template::Programs,
        executor: None,
        dtype: None,
        skip: None,
        lacks: None,
        run,
    }
}
