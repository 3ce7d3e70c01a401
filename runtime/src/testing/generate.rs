//! The list of generated tests: operators x templates x executors x element types.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use crate::testing::rules::TestRules;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fulgurite_kernels::DType;

use super::directives::{Directive, DirectiveKind, Template, Tolerance};
use super::golden::Golden;
use super::problem::{Check, Problem};
use super::subject::{List, REFERENCE, Subject, accepted_samples, sample_metas, subjects};
use super::templates;
use crate::argument::Arg;
use crate::error::Failure;
use crate::executor::{ExecutorDef, RewriteDef, VIEW, executors, find_executor, find_implementation, rewrites};
use crate::meta::{Device, Target, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind};
use crate::registry::{find_operator, operators};

/// Where a suite keeps its files, and how its tests are repeated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder of `<operator>.snap` files.
    pub snapshots: PathBuf,
    /// The folder of PyTorch's vectors.
    pub golden: PathBuf,
    /// Folders whose declarations must be linked.
    pub sources: Vec<PathBuf>,
    /// The command that a failure prints before the test's name.
    pub command: String,
    /// Tests of the first executor have the directives of the second: whether tolerances that one is allowed catch
    /// what another does wrong.
    pub directives_of: Option<[&'static str; 2]>,
}

impl Default for Settings {
    /// `snapshots/`, `golden/` and `src/` of the package under test, whose folder cargo names when it runs tests.
    fn default() -> Settings {
        let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let target = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .map(|stem| stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned()))
            .map(|name| format!(" --test {name}"))
            .unwrap_or_default();
        Settings {
            snapshots: root.join("snapshots"),
            golden: root.join("golden"),
            sources: vec![root.join("src")],
            command: format!("cargo test{package}{target} -- --exact"),
            directives_of: None,
        }
    }
}

/// What a generated test found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The declaration holds.
    Passed,
    /// There was nothing to test, because ...
    Nothing(String),
}

type Body = Box<dyn Fn() -> Result<Outcome, String> + Send + Sync>;

/// One generated test.
pub struct GeneratedTest {
    /// Unique: `rms_norm::consistency::cpu::f32`.
    pub name: String,
    /// The operator (or the rewrite, for its own template).
    pub operator: String,
    /// What is tested.
    pub template: Template,
    /// Who runs the operator, where that matters.
    pub executor: Option<&'static str>,
    /// The element type, where that matters.
    pub dtype: Option<DType>,
    /// Why it is not run, if a directive says so.
    pub skip: Option<String>,
    /// The test.
    pub run: Body,
}

impl std::fmt::Debug for GeneratedTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Which tests are asked for; an empty list lets everything through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Names of operators.
    pub operators: Vec<String>,
    /// Templates.
    pub templates: Vec<Template>,
    /// Names of executors; tests that no executor matters to are kept.
    pub executors: Vec<String>,
    /// The package that declares the operator or rewrite, the executor, or the implementation of the one by the other.
    pub package: Option<String>,
}

impl Filter {
    /// The tests of one operator.
    pub fn operator(name: &str) -> Filter {
        Filter { operators: vec![name.to_owned()], ..Filter::default() }
    }

    fn takes(&self, operator: &str, template: Template, executor: Option<&str>) -> bool {
        self.takes_package(operator, executor)
            && (self.operators.is_empty() || self.operators.iter().any(|name| name == operator))
            && (self.templates.is_empty() || self.templates.contains(&template))
            && (self.executors.is_empty() || executor.is_none_or(|own| self.executors.iter().any(|name| name == own)))
    }

    fn takes_package(&self, operator: &str, executor: Option<&str>) -> bool {
        let Some(package) = &self.package else { return true };
        // An operator of another package that the executor takes by itself.
        let of_executor = || {
            let Some(executor) = executor.and_then(|name| find_executor(name).ok()) else { return false };
            match find_implementation(operator, executor.name) {
                Some(own) => own.package == package || executor.package == package,
                None => executor.package == package && (executor.claims.is_some() || operator == PROGRAMS),
            }
        };
        find_operator(operator).is_ok_and(|def| def.package == package)
            || rewrites().iter().any(|rewrite| rewrite.name == operator && rewrite.package == package)
            || of_executor()
    }
}

/// What random programs are called in the place of an operator.
const PROGRAMS: &str = "programs";

/// What a template gets to know.
pub(crate) struct Context {
    pub def: &'static OperatorDef,
    pub template: Template,
    pub executor: Option<&'static ExecutorDef>,
    pub dtype: Option<DType>,
    /// What tolerance directives allow.
    pub tolerance: Tolerance,
    pub settings: Arc<Settings>,
    pub golden: Arc<Golden>,
}

