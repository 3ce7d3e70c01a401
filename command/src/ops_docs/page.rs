//! The page of an operator.

use std::fmt::Write;

use fulgurite::argument::Arg;
use fulgurite::compile::{Options, gradients_stage};
use fulgurite::operator::{OperatorDef, RuleSet};
use fulgurite::testing::rules::TestRules;
use fulgurite::testing::samples::{ErrorSamples, Sample, SampleTensor, Samples};
use fulgurite::trace::Trace;
use fulgurite::trace::print::{PrintOptions, print};
use fulgurite::{DType, Target};
use fulgurite_plots::{escape_text, plain};

use super::super::ops_show::{Description, describe};
use super::super::subject;
use super::differences::Differences;
use super::frame::{Frame, frame, link, table};
use super::precision::{MEASURED, Measured, measure};
use super::{picture, prose};
use crate::cases::of_case;

/// Samples, error samples and tests of a page at most.
const MOST_ROWS: usize = 12;
/// Lines of a trace at most: what is longer is a link to the command.
const MOST_LINES: usize = 400;

/// The samples of each element type that the operator accepts.
type Accepted = Vec<(DType, Vec<(usize, Sample, Trace)>)>;

/// The page of `def` as HTML.
pub fn page(def: &'static OperatorDef, differences: &Differences) -> String {
    let of = describe(def);
    let all = DType::ALL.into_iter().map(|dtype| (dtype, subject::accepted(def, dtype, &Target::cpu())));
    let all: Accepted = all.filter(|(_, samples)| !samples.is_empty()).collect();
    let mut body = String::new();
    let _ = write!(body, "<h1>{}</h1>\n{}", escape_text(def.name), prose::block(&of.signature));
    body += &prose::html(of.docs);
    body += &picture::figure(def).unwrap_or_default();
    body += &facts(&of);
    section(&mut body, "Parameters", &parameters(def, &of));
    section(&mut body, "Executors", &executors(&of));
    section(&mut body, "Precision", &precision(def, &of, &all));
    section(&mut body, "Differences from PyTorch", &compared(def, differences));
    section(&mut body, "Samples", &samples(def, &all));
    section(&mut body, "Refused", &refused(def));
    section(&mut body, "Traces", &traces(def, &all, &of));
    let title = format!("{} - operators of Fulgurite", def.name);
    frame(&Frame { title: &title, up: "../", body: &body })
}

fn section(body: &mut String, title: &str, inner: &str) {
    if !inner.is_empty() {
        let _ = write!(body, "<section><h2>{title}</h2>\n{inner}</section>\n");
    }
}

/// What is known of the operator in a word each.
fn facts(of: &Description) -> String {
    let code = |text: &str| format!("<code>{}</code>", escape_text(text));
    let kind = match &of.executor {
        Some(executor) => format!("{} of {executor}", of.kind),
        None => of.kind.to_owned(),
    };
    let gradient = match (of.no_grad, of.rules.contains(&"grad")) {
        (Some(reason), _) => format!("none: {reason}"),
        (None, true) => "declared".to_owned(),
        (None, false) => "derived from the decomposition".to_owned(),
    };
    let enums: Vec<String> = of.enums.iter().map(|of| format!("{}: {}", of.argument, code(&of.variants))).collect();
    let rows = [
        ("Kind", escape_text(&kind)),
        ("In Rust", code(&of.rust)),
        ("Enums", enums.join("; ")),
        ("PyTorch", of.torch.map(|name| code(&format!("torch.{name}"))).unwrap_or_default()),
        ("Element types", escape_text(&of.dtypes.join(", "))),
        ("Gradient", prose::inline(&gradient)),
        ("Effects", escape_text(&of.effects.join(", "))),
        ("Autocast", escape_text(of.autocast.unwrap_or_default())),
        ("Rules", escape_text(&of.rules.join(", "))),
        ("Rewrites", {
            let rows = of.rewrites.iter().map(|row| format!("{} {}", code(row.name), escape_text(row.side)));
            rows.collect::<Vec<_>>().join("; ")
        }),
        ("Declared at", code(&format!("{}:{}", of.file, of.line))),
    ];
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    let rows: String = rows.map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    format!("<dl>\n{rows}</dl>\n")
}

