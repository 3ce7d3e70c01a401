//! `trace show`.

use std::process::ExitCode;

use clap::Args;
use fulgurite::compile::stages;
use fulgurite::operator::OperatorDef;
use fulgurite::trace::Trace;
use fulgurite::trace::print::{PrintOptions, print};
use fulgurite::transforms::{Fuel, autodiff};
use fulgurite::{DType, Target};

use super::output::{Failed, say};
use super::{Outcome, ops_run, subject};
use crate::cases::{of_case, resolve_operator};

/// Arguments of `trace show`.
#[derive(Args)]
#[command(after_help = "\
What is printed parses back, unless --plain or --stage all is given: `fulgurite trace run FILE` runs it.

Examples:
  fulgurite trace show softmax
  fulgurite trace show rms_norm --sample 2 --backward --stage claim
  fulgurite trace show nn.functional.gelu --dtype bf16 --executors reference --stage all")]
pub struct Arguments {
    /// An operator, by its name or PyTorch's.
    name: String,
    /// The stage of compilation, or `all`; the trace as acquired (or differentiated) otherwise.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// What it is compiled for; no such device is needed.
    #[arg(long, default_value = "cpu")]
    target: Target,
    /// Executors in the order they are asked; the target's default list otherwise.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    executors: Option<Vec<String>>,
    /// The element type of the sample; the first that the operator takes of f32, i64, bool, ... otherwise.
    #[arg(long)]
    dtype: Option<DType>,
    /// Which of the operator's samples.
    #[arg(long, default_value_t = 0)]
    sample: usize,
    /// The joint trace of the operator and its gradient.
    #[arg(long)]
    backward: bool,
    /// Without nested bodies, memory plan and refusals.
    #[arg(long)]
    plain: bool,
    /// How many optimizations may be made.
    #[arg(long, value_name = "STEPS")]
    fuel: Option<u64>,
    /// Does not fuse symbols into regions.
    #[arg(long)]
    no_fuse: bool,
}

/// Prints a trace.
pub fn run(arguments: &Arguments) -> Outcome {
    let mut options = ops_run::options(arguments.executors.as_deref())?;
    options.memory_limit = None;
    options.fuse = !arguments.no_fuse;
    options.fuel = arguments.fuel.map_or(Fuel::UNLIMITED, Fuel::limited);
    let def = resolve_operator(&arguments.name)?;
    let mut trace = sample_trace(def, arguments)?;
    if arguments.backward {
        let wrt = subject::differentiable(def, &trace);
        if wrt.is_empty() {
            let reason = def.no_grad.unwrap_or("no floating-point tensor goes in or none comes out");
            return Err(Failed(format!("{} has no gradient here: {reason}", def.name)));
        }
        trace = autodiff::vjp(&trace, &wrt, &options.executor_list(arguments.target.kind())).map_err(of_case)?;
    }
    let show = |trace: &Trace| {
        let text = print(trace, if arguments.plain { PrintOptions::OUTLINE } else { PrintOptions::FULL });
        text.trim_end().to_owned()
    };
    // The trace that compilation starts from is there even where nobody can take its symbols.
    let first = trace.history.last().cloned().unwrap_or_else(|| "acquire".into());
    match arguments.stage.as_deref() {
        None => say!("{}", show(&trace))?,
        Some(stage) if stage == first => say!("{}", show(&trace))?,
        Some("all") => {
            for (i, stage) in stages(trace, &options).map_err(of_case)?.iter().enumerate() {
                let gap = if i == 0 { "" } else { "\n" };
                say!("{gap}# === {} ===\n{}", stage.name, show(&stage.trace))?;
            }
        }
        Some(name) => {
            let stages = stages(trace, &options).map_err(of_case)?;
            let Some(stage) = stages.iter().rev().find(|stage| stage.name == name) else {
                let known: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
                return Err(Failed(format!("no stage is called '{name}', there are: {}, all", known.join(", "))));
            };
            say!("{}", show(&stage.trace))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sample_trace(def: &'static OperatorDef, arguments: &Arguments) -> Result<Trace, Failed> {
    let usual = [DType::F32].into_iter().chain(DType::ALL.into_iter().rev());
    let dtypes: Vec<DType> = arguments.dtype.map_or_else(|| usual.collect(), |dtype| vec![dtype]);
    let of = |dtype| subject::accepted(def, dtype, &Target::cpu());
    let Some((dtype, samples)) = dtypes.iter().map(|dtype| (*dtype, of(*dtype))).find(|(_, s)| !s.is_empty()) else {
        return Err(Failed(match arguments.dtype {
            Some(dtype) => format!("{} has no sample in {dtype}", def.name),
            None => format!("{} has no sample", def.name),
        }));
    };
    let Some((_, sample, _)) = samples.iter().find(|(number, ..)| *number == arguments.sample) else {
        let last = samples.last().map_or(0, |(number, ..)| *number);
        return Err(Failed(format!("{} has no sample {} in {dtype}, the last is {last}", def.name, arguments.sample)));
    };
    Ok(subject::trace_sample(def, &sample.arguments, &arguments.target).map_err(of_case)?)
}
