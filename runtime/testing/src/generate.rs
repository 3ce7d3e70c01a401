//! The list of generated tests: operators x templates x executors x element types.

use std::iter;
use std::sync::Arc;

use super::directives::{Directive, Template};
use super::golden::Golden;
use super::subject::accepted_samples;
use super::templates;
use super::test::{GeneratedTest, PROGRAMS, Settings};
use crate::executor::{executors, find_executor, find_implementation, rewrites};
use crate::operator::{OperatorDef, RuleSet};
use crate::precision::Precision;
use crate::rules::TestRules;
use body::{operator_test, program_test, programs_test, rewrite_test, uncompiled_test};
use choice::{DTYPES, runners};
use fulgurite_ir::registry::{find_operator, operators};
use places::{Place, Tested};

mod body;
mod choice;
mod places;

pub(crate) use body::guarded;
pub(crate) use choice::{DTYPES as ELEMENT_TYPES, is_further_integer};
pub use choice::{absent_devices, sampled_dtypes};

/// The selected tests; an empty list selects all.
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
    /// A kind of device: every operator that its default executors run together, by each template that runs something.
    /// All templates see one element type, `consistency` sees each.
    pub device: Option<String>,
}

impl Filter {
    /// The tests of one operator.
    pub fn operator(name: &str) -> Filter {
        Filter { operators: vec![name.to_owned()], ..Filter::default() }
    }

    /// The tests of one kind of device.
    pub fn device(kind: &str) -> Filter {
        Filter { device: Some(kind.to_owned()), ..Filter::default() }
    }

    fn takes(&self, operator: &str, template: Template, executor: Option<&str>) -> bool {
        self.takes_package(operator, executor)
            && self.device.as_deref().is_none_or(|kind| {
                executor.is_some_and(|name| find_executor(name).is_ok_and(|executor| executor.device == kind))
            })
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

/// Every test that the linked declarations generate, sorted by operator, template, executor and element type.
pub fn generated_tests(filter: &Filter, settings: &Settings) -> Vec<GeneratedTest> {
    let settings = Arc::new(settings.clone());
    let golden = Arc::new(Golden::open(&settings.golden));
    let runners = runners(filter.device.as_deref());
    let mut tests = Vec::new();
    for def in operators() {
        if !filter.operators.is_empty() && !filter.operators.iter().any(|name| name == def.name) {
            continue;
        }
        let tested = Tested::new(def, &runners, &golden, filter.device.is_some());
        for template in Template::ALL {
            for (executor, dtype) in tested.places(template) {
                if filter.takes(def.name, template, executor.map(|executor| executor.name)) {
                    tests.extend(of_place(def, template, (executor, dtype), &settings, &golden));
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
        for executor in runners.iter().map(|runner| runner.first) {
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

/// The test of a template at one place. Of device sources, without a compiler the test that needs one is marked, and
/// another checks what needs none.
fn of_place(
    def: &'static OperatorDef,
    template: Template,
    (executor, dtype): Place,
    settings: &Arc<Settings>,
    golden: &Arc<Golden>,
) -> Vec<GeneratedTest> {
    let mut test = operator_test(def, template, executor, dtype, settings, golden);
    let sources = executor.filter(|_| template == Template::Sources);
    test.lacks = sources.and_then(templates::sources::lacks);
    let uncompiled = sources.filter(|_| test.lacks.is_some());
    iter::once(test).chain(uncompiled.map(|executor| uncompiled_test(def, executor, settings))).collect()
}

/// An executor's name with its precision.
fn with_precision(name: Option<&'static str>) -> Option<(&'static str, Precision)> {
    name.and_then(|name| find_executor(name).ok()).map(|executor| (executor.name, executor.precision))
}

/// The directives of linked operators that match no generated test or no sample, in words.
pub fn unmatched_directives(tests: &[GeneratedTest]) -> Vec<String> {
    let mut unmatched = Vec::new();
    let absent = absent_devices();
    let elsewhere =
        |name: &str| find_executor(name).is_ok_and(|executor| absent.iter().any(|(kind, _)| *kind == executor.device));
    for def in operators() {
        // What speaks of an executor that cannot run here is tried where it can.
        // So is what speaks of all implementations, where one of them is of such an executor.
        let others =
            executors().iter().any(|one| elsewhere(one.name) && find_implementation(def.name, one.name).is_some());
        let here = |directive: &&Directive| {
            let of_precision = |own| executors().iter().any(|found| found.precision == own && elsewhere(found.name));
            !directive.executor.is_some_and(elsewhere) && !directive.precision.is_some_and(of_precision)
        };
        let directives = TestRules::of(def).directives.iter().filter(here);
        let each = directives.flat_map(|directive| directive.templates.iter().map(move |of| (directive, *of)));
        for (directive, template) in each {
            let matching: Vec<&GeneratedTest> = tests
                .iter()
                .filter(|test| test.operator == def.name && test.template == template)
                .filter(|test| directive.matches(test.template, with_precision(test.executor), test.dtype))
                .collect();
            let sample = directive.sample.is_none_or(|sample| {
                DTYPES.iter().any(|dtype| accepted_samples(def, *dtype).iter().any(|(index, _)| *index == sample))
            });
            let of_others = others && template == Template::Checker && directive.executor.is_none();
            if (matching.is_empty() && !of_others) || !sample {
                unmatched.push(format!(
                    "{} ({}:{}): the directive on '{}'{}{}{} ({}) matches no generated test; correct or remove it",
                    def.name,
                    def.file,
                    def.line,
                    template.name(),
                    directive
                        .executor
                        .map(|name| format!(", executor {name}"))
                        .or_else(|| directive.precision.map(|own| format!(", precision {}", own.name())))
                        .unwrap_or_default(),
                    directive.dtype.map(|dtype| format!(", {dtype}")).unwrap_or_default(),
                    directive.sample.map(|sample| format!(", sample {sample}")).unwrap_or_default(),
                    directive.reason,
                ));
            }
        }
    }
    unmatched
}