fn parameters(def: &OperatorDef, of: &Description) -> String {
    let rows = def.params.iter().map(|param| {
        let default = param.default.map_or_else(
            || if param.kind.is_optional() { "none".to_owned() } else { String::new() },
            |default| default().to_string(),
        );
        let variants = of.enums.iter().find(|own| own.argument == param.name).map(|own| own.variants.as_str());
        [param.name.to_owned(), (param.type_name)(), default, variants.unwrap_or_default().to_owned()]
            .map(|text| if text.is_empty() { text } else { format!("<code>{}</code>", escape_text(&text)) })
            .to_vec()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    table("Parameters", &["name", "type", "default", "in Rust"], &rows)
}

/// The executors that take a sample, then why others take none, by their reasons.
fn executors(of: &Description) -> String {
    let row = |name: &str, device: &str, taken: String, refusal: &str| {
        vec![escape_text(name), escape_text(device), taken, prose::inline(&plain(refusal))]
    };
    let taking = of.executors.iter().filter(|taking| taking.taken > 0);
    let mut rows: Vec<Vec<String>> = taking
        .map(|own| {
            let taken = format!("{} of {} samples", own.taken, own.of);
            row(own.executor, own.device, taken, own.refusal.as_deref().unwrap_or_default())
        })
        .collect();
    if of.rules.contains(&"decomposition") {
        rows.push(row("all others", "any", "its decomposition".into(), ""));
    }
    let mut idle: Vec<(&str, Vec<&str>)> = Vec::new();
    for own in of.executors.iter().filter(|own| own.taken == 0) {
        let reason = own.refusal.as_deref().unwrap_or_default();
        match idle.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(own.executor),
            None => idle.push((reason, vec![own.executor])),
        }
    }
    let idle: String = idle
        .iter()
        .map(|(reason, names)| format!("<li>{}: {}</li>", escape_text(&names.join(", ")), escape_text(&plain(reason))))
        .collect();
    let idle = if idle.is_empty() {
        idle
    } else {
        format!("<details><summary>Executors that take none of them by themselves</summary><ul>{idle}</ul></details>\n")
    };
    table("Executors", &["executor", "device", "takes", "refuses"], &rows) + &idle
}

/// What is measured on this host, and what the tests allow.
fn precision(def: &'static OperatorDef, of: &Description, all: &Accepted) -> String {
    let measured = MEASURED.into_iter().filter_map(|dtype| {
        let (_, samples) = all.iter().find(|(own, _)| *own == dtype)?;
        measure(def, dtype, samples)
    });
    let rows: Vec<Vec<String>> = measured
        .map(|Measured { dtype, samples, worst }| {
            vec![dtype.name().to_owned(), samples.to_string(), format!("{worst:.2}")]
        })
        .collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text += "<p>Measured on the host when this page was written, beside the f64 reference: the largest error of the first \
                 samples, in units in the last place of the largest element of the result.</p>\n";
        text += &table("Measured precision", &["element type", "samples", "largest error"], &rows);
    }
    let looser: Vec<String> = of
        .directives
        .iter()
        .filter(|row| row.kind == "tolerance")
        .map(|row| {
            let where_ = [row.executor, row.dtype].into_iter().flatten().collect::<Vec<_>>().join(", ");
            let much = [
                row.factor.map(|factor| format!("{factor} times the usual tolerance")),
                row.scaled.map(|scaled| format!("{scaled} of the scale in addition")),
            ];
            let much = much.into_iter().flatten().collect::<Vec<_>>().join(" and ");
            let of = if where_.is_empty() { String::new() } else { format!(" ({where_})") };
            format!("<li>{}{}: {much}: {}</li>", row.template, escape_text(&of), prose::inline(row.reason))
        })
        .collect();
    if !looser.is_empty() {
        let _ = writeln!(text, "<p>The tests allow more than usual:</p><ul>{}</ul>", looser.concat());
    }
    text
}

fn compared(def: &OperatorDef, differences: &Differences) -> String {
    let rows: Vec<Vec<String>> =
        differences.of(def).into_iter().map(|of| vec![prose::inline(&of.because), escape_text(&of.cases)]).collect();
    if rows.is_empty() { String::new() } else { table("Differences from PyTorch", &["what, and why", "cases"], &rows) }
}

/// A call as a text: tensors by their types, and what is not at its default.
fn call(def: &OperatorDef, arguments: &[Arg<SampleTensor>]) -> String {
    let tensor = |tensor: &SampleTensor| {
        let extents: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
        format!("{}[{}]", tensor.dtype(), extents.join(", "))
    };
    let mut words = Vec::new();
    for (param, argument) in def.params.iter().zip(arguments) {
        let text = match argument {
            Arg::Tensor(own) | Arg::Optional(Some(own)) => tensor(own),
            Arg::List(own) => format!("[{}]", own.iter().map(tensor).collect::<Vec<_>>().join(", ")),
            Arg::Attribute(value)
                if param.default.is_some_and(|default| default().to_string() == value.to_string()) =>
            {
                continue;
            }
            Arg::Attribute(value) => value.to_string(),
            Arg::Optional(None) => continue,
        };
        words.push(format!("{}={text}", param.name));
    }
    format!("{}({})", def.short_name(), words.join(", "))
}

