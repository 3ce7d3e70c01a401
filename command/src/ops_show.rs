//! `ops show`.

mod call;
mod implementation;
mod rewrite;

use fulgurite::arithmetic::Arithmetic;
use fulgurite::kernel::KernelRules;
use fulgurite::operator::RuleSet;
use fulgurite::strided::LayoutRules;
use fulgurite::testing::rules::TestRules;
use fulgurite::tracer::rules::TracingRules;
use fulgurite::transforms::autodiff::rules::GradientRules;
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use fulgurite::executor::{ImplementationDef, RewriteDef, executors, rewrites};
use fulgurite::operator::{Autocast, OperatorDef};
use fulgurite::testing::directives::{Directive, DirectiveKind, Template};
use fulgurite::testing::samples::{ErrorSamples, Samples};
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite::{DType, Target};
use serde::Serialize;

use super::description::kind_of;
use super::outcome::{Failed, Outcome};
use super::output::{say, say_json};
use super::subject;
use crate::cases::resolve_operator;

/// Arguments of `ops show`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fulgurite ops show prims::exp\n  fulgurite ops show nn.functional.gelu --json\n  \
                  fulgurite ops show merge_rope\n  fulgurite ops show softmax_by_llmc\n  \
                  fulgurite ops show softmax log_softmax"
)]
pub struct Arguments {
    /// The operator's name, or PyTorch's; or the name of a rewrite; or that of an implementation: OPERATOR_by_EXECUTOR,
    /// or its file without `.rs`. Several are shown one after the other.
    #[arg(required = true, value_name = "OPERATOR")]
    operators: Vec<String>,
    /// As JSON: a value for each name.
    #[arg(long)]
    json: bool,
}