impl Context {
    /// Who runs the operator.
    pub fn list(&self) -> Check<List> {
        match self.executor {
            Some(executor) => Ok(List::of(executor)),
            None => Ok(List::plain()?),
        }
    }
}

/// The order in which element types are tried; where samples do not depend on it, the first that is accepted speaks for all.
const DTYPES: [DType; 8] =
    [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool];

/// The element types that samples of `def` are made and accepted for.
fn dtypes_of(def: &'static OperatorDef) -> Vec<(DType, Vec<Vec<Arg<TensorMeta>>>)> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for dtype in DTYPES {
        let samples = accepted_samples(def, dtype);
        if samples.is_empty() || seen.contains(&samples) {
            continue;
        }
        found.push((dtype, samples.iter().map(|(_, sample)| sample_metas(sample, Device::CPU)).collect()));
        seen.push(samples);
    }
    found
}

/// The element types that samples of `def` are made and accepted for; one, where samples do not depend on it.
pub fn sampled_dtypes(def: &'static OperatorDef) -> Vec<DType> {
    dtypes_of(def).into_iter().map(|(dtype, _)| dtype).collect()
}

/// Whether `executor` takes the operator by itself for any of these arguments.
fn may_claim(def: &'static OperatorDef, executor: &ExecutorDef, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    if let OperatorKind::Symbol(owner) = def.kind {
        return owner == executor.name && KernelRules::of(def).runs_on(executor.device);
    }
    find_implementation(def.name, executor.name).is_some()
        || executor.claims.is_some_and(|claims| metas.iter().any(|arguments| claims(def, arguments).is_ok()))
}

/// Whether tests of `def` are made for `executor`: where it takes the operator or parts of its decomposition.
fn tested_with(def: &'static OperatorDef, executor: &ExecutorDef, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    let opened = TracingRules::of(def).decomposition.is_some()
        && executor.priority.is_some()
        && !matches!(def.kind, OperatorKind::Symbol(_));
    opened || may_claim(def, executor, metas)
}

/// The executors that can run on this machine.
fn runnable() -> Vec<&'static ExecutorDef> {
    let absent = absent_devices();
    let here = |executor: &&ExecutorDef| absent.iter().all(|(kind, _)| *kind != executor.device);
    executors().into_iter().filter(|executor| executor.name != VIEW).filter(here).collect()
}

/// Kinds of devices that executors run on and this machine lacks, each with the reason.
pub fn absent_devices() -> Vec<(&'static str, String)> {
    static ABSENT: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();
    let find = || {
        let mut kinds: Vec<&'static str> = executors().iter().map(|executor| executor.device).collect();
        kinds.retain(|kind| !["any", "cpu"].contains(kind));
        kinds.sort_unstable();
        kinds.dedup();
        let opened = kinds.into_iter().map(|kind| (kind, Target::of(Device::new(kind, 0))));
        opened.filter_map(|(kind, target)| Some((kind, target.err()?.to_string()))).collect()
    };
    ABSENT.get_or_init(find).clone()
}

/// Which element types a template needs to see.
fn wanted(template: Template, dtype: DType, first: DType) -> bool {
    match template {
        Template::Meta
        | Template::Consistency
        | Template::Bounds
        | Template::Checker
        | Template::Decomposition
        | Template::Bits => true,
        // One of each way to do arithmetic.
        Template::Layout | Template::Determinism | Template::Effects | Template::InPlace => {
            matches!(dtype, DType::F32 | DType::BF16 | DType::I64 | DType::Bool) || dtype == first
        }
        Template::Gradient => dtype.is_floating(),
        Template::CotangentLinearity => dtype == DType::F64,
        Template::RoundTrip => dtype == first,
        _ => false,
    }
}

/// What autocast takes to other types, one that it must leave alone of each kind, and one that is low already.
fn wanted_under_autocast(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::I64 | DType::Bool)
}