fn samples(def: &'static OperatorDef, all: &Accepted) -> String {
    let mut shown: Vec<String> = Vec::new();
    let f32_first = all
        .iter()
        .filter(|(dtype, _)| *dtype == DType::F32)
        .chain(all.iter().filter(|(dtype, _)| *dtype != DType::F32));
    let mut count = 0;
    for (_, samples) in f32_first {
        count += samples.len();
        for (_, sample, _) in samples {
            let text = call(def, &sample.arguments);
            if shown.len() < MOST_ROWS && !shown.contains(&text) {
                shown.push(text);
            }
        }
    }
    if shown.is_empty() {
        return String::new();
    }
    let items: String =
        shown.iter().map(|text| format!("<li><code>{}</code></li>", escape_text(&plain(text)))).collect();
    format!("<p>{count} calls in all element types are tested, among them:</p>\n<ul>{items}</ul>\n")
}

/// The calls that must fail, with what they are told.
fn refused(def: &'static OperatorDef) -> String {
    let count = |dtype: &DType| Samples::of_operator(def, *dtype).len();
    let dtype = DType::ALL.into_iter().rev().max_by_key(count).unwrap_or(DType::F32);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for sample in ErrorSamples::of_operator(def, dtype).iter().take(MOST_ROWS) {
        let message = match subject::trace_sample(def, &sample.arguments, &Target::cpu()) {
            Ok(_) => sample.message.to_owned(),
            Err(error) => of_case(error).message,
        };
        let message = message.lines().next().unwrap_or_default().to_owned();
        rows.push(row(def, sample.code, &sample.arguments, &message));
    }
    for sample in ErrorSamples::of_data(def, dtype).iter().take(MOST_ROWS) {
        rows.push(row(def, &format!("{}, when it runs", sample.code), &sample.arguments, sample.message));
    }
    let others = TestRules::of(def).codes;
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("<p>Preconditions: {}.</p>\n", escape_text(&others.join(", ")))
    };
    if rows.is_empty() { others } else { others + &table("Refused calls", &["code", "call", "message"], &rows) }
}

fn row(def: &OperatorDef, code: &str, arguments: &[Arg<SampleTensor>], message: &str) -> Vec<String> {
    let code_of = |text: &str| format!("<code>{}</code>", escape_text(&plain(text)));
    vec![code_of(code), code_of(&call(def, arguments)), escape_text(&plain(message))]
}

/// The first sample as acquired, and with its gradient.
fn traces(def: &'static OperatorDef, all: &Accepted, of: &Description) -> String {
    let first = all.iter().find(|(dtype, _)| *dtype == DType::F32).or(all.last());
    let Some((_, sample, trace)) = first.and_then(|(_, samples)| samples.first()) else { return String::new() };
    let show = |trace: &Trace| {
        let text = print(trace, PrintOptions::COMPACT);
        match text.lines().count() > MOST_LINES {
            true => format!(
                "<p>The trace has more than {MOST_LINES} lines: <code>fulgurite trace show {}</code></p>\n",
                escape_text(of.name)
            ),
            false => prose::block(text.trim_end()),
        }
    };
    let mut text = format!(
        "<h3>Forward: <code>{}</code></h3>\n{}",
        escape_text(&plain(&call(def, &sample.arguments))),
        show(trace)
    );
    let prims = links(def, trace);
    if !prims.is_empty() {
        let _ = writeln!(text, "<p>It calls {prims}.</p>");
    }
    let wrt = subject::differentiable(def, trace);
    let joint = if wrt.is_empty() { None } else { gradients_stage(trace.clone(), &wrt, &Options::default()).ok() };
    match joint {
        Some(stage) => text += &format!("<h3>Forward and backward</h3>\n{}", show(&stage.trace)),
        None => text += "<p>There is no gradient of it.</p>\n",
    }
    text
}

/// The operators that its decomposition calls, as links to their pages.
fn links(def: &OperatorDef, trace: &Trace) -> String {
    let mut names: Vec<&str> = Vec::new();
    let bodies = trace.block.symbols.iter().filter_map(|symbol| symbol.body.as_ref());
    for called in bodies.flat_map(|body| body.symbols.iter()).filter_map(|symbol| symbol.operator()) {
        if called.name != def.name && !names.contains(&called.name) {
            names.push(called.name);
        }
    }
    names.sort_unstable();
    names.iter().map(|name| link(name, "")).collect::<Vec<_>>().join(", ")
}
