//! `profile`: where the time of a program goes, symbol by symbol, beside what the device does at most.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::compile::{Options, compile, loss_programs, with_records};
use fulgurite::program::{Profile, Program as Compiled};
use fulgurite::trace::Trace;
use fulgurite::{Array, Device, Target};
use fulgurite_plots::roofline::{Dot, Roofs, svg};
use fulgurite_rates::too_low::TooLow;
use fulgurite_rates::{Rates, ceilings};
use indicatif::{ProgressBar, ProgressStyle};

use super::outcome::{Failed, Outcome};
use super::output::{mark_debug_build, say, warn};
use super::programs::{Part, Program};
use super::{files, measured_inputs};
use crate::cases::{of_case, write_whole};

/// Runs before those that count: the first ones compile kernels and choose algorithms.
const WARM_UP: usize = 2;
/// The most runs that count.
const MOST_RUNS: usize = 10_000;

/// Arguments of `profile`.
#[derive(Args)]
#[command(after_help = "\
Every symbol runs by itself between two events, so the sum is above what a replayed step takes; `train --bench` times
that. Inputs are random numbers. Bytes and FLOPs are counted from the trace. The device's rates are measured once for its
model, driver and libraries, by a large copy and large products, and kept below the cache; --measure measures them again.
A warning says where a symbol is faster than what is kept: something else used the device then.

Examples:
  fulgurite profile gpt2 --size nano
  fulgurite profile gpt2 --size 124M --tokenizer gpt2 --autocast bf16 --batch 16 --context 1024 --plot step.svg
  fulgurite profile rms_norm --backward --json rms_norm.json
  fulgurite profile layer_norm --argument input=f32[4096,768] --argument normalized_shape=[768] --backward
  fulgurite profile llama-decode --size TinyLlama-1.1B --dtype bf16 --executors decode,default --perfetto decode.json")]
pub struct Arguments {
    /// An operator, by its name or PyTorch's; or a model, as `trace show` has them.
    name: String,
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available. The program is compiled
    /// for this device.
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    /// Runs that are timed; the table is that of the run with the median time.
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    runs: usize,
    /// Writes the table as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes the times for Perfetto and `view --profile`.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Draws the roofline, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Measures the device's rates again, and replaces their record.
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    program: Program,
}

/// Profiles a program.
pub fn run(arguments: &Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    if given("target") {
        return Err(Failed("--target: the program is compiled for the device that runs it, expected --device".into()));
    }
    if !(1..=MOST_RUNS).contains(&arguments.runs) {
        return Err(Failed(format!("--runs is {}, expected 1 to {MOST_RUNS}", arguments.runs)));
    }
    if let Some(plot) = &arguments.plot
        && plot.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg"))
    {
        return Err(Failed(format!("--plot is '{}', expected a name that ends in .svg", plot.display())));
    }
    let outs = [&arguments.json, &arguments.perfetto, &arguments.plot];
    let outs: Vec<&PathBuf> = outs.into_iter().flatten().collect();
    files::can_be_written(&outs)?;
    let device = arguments.device;
    let program = arguments.program.on(Target::of(device)?);
    let options = Options { device: (!device.is_cpu()).then_some(device), ..program.options_to_run()? };
    let options = with_records(&options, program.target()).into_owned();
    // Before rates are measured, which takes seconds: the name may be none.
    let (trace, part) = program.trace(&arguments.name, &options)?;
    if arguments.measure {
        Rates::measure(device)?;
    }
    let ceilings = ceilings(device, program.products(&options))?;
    let profiles = match part == Some(Part::Loss) && program.backward {
        true => {
            let programs = loss_programs(trace, &options).map_err(of_case)?;
            let traces = [&programs.forward, &programs.backward];
            let last = |stages: &[fulgurite::compile::Stage]| stages.last().map(|stage| stage.trace.clone());
            let traces = traces.into_iter().filter_map(|stages| last(stages));
            let ready = |trace: Trace| Compiled::new(trace, options.memory_limit);
            traces.map(ready).collect::<Result<Vec<Compiled>, _>>()?
        }
        false => vec![compile(trace, &options).map_err(of_case)?.0],
    };
    let bar = bar(profiles.len() * (arguments.runs + WARM_UP));
    let of_model = part.is_some();
    let mut profiled = Vec::new();
    for program in &profiles {
        let mut profile = timed(program, device, arguments.runs, of_model, &bar)?;
        profile.ceilings = ceilings;
        profiled.push(profile);
    }
    bar.finish_and_clear();
    let profile = joined(profiled).ok_or_else(|| Failed("no program was made".into()))?;
    if profile.ceilings.flops.is_none() || profile.ceilings.bytes.is_none() {
        warn("a rate of the device is not known: what needs it has no floor");
    }
    say!("{profile}")?;
    let too_low = TooLow::of_profile(&profile, device);
    too_low.iter().for_each(|low| warn(&low.to_string()));
    if let Some(path) = &arguments.json {
        let mut table = profile.to_json();
        table["rates_too_low"] = serde_json::json!(too_low);
        let text = serde_json::to_string_pretty(&table).map_err(|error| Failed::file(path, error))?;
        written(path, format!("{text}\n").as_bytes())?;
    }
    if let Some(path) = &arguments.perfetto {
        written(path, profile.to_chrome_trace().as_bytes())?;
    }
    if let Some(path) = &arguments.plot {
        let heading = format!("{} \u{b7} {}", arguments.name, program.in_words(&arguments.name, &options));
        written(path, picture(&heading, &profile).as_bytes())?;
    }
    mark_debug_build();
    Ok(ExitCode::SUCCESS)
}

