//! `ops show` of a rewrite.

use std::process::ExitCode;

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::executor::RewriteDef;
use fulgurite::jit::{Names, trace};
use fulgurite::operator::{ParamDef, ParamKind};
use fulgurite::testing::samples::Samples;
use fulgurite::trace::print::{PrintOptions, print};
use fulgurite::tracer::rules::TracedRule;
use fulgurite::{DType, Device, Target, Tensor, TensorMeta};
use serde::Serialize;

use super::super::description::takes_part;
use super::super::outcome::Outcome;
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
pub(super) fn show(def: &'static RewriteDef, json: bool) -> Outcome {
    let samples = samples(def);
    let side = |rule| samples.first().map_or_else(String::new, |arguments| side(def, arguments, rule));
    let description = Description {
        name: def.name,
        docs: def.docs.trim(),
        takes_part: takes_part(def),
        keep_inner: def.keep_inner,
        condition: def.condition.is_some(),
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
    Ok(ExitCode::SUCCESS)
}

/// The arguments of each sample, in f32 if there are any in it.
fn samples(def: &RewriteDef) -> Vec<Vec<Arg<TensorMeta>>> {
    let Some(declare) = def.samples else { return Vec::new() };
    let declared = |dtype: DType| {
        let mut samples = Samples::new(None, dtype);
        declare(&mut samples);
        samples.into_cases()
    };
    let mut dtypes = [DType::F32].into_iter().chain(DType::ALL);
    let cases = dtypes.find_map(|dtype| Some(declared(dtype)).filter(|cases| !cases.is_empty())).unwrap_or_default();
    cases.iter().map(|sample| map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU))).collect()
}

/// One side as a trace.
fn side(def: &RewriteDef, arguments: &[Arg<TensorMeta>], rule: TracedRule) -> String {
    let tensors = def.params.iter().zip(arguments).filter(|(_, argument)| !argument.tensors().is_empty());
    let names = Names { arguments: tensors.map(|(param, _)| param.name.to_owned()).collect(), results: Vec::new() };
    let metas: Vec<TensorMeta> = arguments.iter().flat_map(Arg::tensors).cloned().collect();
    let called = |tensors: Vec<Tensor>| {
        let mut tensors = tensors.into_iter();
        rule(&map_arguments(arguments, |_| tensors.next().unwrap_or_else(|| unreachable!("one for each"))))
    };
    match trace(def.name, Target::cpu(), &names, metas, called) {
        Ok((trace, _)) => print(&trace, PrintOptions::OUTLINE),
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