/// What a name is that of.
enum Named {
    Operator(&'static OperatorDef),
    Rewrite(&'static RewriteDef),
    Implementation(&'static ImplementationDef),
}

/// What is declared of an operator, and what its samples say of it.
#[derive(Serialize)]
pub struct Description {
    pub name: &'static str,
    pub kind: &'static str,
    pub executor: Option<String>,
    pub torch: Option<&'static str>,
    pub signature: String,
    pub rust: String,
    /// The arguments that are enums in Rust, with their variants.
    pub enums: Vec<RustEnum>,
    pub docs: &'static str,
    pub rules: Vec<&'static str>,
    pub no_grad: Option<&'static str>,
    pub effects: Vec<String>,
    pub role: Option<String>,
    pub autocast: Option<&'static str>,
    pub preconditions: &'static [&'static str],
    pub dtypes: Vec<&'static str>,
    /// In the element type that has most of them.
    pub samples: usize,
    pub error_samples: usize,
    pub executors: Vec<Taking>,
    pub implementations: Vec<implementation::Row>,
    /// The rewrites that look for it or put it in.
    pub rewrites: Vec<rewrite::Row>,
    pub tests: Vec<String>,
    pub directives: Vec<DirectiveRow>,
    pub file: &'static str,
    pub line: u32,
}

/// An argument that is an enum in Rust.
#[derive(Serialize)]
pub struct RustEnum {
    pub argument: &'static str,
    /// `Reduction::{None, Mean, Sum}`
    pub variants: String,
}

/// How many samples an executor takes, of all element types together.
#[derive(Serialize)]
pub struct Taking {
    pub executor: &'static str,
    pub device: &'static str,
    pub taken: usize,
    pub of: usize,
    /// The first reason why not.
    pub refusal: Option<String>,
}

/// A directive for one template.
#[derive(Serialize)]
pub struct DirectiveRow {
    pub kind: &'static str,
    pub factor: Option<f64>,
    pub scaled: Option<f64>,
    pub template: &'static str,
    pub executor: Option<&'static str>,
    pub dtype: Option<&'static str>,
    pub sample: Option<usize>,
    pub reason: &'static str,
}

impl DirectiveRow {
    /// A row for each template.
    fn rows(directive: &Directive) -> impl Iterator<Item = DirectiveRow> {
        directive.templates.iter().map(|template| DirectiveRow::of(directive, *template))
    }

    fn of(directive: &Directive, template: Template) -> DirectiveRow {
        let (kind, tolerance) = match directive.kind {
            DirectiveKind::Skip => ("skip", None),
            DirectiveKind::ExpectedFailure => ("expected_failure", None),
            DirectiveKind::Tolerance(tolerance) => ("tolerance", Some(tolerance)),
        };
        DirectiveRow {
            kind,
            factor: tolerance.map(|tolerance| tolerance.factor).filter(|factor| *factor != 1.0),
            scaled: tolerance.map(|tolerance| tolerance.scaled).filter(|scaled| *scaled != 0.0),
            template: template.name(),
            executor: directive.executor,
            dtype: directive.dtype.map(DType::name),
            sample: directive.sample,
            reason: directive.reason,
        }
    }
}

/// Shows operators.
pub fn run(arguments: &Arguments) -> Outcome {
    // Nothing is shown where one of the names is none.
    let found = arguments.operators.iter().map(|name| named(name)).collect::<Result<Vec<Named>, Failed>>()?;
    for (i, found) in found.into_iter().enumerate() {
        if i > 0 && !arguments.json {
            say!("")?;
        }
        match found {
            Named::Rewrite(def) => rewrite::show(def, arguments.json)?,
            Named::Implementation(own) => implementation::show(own, arguments.json)?,
            Named::Operator(def) if arguments.json => say_json(&describe(def))?,
            Named::Operator(def) => say!("{}", in_words(&describe(def)))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<Named, Failed> {
    if let Some(def) = rewrites().into_iter().find(|def| def.name == name) {
        return Ok(Named::Rewrite(def));
    }
    match resolve_operator(name) {
        Ok(def) => Ok(Named::Operator(def)),
        Err(error) => implementation::named(name).map(Named::Implementation).ok_or_else(|| error.into()),
    }
}

/// Describes an operator.
pub fn describe(def: &'static OperatorDef) -> Description {
    let (kind, executor) = kind_of(def);
    let rules = [
        ("meta", TracingRules::of(def).meta.is_some()),
        ("decomposition", TracingRules::of(def).decomposition.is_some()),
        ("grad", GradientRules::of(def).grad.is_some()),
        ("scalar", Arithmetic::of(def).scalar.is_some()),
        ("reference", TestRules::of(def).reference.is_some()),
        ("cpu", KernelRules::of(def).cpu.is_some()),
        ("view", LayoutRules::of(def).view.is_some()),
        ("samples", TestRules::of(def).samples.is_some()),
        ("errors", TestRules::of(def).errors.is_some()),
    ];
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| subject::takes(def, *dtype)).collect();
    // Some samples are of one element type alone: a type that an operator takes besides may have few.
    let count = |dtype: &DType| Samples::of_operator(def, *dtype).len();
    let most = dtypes.iter().copied().rev().max_by_key(count).unwrap_or(DType::F32);
    Description {
        name: def.name,
        kind,
        executor,
        torch: def.torch,
        signature: def.signature(),
        rust: call::in_rust(def),
        enums: def
            .params
            .iter()
            .filter_map(|param| Some(RustEnum { argument: param.name, variants: (param.rust_enum)()? }))
            .collect(),
        docs: def.docs.trim(),
        rules: rules.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect(),
        no_grad: GradientRules::of(def).no_grad,
        effects: effects(def),
        autocast: def.autocast.map(Autocast::name),
        role: def.overload.map(|role| format!("{role:?}")),
        preconditions: TestRules::of(def).codes,
        dtypes: dtypes.iter().map(|dtype| dtype.name()).collect(),
        samples: count(&most),
        error_samples: ErrorSamples::of_operator(def, most).len(),
        executors: takings(def, &dtypes),
        implementations: implementation::of_operator(def.name),
        rewrites: rewrite::of_operator(def.name),
        tests: generated_tests(&Filter::operator(def.name), &Settings::default())
            .into_iter()
            .map(|test| test.name)
            .collect(),
        directives: TestRules::of(def).directives.iter().flat_map(DirectiveRow::rows).collect(),
        file: def.file,
        line: def.line,
    }
}

fn effects(def: &OperatorDef) -> Vec<String> {
    let mut effects = Vec::new();
    if def.effects.random {
        effects.push("random".to_owned());
    }
    if def.effects.collective {
        effects.push("collective".to_owned());
    }
    if def.effects.of_place() {
        effects.push("place".to_owned());
    }
    effects
}

fn takings(def: &'static OperatorDef, dtypes: &[DType]) -> Vec<Taking> {
    let samples: Vec<_> =
        dtypes.iter().flat_map(|dtype| subject::accepted(def, *dtype, &Target::cpu())).map(|(_, s, _)| s).collect();
    let mut list = executors();
    list.sort_by_key(|executor| (executor.priority.is_none(), executor.priority, executor.name));
    list.iter()
        .map(|executor| {
            let claims: Vec<_> =
                samples.iter().map(|s| subject::claim(def, executor, &subject::metas_for(executor, s))).collect();
            Taking {
                executor: executor.name,
                device: executor.device,
                taken: claims.iter().filter(|claim| claim.is_ok()).count(),
                of: claims.len(),
                refusal: claims.into_iter().find_map(Result::err),
            }
        })
        .collect()
}

/// The executors that take it, one a line; then those that take nothing of it, by their reason.
fn executors_in_words(of: &Description) -> Vec<String> {
    let mut lines = Vec::new();
    let mut idle: Vec<(&str, Vec<&str>)> = Vec::new();
    for taking in &of.executors {
        match &taking.refusal {
            Some(reason) if taking.taken == 0 => match idle.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(taking.executor),
                None => idle.push((reason, vec![taking.executor])),
            },
            refusal => {
                let refusal = refusal.as_ref().map(|reason| format!("; refuses: {reason}")).unwrap_or_default();
                lines.push(format!("{} takes {} of {}{refusal}", taking.executor, taking.taken, taking.of));
            }
        }
    }
    if of.rules.contains(&"decomposition") {
        lines.push("otherwise its decomposition is run".to_owned());
    }
    lines.extend(idle.into_iter().map(|(reason, names)| format!("none by {}: {reason}", names.join(", "))));
    lines
}

/// How many tests each template generates; the names are in the JSON.
fn tests_in_words(of: &Description) -> String {
    let template = |name: &String| name[of.name.len()..].split("::").nth(1).unwrap_or("").to_owned();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for template in of.tests.iter().map(template) {
        match counts.last_mut() {
            Some((last, count)) if *last == template => *count += 1,
            _ => counts.push((template, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(template, count)| format!("{template} {count}")).collect();
    format!("{}: {}", of.tests.len(), counts.join(", "))
}

fn in_words(of: &Description) -> String {
    let mut text = format!("{}\n", of.signature);
    for line in of.docs.lines() {
        text += &format!("    {}\n", line.trim());
    }
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name:14} {value}");
        }
    };
    row("kind", of.executor.as_ref().map_or(of.kind.to_owned(), |executor| format!("{} of {executor}", of.kind)));
    row("Rust", of.rust.clone());
    for RustEnum { argument, variants } in &of.enums {
        row("", format!("{argument}: {variants}"));
    }
    row("torch", of.torch.unwrap_or("").to_owned());
    row("rules", of.rules.join(", "));
    row("no gradient", of.no_grad.unwrap_or("").to_owned());
    row("effects", of.effects.join(", "));
    row("role", of.role.clone().unwrap_or_default());
    row("autocast", of.autocast.unwrap_or("").to_owned());
    row("preconditions", of.preconditions.join(", "));
    row("dtypes", of.dtypes.join(", "));
    row("samples", format!("{}, and {} that must fail", of.samples, of.error_samples));
    for (i, line) in executors_in_words(of).into_iter().enumerate() {
        row(if i == 0 { "executors" } else { "" }, line);
    }
    for (i, own) in of.implementations.iter().enumerate() {
        let place = format!("{}:{}", own.file, own.line);
        row(
            if i == 0 { "implemented" } else { "" },
            format!("by {} ({}) at {place}", own.executor, own.rules.join(", ")),
        );
    }
    for (i, own) in of.rewrites.iter().enumerate() {
        row(if i == 0 { "rewrites" } else { "" }, format!("{}: {}, at {}:{}", own.name, own.side, own.file, own.line));
    }
    let golden =
        if of.torch.is_some() { "; and golden, against PyTorch's vectors, where a suite has them" } else { "" };
    row("tests", tests_in_words(of) + golden);
    for (i, directive) in of.directives.iter().enumerate() {
        let of = [
            directive.executor.map(str::to_owned),
            directive.dtype.map(str::to_owned),
            directive.sample.map(|sample| format!("sample {sample}")),
            directive.factor.map(|factor| format!("times {factor}")),
            directive.scaled.map(|scaled| format!("plus {scaled} of the scale")),
        ];
        let of: Vec<String> = of.into_iter().flatten().collect();
        let of = if of.is_empty() { String::new() } else { format!(" ({})", of.join(", ")) };
        let name = if i == 0 { "directives" } else { "" };
        row(name, format!("{} {}{of}: {}", directive.kind, directive.template, directive.reason));
    }
    row("declared at", format!("{}:{}", of.file, of.line));
    text.truncate(text.trim_end().len());
    text
}