fn written(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    write_whole(path, bytes)?;
    say!("wrote {}", path.display())
}

fn bar(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The profile of the run with the median time.
fn timed(
    program: &Compiled,
    device: Device,
    runs: usize,
    of_model: bool,
    bar: &ProgressBar,
) -> Result<Profile, Failed> {
    let drawn = measured_inputs::of(program.trace(), of_model)?;
    let there = |array: &Array| if device.is_cpu() { Ok(array.clone()) } else { array.to_device(device) };
    // What is given away must be there anew for each run; the rest stays on the device.
    let donated = |i: usize| program.trace().inputs.get(i).is_some_and(|input| input.donated);
    let kept: Vec<Array> = drawn
        .iter()
        .enumerate()
        .map(|(i, array)| if donated(i) { Ok(array.clone()) } else { there(array) })
        .collect::<fulgurite::Result<_>>()?;
    let mut profiles = Vec::new();
    for run in 0..WARM_UP + runs {
        let own = |(i, array): (usize, &Array)| match (donated(i), device.is_cpu()) {
            (false, _) => Ok(array.clone()),
            (true, true) => Array::from_bytes(array.shape(), array.dtype(), &array.to_bytes()?),
            (true, false) => array.to_device(device),
        };
        let inputs = kept.iter().enumerate().map(own).collect::<fulgurite::Result<Vec<Array>>>()?;
        let (_, profile) = program.profile(inputs)?;
        if run >= WARM_UP {
            profiles.push(profile);
        }
        bar.inc(1);
    }
    profiles.sort_by_key(Profile::total);
    let middle = profiles.len() / 2;
    Ok(profiles.swap_remove(middle))
}

/// Profiles one after the other as one.
fn joined(profiles: Vec<Profile>) -> Option<Profile> {
    profiles.into_iter().reduce(|mut first, second| {
        let end = first.spans.iter().map(|span| span.start + span.time).max().unwrap_or_default();
        first.function = format!("{} and {}", first.function, second.function);
        first.spans.extend(second.spans.into_iter().map(|mut span| {
            span.start += end;
            span
        }));
        first
    })
}

/// The roofline: a dot for each symbol of the table.
fn picture(heading: &str, profile: &Profile) -> String {
    let roof = |ceiling: Option<fulgurite::program::Ceiling>| {
        ceiling.map(|ceiling| (ceiling.per_second, ceiling.source.name().to_owned()))
    };
    let roofs = Roofs { bytes: roof(profile.ceilings.bytes), flops: roof(profile.ceilings.flops) };
    let totals = profile.by_symbol();
    let dot = |row: &fulgurite::program::Totals<'_>| Dot {
        name: row.symbol.to_owned(),
        group: row.executor.to_owned(),
        seconds: row.time.as_secs_f64(),
        bytes: row.bytes,
        flops: row.flops,
        floor: row.floor,
    };
    svg(heading, &roofs, &totals.iter().map(dot).collect::<Vec<_>>())
}
