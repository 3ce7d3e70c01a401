//! Trace and all transforms of a full GPT-2 training step (forward, backward, AdamW), on one thread:
//! `cargo run --release -p fulgurite-benches --bin compile_time -- [--target cuda:sm_90a] [--layers 12,192] [--runs 9]`
//!
//! The last stage is also printed and parsed: how many lines its text has, and the median times.
//!
//! `FULGURITE_LOG=fulgurite_runtime::compile=debug` also logs how long each stage takes.

use fulgurite_benches::argument;
use fulgurite_benches::{log_to_stderr, median, processor};
use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::trace::parse;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Error, Result, Target};
// The executors of all targets are linked in.
use fulgurite_executors as _;

fn invalid(argument: &str, message: String) -> Error {
    Error::Argument { argument: argument.into(), message }
}

/// Traces the step and takes it through every stage.
fn compiled(layers: usize, target: &Target, options: &Options) -> Result<Vec<Stage>> {
    let config = GptConfig { vocabulary: 50_257, context: 1024, layers, heads: 12, channels: 768, ..GptConfig::GPT2 };
    let trace = train_step_trace(&config, &OptimizerSettings::default(), 4, 64)?;
    let trace = if *target == Target::cpu() { trace } else { retarget(&trace, target) };
    stages(trace, options)
}

fn main() -> Result<()> {
    fulgurite_benches::require_release()?;
    log_to_stderr();
    let target = argument("--target").map_or(Ok(Target::cpu()), |text| text.parse());
    let target: Target = target.map_err(|message: String| invalid("--target", message))?;
    let layers = argument("--layers").unwrap_or_else(|| "12,24,48".into());
    let layers: Vec<usize> = layers
        .split(',')
        .map(|count| count.parse().map_err(|_| invalid("--layers", format!("'{count}' is not a number of layers"))))
        .collect::<Result<_>>()?;
    let runs = argument("--runs").map_or(Ok(9), |text| text.parse());
    let runs: usize = runs.map_err(|_| invalid("--runs", "is not a number".into()))?;
    println!("processor: {}; target {target}, verifier off, one thread, {runs} runs", processor());
    println!("| layers | acquired | final | median ms | least ms | ms a layer | text lines | print ms | parse ms |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let options = Options { verify: false, ..Options::default() };
    for layers in layers {
        let stages = compiled(layers, &target, &options)?;
        let lines = |name: &str| {
            stages.iter().find(|stage| stage.name == name).map_or(0, |stage| stage.trace.block.symbols.len())
        };
        let mut least = f64::INFINITY;
        let time = median(runs.min(2), runs, || {
            let started = std::time::Instant::now();
            assert!(compiled(layers, &target, &options).is_ok(), "it compiled a moment ago");
            least = least.min(started.elapsed().as_secs_f64() * 1e3);
        });
        let ms = time.as_secs_f64() * 1e3;
        let Some(last) = stages.last() else { continue };
        let text = last.trace.to_string();
        let printing = median(runs.min(2), runs, || assert!(!last.trace.to_string().is_empty()));
        let parsing = median(runs.min(2), runs, || assert!(parse(&text).is_ok(), "what is printed parses"));
        println!(
            "| {layers} | {} | {} | {ms:.1} | {least:.1} | {:.2} | {} | {:.1} | {:.1} |",
            lines("acquire"),
            lines("delete_last_used"),
            ms / layers as f64,
            text.lines().count(),
            printing.as_secs_f64() * 1e3,
            parsing.as_secs_f64() * 1e3
        );
    }
    Ok(())
}