/// Every test that the linked declarations generate, sorted by operator, template, executor and element type.
pub fn generated_tests(filter: &Filter, settings: &Settings) -> Vec<GeneratedTest> {
    let settings = Arc::new(settings.clone());
    let golden = Arc::new(Golden::open(&settings.golden));
    let mut tests = Vec::new();
    for def in operators() {
        if !filter.operators.is_empty() && !filter.operators.iter().any(|name| name == def.name) {
            continue;
        }
        let dtypes = dtypes_of(def);
        let first = dtypes.first().map(|(dtype, _)| *dtype);
        for template in Template::ALL {
            let mut add = |executor: Option<&'static ExecutorDef>, dtype: Option<DType>| {
                if filter.takes(def.name, template, executor.map(|executor| executor.name)) {
                    tests.push(operator_test(def, template, executor, dtype, &settings, &golden));
                }
            };
            match template {
                Template::Samples => add(None, None),
                Template::Sources => {
                    for executor in
                        executors().into_iter().filter(|executor| templates::sources::applies(def, executor))
                    {
                        add(Some(executor), None);
                    }
                }
                Template::Errors => {
                    if first.is_some() || TestRules::of(def).errors.is_some() {
                        add(None, None);
                    }
                }
                Template::Snapshot => {
                    if first.is_some() {
                        add(None, None);
                    }
                }
                Template::Golden => {
                    for executor in runnable() {
                        for (dtype, metas) in &dtypes {
                            if tested_with(def, executor, metas) && !golden.cases(def.name, *dtype).is_empty() {
                                add(Some(executor), Some(*dtype));
                            }
                        }
                    }
                }
                Template::Decomposition => {
                    for (dtype, _) in &dtypes {
                        if TracingRules::of(def).decomposition.is_some() {
                            add(None, Some(*dtype));
                        }
                    }
                }
                Template::Types => {
                    // One in which operators compute, and one that is promoted to it.
                    for (dtype, _) in &dtypes {
                        if Some(*dtype) == first || *dtype == DType::BF16 {
                            add(None, Some(*dtype));
                        }
                    }
                }
                Template::Autocast => {
                    // Kernel symbols are chosen after autocast.
                    let called = !matches!(def.kind, OperatorKind::Symbol(_));
                    let plain = find_executor(REFERENCE).ok().filter(|_| called);
                    for (dtype, _) in &dtypes {
                        if let (Some(plain), true) = (plain, wanted_under_autocast(*dtype)) {
                            add(Some(plain), Some(*dtype));
                        }
                    }
                }
                Template::SecondGradient => {
                    let f64s = dtypes.iter().find(|(dtype, _)| *dtype == DType::F64);
                    if GradientRules::of(def).no_grad.is_none() && f64s.is_some_and(|(_, metas)| floating_input(metas))
                    {
                        add(None, Some(DType::F64));
                    }
                }
                Template::Rewrite | Template::Programs => {}
                _ => {
                    for executor in runnable() {
                        for (dtype, metas) in &dtypes {
                            let gradients = matches!(template, Template::Gradient | Template::CotangentLinearity);
                            let identity = template == Template::Consistency
                                && executor.name == REFERENCE
                                && TracingRules::of(def).decomposition.is_none();
                            let claims = template != Template::Checker || may_claim(def, executor, metas);
                            if first.is_some_and(|first| wanted(template, *dtype, first))
                                && tested_with(def, executor, metas)
                                && claims
                                && !identity
                                && !(matches!(template, Template::Checker | Template::Bits)
                                    && executor.name == REFERENCE)
                                && !(gradients && (GradientRules::of(def).no_grad.is_some() || !floating_input(metas)))
                            {
                                add(Some(executor), Some(*dtype));
                            }
                        }
                    }
                }
            }
        }
    }
    for rewrite in rewrites() {
        if filter.takes(rewrite.name, Template::Rewrite, None) {
            tests.push(rewrite_test(rewrite, &settings));
        }
    }
    for seed in 0..templates::programs::SEEDS {
        for executor in runnable() {
            for template in [Template::Programs, Template::Autocast] {
                if filter.takes(PROGRAMS, template, Some(executor.name)) && executor.priority.is_some() {
                    tests.push(program_test(seed, executor, template, &settings));
                }
            }
        }
    }
    if filter.package.is_none() && filter.takes(PROGRAMS, Template::Programs, None) {
        tests.push(programs_test(&settings));
    }
    tests
}

fn floating_input(metas: &[Vec<Arg<TensorMeta>>]) -> bool {
    metas.iter().flatten().flat_map(Arg::tensors).any(|meta| meta.dtype().is_floating())
}

/// The directives of linked operators that speak of no generated test or of no sample, in words.
pub fn unmatched_directives(tests: &[GeneratedTest]) -> Vec<String> {
    let mut unmatched = Vec::new();
    let absent = absent_devices();
    let elsewhere =
        |name: &str| find_executor(name).is_ok_and(|executor| absent.iter().any(|(kind, _)| *kind == executor.device));
    for def in operators() {
        // What speaks of an executor that cannot run here is tried where it can.
        for directive in
            TestRules::of(def).directives.iter().filter(|directive| !directive.executor.is_some_and(elsewhere))
        {
            let matching: Vec<&GeneratedTest> = tests
                .iter()
                .filter(|test| test.operator == def.name)
                .filter(|test| directive.matches(test.template, test.executor, test.dtype))
                .collect();
            let sample = directive.sample.is_none_or(|sample| {
                DTYPES.iter().any(|dtype| accepted_samples(def, *dtype).iter().any(|(index, _)| *index == sample))
            });
            if matching.is_empty() || !sample {
                unmatched.push(format!(
                    "{} ({}:{}): the directive on '{}'{}{}{} ({}) speaks of no generated test; correct or remove it",
                    def.name,
                    def.file,
                    def.line,
                    directive.template.name(),
                    directive.executor.map(|name| format!(", executor {name}")).unwrap_or_default(),
                    directive.dtype.map(|dtype| format!(", {dtype}")).unwrap_or_default(),
                    directive.sample.map(|sample| format!(", sample {sample}")).unwrap_or_default(),
                    directive.reason,
                ));
            }
        }
    }
    unmatched
}

