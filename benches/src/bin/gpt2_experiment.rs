//! From a model as it was written first to a model on kernels of one's own: GPT-2 124M trains on one GPU, (1) with the
//! default executors, (2) with `llmc` first in the list, (3) in PyTorch, all from the same weights and batch.
//!
//! `gpt2_experiment OUT [--python python3] [--batch 4] [--context 64] [--dtypes f32,tf32,bf16]
//! [--peers eager,graphs,graphs-fused] [--size 124M] [--steps 20]`
//!
//! Prints the losses of ten AdamW steps and a table of times, and fails if the losses differ from PyTorch's by more
//! than 1e-4 (f32) or 2e-2 (bf16), relatively, or if the trace of (2) does not consist of the symbols of `llmc`.
//! Everything is kept in OUT.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use fulgurite_benches::step::{Setting, gpt2, measure, options};
use fulgurite_benches::{argument, number, wrong};
use fulgurite_models::batches::Batch;
use fulgurite_models::corpus::TINY_SHAKESPEARE;
use fulgurite_models::host_tensor::HostTensor;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::tokenizer::Tokenizer;
use fulgurite_models::train::{initial_parameters, parameters_from};
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{DType, Device, Error, Result};
use serde_json::{Value, json};

/// The lists of executors that are compared; the first is the default one.
const LISTS: [(&str, &str); 3] = [
    ("default executors", ""),
    ("llmc first", "llmc,optim,cublaslt,fusion,cuda"),
    ("flash, then llmc", "flash,llmc,optim,cublaslt,fusion,cuda"),
];
/// How PyTorch runs: name, mode, and whether its attention is one kernel. Losses are compared with the first.
const MODES: [(&str, &str, bool); 3] =
    [("eager", "eager", false), ("graphs", "reduce-overhead", false), ("graphs-fused", "reduce-overhead", true)];

fn file_error(path: &Path, error: impl ToString) -> Error {
    Error::File { path: path.display().to_string(), message: error.to_string() }
}

struct Asked {
    folder: PathBuf,
    size: String,
    rows: usize,
    context: usize,
    steps: usize,
}

impl Asked {
    fn new() -> Result<Asked> {
        let folder = std::env::args().nth(1).filter(|first| !first.starts_with("--"));
        Ok(Asked {
            folder: folder.ok_or_else(|| wrong("OUT", "is missing: the folder for weights, batch and results"))?.into(),
            size: argument("--size").unwrap_or_else(|| "124M".into()),
            rows: number("--batch", 4)?,
            context: number("--context", 64)?,
            steps: number("--steps", 20)?,
        })
    }

    /// The first tokens of tinyshakespeare.
    fn batch(&self) -> Result<Batch> {
        let tokenizer = Tokenizer::from_name("gpt2").map_err(|error| wrong("tokenizer", error))?;
        let count = self.rows * self.context;
        // A token is a handful of bytes; what is cut off at the end is not looked at.
        let text: String = TINY_SHAKESPEARE.chars().take(16 * (count + 1)).collect();
        let tokens = tokenizer.encode(&text).map_err(|error| wrong("text", error))?;
        if tokens.len() <= count {
            return Err(wrong("--batch", format!("asks for {count} tokens, the text has {}", tokens.len())));
        }
        Ok(Batch {
            inputs: tokens[..count].iter().map(|token| i64::from(*token)).collect(),
            targets: tokens[1..=count].iter().map(|token| i64::from(*token)).collect(),
            rows: self.rows,
            context: self.context,
        })
    }
}

fn write(path: &Path, tensors: &BTreeMap<String, HostTensor>) -> Result<()> {
    let mut bytes = Vec::new();
    TensorFile::write(&BTreeMap::new(), tensors, &mut bytes).map_err(|error| file_error(path, error))?;
    fulgurite_kernels::durable::write(path, &bytes).map_err(|error| file_error(path, error))
}

