//! `scale`: how long a training step takes on several ranks, by the model of `fulgurite_rates::scaling`.

use std::process::ExitCode;

use clap::Args;
use fulgurite::trace::memory_use::memory_use;
use fulgurite::{DType, Target, compile};
use fulgurite_models::Family;
use fulgurite_models::scaling::step_of_ranks;
use fulgurite_models::train::Strategy;
use fulgurite_rates::scaling::{Links, Prediction, Speed, predict};
use fulgurite_rates::{bandwidth, flops};
use serde_json::json;

use super::model_programs;
use super::outcome::{Failed, Outcome};
use super::output::{say, say_json};
use super::part::Part;
use super::target;

/// The device whose links are known.
const DEVICE: &str = "NVIDIA H200";
/// What a kernel takes at least, in seconds.
const LAUNCH: f64 = 2e-6;

/// Arguments of `scale`.
#[derive(Args)]
#[command(after_help = "\
Nothing is run: the step is compiled for each number of ranks, and a model of time adds up bytes, operations and
exchanges of its lines, on two streams. --step-ms makes the lines of one rank as long as a measured step; without it
they take the least time that their bytes and operations can take. Links are those of H200: copies between GPUs of a
host as measured, and a port of 400 Gb/s for each GPU between hosts of eight, which was not measured. GiB are those of
the step's memory plan; what libraries and other programs of a run hold comes on top.

Examples:
  fulgurite scale gpt2 --size 124M --tokenizer gpt2 --context 1024 --batch 16 --autocast bf16 --step-ms 29.2
  fulgurite scale gpt2 --size 124M --tokenizer gpt2 --batch 4 --autocast bf16 --strategy zero3 --ranks 1,2,8
  fulgurite scale gpt2 --size nano --ranks 2,64 --between 25")]
pub struct Arguments {
    /// gpt2 or llama.
    #[arg(value_parser = family)]
    model: Family,
    #[command(flatten)]
    program: model_programs::Options,
    /// Computes in bf16 or f16, and the rest by the operators' classes; with copies of weights.
    #[arg(long, value_name = "TYPE")]
    autocast: Option<DType>,
    /// How ranks divide the work: ddp, zero2, zero3.
    #[arg(long, default_value = "ddp", value_name = "NAME")]
    strategy: Strategy,
    /// Milliseconds of a measured step on one device.
    #[arg(long, value_name = "MS")]
    step_ms: Option<f64>,
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', value_name = "N,N",
        default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], value_parser = ranks)]
    ranks: Vec<usize>,
    /// GPUs of a host.
    #[arg(long, default_value_t = Links::H200.per_host as u16, value_parser = clap::value_parser!(u16).range(1..))]
    per_host: u16,
    /// GB/s that a GPU sends to others of its host, while they send to it.
    #[arg(long, default_value_t = Links::H200.within / 1e9, value_name = "GB/S")]
    within: f64,
    /// GB/s that a GPU sends to other hosts, while they send to it.
    #[arg(long, default_value_t = Links::H200.between / 1e9, value_name = "GB/S")]
    between: f64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

fn ranks(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|ranks| (1..=4096).contains(ranks)).ok_or_else(|| "expected 1 to 4096 ranks".into())
}

fn family(text: &str) -> Result<Family, String> {
    let of_text = |family: &Family| family.images().is_none();
    let found = model_programs::PARTS
        .iter()
        .find(|(name, family, part)| *name == text && *part == Part::Step && of_text(family));
    found.map(|(_, family, _)| *family).ok_or_else(|| "expected gpt2 or llama".into())
}

/// Prints a table with a row for each number of ranks.
pub fn run(arguments: &Arguments) -> Outcome {
    for (name, rate) in [("--within", arguments.within), ("--between", arguments.between)] {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(Failed(format!("{name} is {rate}, expected a number above 0")));
        }
    }
    if let Some(step) = arguments.step_ms.filter(|step| !(step.is_finite() && *step > 0.0)) {
        return Err(Failed(format!("--step-ms is {step}, expected a number above 0")));
    }
    let target: Target = target::parse("cuda:sm_90a").map_err(Failed)?;
    let (model, trace) = arguments.program.model_and_trace(arguments.model, Part::Step, None, arguments.autocast)?;
    let options = compile::Options { autocast: arguments.autocast, ..compile::Options::default() };
    let step_of = |ranks: usize| {
        let of = (&target, &options);
        let copies = arguments.autocast.is_some();
        step_of_ranks(&trace, model.model(), copies, of, (arguments.strategy, ranks))
    };
    let products = if arguments.autocast.is_some() { "bf16" } else { "tf32" };
    let sheet = |rate: Option<f64>| rate.ok_or_else(|| Failed(format!("no data sheet of {DEVICE} is known")));
    let speed = Speed {
        bytes: sheet(bandwidth::of_device(DEVICE))?,
        flops: sheet(flops::of_device(DEVICE, products))?,
        launch: LAUNCH,
        factor: 1.0,
    };
    let one = step_of(1)?;
    let speed = arguments.step_ms.map_or(speed, |step| speed.measured(&one.block, step / 1e3));
    let per_host = usize::from(arguments.per_host);
    let links = Links { per_host, within: arguments.within * 1e9, between: arguments.between * 1e9, ..Links::H200 };
    let alone = predict(&one.block, &speed, &links).step;
    let mut rows = Vec::new();
    for ranks in &arguments.ranks {
        let several = if *ranks == 1 { None } else { Some(step_of(*ranks)?) };
        let step = several.as_ref().unwrap_or(&one);
        rows.push((*ranks, predict(&step.block, &speed, &links), memory_use(step).peak()));
    }
    if arguments.json {
        let row = |(ranks, found, peak): &(usize, Prediction, u64)| {
            json!({
                "ranks": ranks,
                "step_ms": found.step * 1e3,
                "scaling": alone / found.step,
                "computing_ms": found.computing * 1e3,
                "moving_ms": found.moving * 1e3,
                "sent_bytes": found.sent,
                "collectives": found.collectives,
                "peak_bytes": peak,
            })
        };
        say_json(
            &json!({ "strategy": arguments.strategy.to_string(), "rows": rows.iter().map(row).collect::<Vec<_>>() }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "{:>6}  {:>10}  {:>8}  {:>12}  {:>10}  {:>11}  {:>7}",
        "ranks",
        "step, ms",
        "scaling",
        "computes, ms",
        "moves, ms",
        "sends, MB",
        "GiB"
    )?;
    for (ranks, found, peak) in &rows {
        say!(
            "{ranks:>6}  {:>10.2}  {:>6.1} %  {:>12.2}  {:>10.2}  {:>11.1}  {:>7.2}",
            found.step * 1e3,
            100.0 * alone / found.step,
            found.computing * 1e3,
            found.moving * 1e3,
            found.sent / 1e6,
            *peak as f64 / f64::from(1 << 30)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
