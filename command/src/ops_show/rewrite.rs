//! `ops show` of a rewrite.

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::executor::{RewriteDef, rewrites};
use fulgurite::jit::{Names, trace};
use fulgurite::operator::{ParamDef, ParamKind};
use fulgurite::testing::samples::Samples;
use fulgurite::trace::Trace;
use fulgurite::trace::print::{PrintOptions, print};
use fulgurite::tracer::rules::TracedRule;
use fulgurite::{DType, Device, Target, Tensor, TensorMeta};
use serde::Serialize;

use super::super::description::takes_part;
use super::super::outcome::Failed;
use super::super::output::{say, say_json};

#[derive(Serialize)]
struct Description {
    name: &'static str,
    docs: &'static str,
    /// The stage at which it runs, and with which executors.
    takes_part: String,
    keep_inner: bool,
    /// Whether the rewrite has a condition of its own on the matched tensors and attributes.
    condition: bool,
    /// The element types in which it takes a sample.
    dtypes: Vec<&'static str>,
    /// How many dimensions tensors may have, of those that say so.
    ranks: Vec<String>,
    samples: usize,
    /// Why the condition refuses some of the samples.
    refused: Vec<String>,
    /// Both sides on the first sample.
    pattern: String,
    replacement: String,
    file: &'static str,
    line: u32,
}

/// Shows a rewrite.
pub(super) fn show(def: &'static RewriteDef, json: bool) -> Result<(), Failed> {
    let samples = samples(def);
    let side = |rule| samples.first().map_or_else(String::new, |arguments| side(def, arguments, rule));
    let description = Description {
        name: def.name,
        docs: def.docs.trim(),
        takes_part: takes_part(def),
        keep_inner: def.keep_inner,
        condition: def.condition.is_some(),
        dtypes: dtypes(def),
        ranks: def.ranks.iter().map(|(place, ranks)| format!("{}: {ranks}", def.params[*place].name)).collect(),
        samples: samples.len(),
        refused: samples.iter().filter_map(|arguments| def.accepts(arguments).err()).collect(),
        pattern: side(def.pattern),
        replacement: side(def.replacement),
        file: def.file,
        line: def.line,
    };
    if json {
        say_json(&description)?;
    } else {
        let name = |param: &ParamDef| match param.kind {
            ParamKind::Attribute => format!("{param:?}"),
            _ => param.name.to_owned(),
        };
        let params: Vec<String> = def.params.iter().map(name).collect();
        say!("{}", in_words(&description, &params))?;
    }
    Ok(())
}

/// A rewrite in the description of an operator.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    /// Which side has the operator.
    pub side: &'static str,
    pub file: &'static str,
    pub line: u32,
}

/// The rewrites one side of which calls an operator.
pub(super) fn of_operator(operator: &str) -> Vec<Row> {
    let row = |def: &'static RewriteDef| {
        let first = samples(def).into_iter().next()?;
        let calls = |rule| {
            let trace = traced(def, &first, rule).ok()?;
            let mut operators = trace.block.symbols.iter().filter_map(|symbol| symbol.operator());
            operators.any(|own| own.name == operator).then_some(())
        };
        let side = match (calls(def.pattern), calls(def.replacement)) {
            (Some(()), Some(())) => "looks for it and puts it in",
            (Some(()), None) => "looks for it",
            (None, Some(())) => "puts it in",
            (None, None) => return None,
        };
        Some(Row { name: def.name, side, file: def.file, line: def.line })
    };
    rewrites().into_iter().filter_map(row).collect()
}

/// The arguments of each sample, in f32 if there are any in it.
fn samples(def: &RewriteDef) -> Vec<Vec<Arg<TensorMeta>>> {
    let mut dtypes = [DType::F32].into_iter().chain(DType::ALL);
    dtypes.find_map(|dtype| Some(samples_in(def, dtype)).filter(|samples| !samples.is_empty())).unwrap_or_default()
}

fn samples_in(def: &RewriteDef, dtype: DType) -> Vec<Vec<Arg<TensorMeta>>> {
    let Some(declare) = def.samples else { return Vec::new() };
    let mut samples = Samples::new(None, dtype);
    declare(&mut samples);
    let cases = samples.into_cases();
    cases.iter().map(|sample| map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU))).collect()
}

/// The element types in which the pattern can be written and the rewrite takes a sample.
fn dtypes(def: &'static RewriteDef) -> Vec<&'static str> {
    let taken = |arguments: &Vec<Arg<TensorMeta>>| {
        def.accepts(arguments).is_ok() && traced(def, arguments, def.pattern).is_ok()
    };
    let all = DType::ALL.into_iter().filter(|dtype| samples_in(def, *dtype).iter().any(taken));
    all.map(DType::name).collect()
}

/// One side as it is traced.
fn traced(def: &RewriteDef, arguments: &[Arg<TensorMeta>], rule: TracedRule) -> fulgurite::Result<Trace> {
    let tensors = def.params.iter().zip(arguments).filter(|(_, argument)| !argument.tensors().is_empty());
    let names = Names { arguments: tensors.map(|(param, _)| param.name.to_owned()).collect(), results: Vec::new() };
    let metas: Vec<TensorMeta> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
    let called = |tensors: Vec<Tensor>| {
        let mut tensors = tensors.into_iter();
        rule(&map_arguments(arguments, |_| tensors.next().unwrap_or_else(|| unreachable!("one for each"))))
    };
    trace(def.name, Target::cpu(), &names, metas, called).map(|(trace, _)| trace)
}

/// One side as a text.
fn side(def: &RewriteDef, arguments: &[Arg<TensorMeta>], rule: TracedRule) -> String {
    match traced(def, arguments, rule) {
        Ok(trace) => print(&trace, PrintOptions::OUTLINE),
        Err(error) => error.to_string(),
    }
}

fn in_words(of: &Description, params: &[String]) -> String {
    let mut text = format!("{}({})\n", of.name, params.join(", "));
    text.extend(of.docs.lines().map(|line| format!("    {}\n", line.trim())));
    let condition = match &of.refused[..] {
        _ if !of.condition => String::new(),
        [] => "on the matched tensors; it takes every sample".to_owned(),
        [first, ..] => format!("on the matched tensors; it refuses {} of the samples: {first}", of.refused.len()),
    };
    let rows = [
        ("kind", "rewrite".to_owned()),
        ("takes part", of.takes_part.clone()),
        ("inner values", if of.keep_inner { "may be read elsewhere".to_owned() } else { String::new() }),
        ("dimensions", of.ranks.join(", ")),
        ("condition", condition),
        ("dtypes", of.dtypes.join(", ")),
        ("samples", of.samples.to_string()),
        ("tests", format!("1: {}::rewrite", of.name)),
        ("declared at", format!("{}:{}", of.file, of.line)),
    ];
    text.extend(rows.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name:14} {value}\n")));
    for (name, side) in [("pattern", &of.pattern), ("replacement", &of.replacement)] {
        text += &format!("{name}\n");
        text.extend(side.trim_end().lines().map(|line| format!("    {line}\n")));
    }
    text.truncate(text.trim_end().len());
    text
}