/// Writes what all start from.
fn prepare(asked: &Asked) -> Result<()> {
    std::fs::create_dir_all(&asked.folder).map_err(|error| file_error(&asked.folder, error))?;
    let config = gpt2(&asked.size, asked.context)?;
    let params = initial_parameters(&config, 42)?;
    let mut weights = BTreeMap::new();
    for (name, array) in params.leaves() {
        let tensor = HostTensor::new(DType::F32, array.shape(), array.to_bytes()?);
        weights.insert(name.clone(), tensor.map_err(|error| wrong(&name, error))?);
    }
    write(&asked.folder.join("weights.safetensors"), &weights)?;
    let batch = asked.batch()?;
    let tensor = |name: &str, values: &[i64]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        HostTensor::new(DType::I64, &[asked.rows, asked.context], bytes).map_err(|error| wrong(name, error))
    };
    let batch = [("inputs", &batch.inputs), ("targets", &batch.targets)];
    let tensors = batch.into_iter().map(|(name, values)| Ok((name.to_owned(), tensor(name, values)?)));
    write(&asked.folder.join("batch.safetensors"), &tensors.collect::<Result<_>>()?)
}

/// How often the claimed step has each symbol of `llmc`.
fn symbols(trace: &Trace) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for symbol in trace.block.symbols.iter().filter(|symbol| symbol.executor == Some("llmc")) {
        *found.entry(symbol.name().to_owned()).or_default() += 1;
    }
    found
}

/// What a step with `llmc` first must consist of.
fn expected_symbols(layers: usize) -> BTreeMap<String, usize> {
    let norms = 2 * layers + 1;
    [
        ("crossentropy", 1),
        ("crossentropy_softmax_backward", 1),
        ("gelu", layers),
        ("gelu_backward", layers),
        ("layernorm", norms),
        ("layernorm_backward", norms),
        ("permute", layers),
        ("permute_backward", layers),
        ("softmax", layers),
        ("unpermute", layers),
        ("unpermute_backward", layers),
    ]
    .map(|(name, count)| (format!("llmc::{name}"), count))
    .into()
}

/// The precision that PyTorch's script calls by a type.
fn precision(dtype: &str) -> Result<Precision> {
    match dtype {
        "f32" => Ok(Precision::F32True),
        "tf32" => Ok(Precision::Tf32),
        "bf16" => Ok(Precision::Bf16Mixed),
        other => Err(wrong("--dtypes", format!("has '{other}', expected f32, tf32 or bf16"))),
    }
}

/// One list of executors in this process.
fn one(asked: &Asked, executors: &str, dtype: &str) -> Result<Value> {
    let started = Instant::now();
    let names: Vec<&str> = executors.split(',').filter(|name| !name.is_empty()).collect();
    let setting = Setting {
        config: gpt2(&asked.size, asked.context)?.into(),
        precision: precision(dtype)?,
        optimizer: OptimizerSettings { clip: None, beta2: 0.95, weight_decay: 0.1, ..OptimizerSettings::default() },
        options: options(Device::new("cuda", 0), &names)?,
        steps: asked.steps,
        profile: false,
    };
    let _opening = setting.options.device.map(DeviceState::open_ahead);
    let path = asked.folder.join("weights.safetensors");
    let weights = TensorFile::load(&path).map_err(|error| file_error(&path, error))?;
    let params = parameters_from(&setting.config, &weights.tensors, "", DType::F32)?;
    let measured = measure(&setting, params, &asked.batch()?, started)?;
    let claimed = measured.claimed.as_ref().map(symbols).unwrap_or_default();
    Ok(json!({
        "losses": measured.losses, "ms": measured.waited_ms, "piped_ms": measured.piped_ms, "first_s": measured.first_s,
        "peak_mib": measured.counted >> 20, "host_us": measured.host_us, "symbols": claimed,
    }))
}

/// Runs a command that prints a line of JSON last.
fn json_of(command: &mut Command) -> std::result::Result<Value, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rfind(|line| line.starts_with('{'));
    last.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        error.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed no result").to_owned()
    })
}

fn losses(run: &Value) -> Vec<f64> {
    run["losses"].as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_f64).collect()
}

/// The largest relative difference of two runs' losses.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return f64::NAN;
    }
    a.iter()
        .zip(b)
        .map(|(a, b)| (a / b - 1.0).abs())
        .fold(0.0, |most, d| if d.is_nan() { d } else { f64::max(most, d) })
}

