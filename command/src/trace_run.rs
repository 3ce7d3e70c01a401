//! `trace run`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::Array;
use fulgurite::compile::compile;
use serde::Serialize;

use super::outcome::{Failed, Outcome};
use super::output::{say, say_json};
use super::{files, options, target, trace_files, trace_inputs};
use crate::cases::{tensor_bytes, write_whole};

/// Arguments of `trace run`.
#[derive(Args)]
#[command(after_help = "\
Missing inputs are random: numbers between 0 and 1, and 0 or 1 for integers.

Examples:
  fulgurite trace run softmax.trace
  fulgurite trace run step.trace --inputs state.safetensors --out results.safetensors")]
pub struct Arguments {
    /// The trace, of any stage.
    file: PathBuf,
    /// A safetensors file with every input by its name.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    inputs: Option<PathBuf>,
    /// Seed of random inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    compile: options::Compile,
    /// Writes the outputs to this safetensors file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Output {
    path: String,
    dtype: &'static str,
    shape: Vec<usize>,
    /// The first values; what JSON has no number for is a string.
    values: Vec<serde_json::Value>,
    truncated: bool,
}

/// How many values of an output are shown.
const SHOWN: usize = 16;

/// Runs a trace.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(out) = &arguments.out {
        let read = [Some(&arguments.file), arguments.inputs.as_ref()];
        read.into_iter().flatten().try_for_each(|read| files::differ(read, out))?;
    }
    let trace = trace_files::read_verified(&arguments.file, &arguments.compile.executor_options()?)?;
    target::check(&trace.target).map_err(|message| Failed::file(&arguments.file, message))?;
    let mut names: Vec<String> = trace.outputs.iter().map(|output| output.path.clone()).collect();
    // Its plan first: inputs that do not fit are refused before they are made.
    let options = arguments.compile.options_to_run(&trace.target)?;
    let (program, _) = compile(trace.clone(), &options).map_err(|error| Failed::file(&arguments.file, error))?;
    let inputs = match &arguments.inputs {
        Some(path) => trace_inputs::given(&trace, path)?,
        None => trace_inputs::random(&trace, arguments.seed)?,
    };
    let arrays = program.run(inputs)?;
    // Two outputs may have one path.
    for i in 0..names.len() {
        if names[..i].contains(&names[i]) {
            names[i] = format!("{}#{i}", names[i]);
        }
    }
    let outputs: Vec<(String, Array)> = names.into_iter().zip(arrays).collect();
    if let Some(path) = &arguments.out {
        let bytes = tensor_bytes(&outputs).map_err(|message| Failed::file(path, message))?;
        write_whole(path, &bytes)?;
    }
    if arguments.json {
        say_json(&outputs.iter().map(|(path, array)| describe(path, array)).collect::<Result<Vec<_>, _>>()?)?;
    } else {
        for (path, array) in &outputs {
            say!("{path}: {array:?}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(path: &str, array: &Array) -> Result<Output, Failed> {
    let values = array.first_f64(SHOWN)?;
    Ok(Output {
        path: path.to_owned(),
        dtype: array.dtype().name(),
        shape: array.shape().to_vec(),
        truncated: array.meta().len() > SHOWN,
        values: values
            .into_iter()
            .map(|value| if value.is_finite() { value.into() } else { value.to_string().into() })
            .collect(),
    })
}