fn name_of(operator: &str, template: Template, executor: Option<&str>, dtype: Option<DType>) -> String {
    let mut name = format!("{operator}::{}", template.name());
    for part in executor.into_iter().chain(dtype.map(DType::name)) {
        name = format!("{name}::{part}");
    }
    name
}

fn operator_test(
    def: &'static OperatorDef,
    template: Template,
    executor: Option<&'static ExecutorDef>,
    dtype: Option<DType>,
    settings: &Arc<Settings>,
    golden: &Arc<Golden>,
) -> GeneratedTest {
    let executor_name = executor.map(|executor| executor.name);
    let name = name_of(def.name, template, executor_name, dtype);
    let meant = match settings.directives_of {
        Some([own, other]) if executor_name == Some(own) => Some(other),
        _ => executor_name,
    };
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
        .fold(Tolerance { dtype, ..Tolerance::NONE }, Tolerance::and);
    let context =
        Context { def, template, executor, dtype, tolerance, settings: settings.clone(), golden: golden.clone() };
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        let outcome = guarded(|| run_template(&context, &directives, &repeat));
        match (outcome, must_fail) {
            (Ok(_), Some(reason)) => Err(format!(
                "{}: {} passes, although a directive expects it to fail ({reason}); remove the directive at {}:{}\n  repeat: {repeat}",
                def.name,
                template.name(),
                def.file,
                def.line
            )),
            (Err(_), Some(_)) => Ok(Outcome::Passed),
            (Ok(outcome), None) => Ok(outcome),
            (Err(Problem(message)), None) if message.contains("\n  repeat: ") => Err(message),
            (Err(Problem(message)), None) => Err(format!("{}: {message}\n  repeat: {repeat}", def.name)),
        }
    });
    GeneratedTest { name, operator: def.name.to_owned(), template, executor: executor_name, dtype, skip, run }
}

/// Turns a panic of a rule into a failure of its test.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Check<T>) -> Check<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Problem::from(Failure::panicked("a rule", &*panic))))
}

/// The sample that `FULGURITE_SAMPLE` asks for.
pub(crate) fn selected_sample() -> Option<usize> {
    sample_variable().ok().flatten()
}

fn sample_variable() -> Check<Option<usize>> {
    match std::env::var("FULGURITE_SAMPLE") {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Problem(format!("FULGURITE_SAMPLE is '{text}', expected the number of a sample, from 0"))),
        },
    }
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
    let mut tested = 0;
    let mut nothing = None;
    for subject in all.iter() {
        if selected_sample().is_some_and(|sample| sample != subject.index) {
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

fn failure(subject: &Subject, context: &Context, problem: &Problem, repeat: &str) -> Problem {
    let def = subject.def;
    let executor = context.executor.map(|executor| format!(", executor {}", executor.name)).unwrap_or_default();
    Problem(format!(
        "{}({}), sample {}{executor}: {}\n  declared at {}:{}\n  repeat: FULGURITE_SAMPLE={} {repeat}",
        def.name,
        subject.describe(),
        subject.index,
        problem.0,
        def.file,
        def.line,
        subject.index,
    ))
}

fn rewrite_test(rewrite: &'static RewriteDef, settings: &Arc<Settings>) -> GeneratedTest {
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
    GeneratedTest { name, operator, template: Template::Rewrite, executor: None, dtype: None, skip: None, run }
}

fn program_test(
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
        run,
    }
}

/// What holds of all random programs together.
fn programs_test(settings: &Settings) -> GeneratedTest {
    let name = format!("{PROGRAMS}::registry");
    let repeat = format!("{} {name}", settings.command);
    let run: Body = Box::new(move || {
        guarded(templates::programs::check_all).map_err(|problem| format!("{problem}\n  repeat: {repeat}"))
    });
    let operator = PROGRAMS.to_owned();
    GeneratedTest { name, operator, template: Template::Programs, executor: None, dtype: None, skip: None, run }
}