fn main() -> Result<ExitCode> {
    fulgurite_benches::require_release()?;
    let asked = Asked::new()?;
    if let (Some(executors), Some(dtype)) = (argument("--only"), argument("--dtype")) {
        println!("{}", one(&asked, &executors, &dtype)?);
        return Ok(ExitCode::SUCCESS);
    }
    prepare(&asked)?;
    let python = argument("--python").unwrap_or_else(|| "python3".into());
    let script = argument("--script").unwrap_or_else(|| "benches/peers/gpt2_experiment.py".into());
    let this = std::env::current_exe().map_err(|error| wrong("program", error))?;
    let wanted = argument("--peers").unwrap_or_else(|| "eager,graphs,graphs-fused".into());
    let layers = gpt2(&asked.size, asked.context)?.layers;
    let heads = gpt2(&asked.size, asked.context)?.heads.to_string();
    let mut failures: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for dtype in argument("--dtypes").unwrap_or_else(|| "f32,tf32,bf16".into()).split(',') {
        let mut runs: Vec<(String, Value)> = Vec::new();
        for (_, mode, fused) in MODES.into_iter().filter(|(name, ..)| wanted.split(',').any(|one| one == *name)) {
            let mut command = Command::new(&python);
            command.arg(&script).arg(&asked.folder).args(["--dtype", dtype, "--mode", mode, "--heads", &heads]);
            command.args(["--steps", &asked.steps.to_string()]);
            if fused {
                command.arg("--fused-attention");
            }
            let name = format!("PyTorch, {mode}{}", if fused { ", fused attention" } else { "" });
            match json_of(&mut command) {
                Ok(run) => runs.push((name, run)),
                Err(reason) => println!("{name} ({dtype}) did not run: {reason}"),
            }
        }
        let peer = runs.first().filter(|(name, _)| name == "PyTorch, eager").map(|(_, run)| losses(run));
        for (name, executors) in LISTS {
            let mut command = Command::new(&this);
            command.arg(&asked.folder).args(["--only", executors, "--dtype", dtype, "--size", &asked.size]);
            command.args(["--batch", &asked.rows.to_string(), "--context", &asked.context.to_string()]);
            command.args(["--steps", &asked.steps.to_string()]);
            let run = json_of(&mut command).map_err(|reason| wrong(name, reason))?;
            if executors.starts_with("llmc") {
                let found: BTreeMap<String, usize> =
                    serde_json::from_value(run["symbols"].clone()).map_err(|error| wrong("symbols", error))?;
                if found != expected_symbols(layers) {
                    failures.push(format!("{dtype}: the trace with llmc first holds {found:?}"));
                }
            }
            runs.push((format!("Fulgurite, {name}"), run));
        }
        let tolerance = match dtype {
            "f32" => Some(1e-4),
            "bf16" => Some(2e-2),
            _ => None,
        };
        println!("\n{dtype}, {} x {} tokens:\n", asked.rows, asked.context);
        println!(
            "| who | waited ms | piped ms | first step s | peak MiB | loss 1 | loss 10 | from PyTorch's losses, \
             relative |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for (name, run) in &runs {
            let losses = losses(run);
            let from = peer.as_ref().map(|peer| difference(&losses, peer));
            println!(
                "| {name} | {} | {} | {} | {} | {:.6} | {:.6} | {} |",
                run["ms"],
                run["piped_ms"],
                run["first_s"],
                run["peak_mib"],
                losses.first().unwrap_or(&f64::NAN),
                losses.last().unwrap_or(&f64::NAN),
                from.map_or_else(|| "-".into(), |from| format!("{from:.1e}")),
            );
            let ours = name.starts_with("Fulgurite");
            if let (true, Some(from), Some(tolerance)) = (ours, from, tolerance)
                && (from.is_nan() || from > tolerance)
            {
                failures.push(format!(
                    "{dtype}: losses of {name} differ from PyTorch's by {from:.1e}, at most {tolerance:.0e}"
                ));
            }
        }
        let rows = runs.into_iter().map(|(who, run)| json!({"who": who, "dtype": dtype, "run": run}));
        all.extend(rows);
    }
    let path = asked.folder.join("results.json");
    let text = serde_json::to_string_pretty(&all).map_err(|error| wrong("results", error))?;
    fulgurite_kernels::durable::write(&path, text.as_bytes()).map_err(|error| file_error(&path, error))?;
    println!("\nresults: {}", path.display());
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
