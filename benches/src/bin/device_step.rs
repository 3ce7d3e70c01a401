//! A training step of GPT-2 on a CUDA device, as `peers/gpt2_torch.py` runs it in PyTorch:
//!
//! ```text
//! device_step [--size 124M] [--batch 4] [--context 64] [--dtype f32|tf32|bf16] [--executors llmc,optim,...]
//!     [--steps 20] [--profile FILE]
//! ```
//!
//! Prints one line of JSON: milliseconds a step (each waited for, and enqueued one after the other), the host's time
//! for one replay, memory predicted and counted, and the losses of the first ten steps. `--profile` times one more step
//! symbol by symbol: a table, and a file for Perfetto.

use std::time::Instant;

use fulgurite_benches::gpt2::{Setting, argument, config, measure, options};
use fulgurite_models::batches::Batch;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::train::initial_parameters;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::{Error, Result};

fn main() -> Result<()> {
    let started = Instant::now();
    fulgurite_benches::log_to_stderr();
    let number = |name: &str, otherwise: usize| match argument(name) {
        None => Ok(otherwise),
        Some(text) => text.parse::<usize>().map_err(|error| Error::Argument {
            argument: name.into(),
            message: format!("is '{text}', expected a number: {error}"),
        }),
    };
    let (rows, context, steps) = (number("--batch", 4)?, number("--context", 64)?, number("--steps", 20)?);
    let size = argument("--size").unwrap_or_else(|| "124M".into());
    let dtype = argument("--dtype").unwrap_or_else(|| "f32".into());
    let executors = argument("--executors").unwrap_or_default();
    let names: Vec<&str> = executors.split(',').filter(|name| !name.is_empty()).collect();
    let file = argument("--profile");
    let setting = Setting {
        config: config(&size, context)?,
        // The peer decays everything and does not clip.
        optimizer: OptimizerSettings { clip: None, beta2: 0.95, weight_decay: 0.1, ..OptimizerSettings::default() },
        options: options(&dtype, &names)?,
        steps,
        profile: file.is_some(),
    };
    let token = |i: usize| (i * 7919 % 50_257) as i64;
    let batch = Batch {
        inputs: (0..rows * context).map(token).collect(),
        targets: (1..=rows * context).map(token).collect(),
        rows,
        context,
    };
    let _opening = setting.options.device.map(DeviceState::open_ahead);
    let parameters = initial_parameters(&setting.config, 42)?;
    tracing::debug!("initial weights made");
    let measured = measure(&setting, parameters, &batch, started)?;
    let losses: Vec<f64> = measured.losses.iter().map(|loss| (loss * 1e5).round() / 1e5).collect();
    println!(
        "{}",
        serde_json::json!({
            "who": "fulgurite", "size": size, "dtype": dtype, "executors": executors,
            "B": rows, "T": context, "ms": measured.waited_ms, "piped_ms": measured.piped_ms,
            "host_us": measured.host_us,
            "launch_us": measured.counts.launching.as_secs_f64() * 1e6 / measured.counts.replays.max(1) as f64, "first_s": measured.first_s, "compiles": measured.compiles,
            "graphs": measured.counts.graphs, "replays": measured.counts.replays, "commands": measured.counts.commands,
            "predicted_mib": measured.predicted >> 20, "counted_mib": measured.counted >> 20, "losses": losses,
        })
    );
    if let (Some(mut profile), Some(file)) = (measured.profile, file) {
        println!("{profile}");
        let path = std::path::Path::new(&file);
        fulgurite_models::durable::write(path, profile.to_chrome_trace().as_bytes())
            .map_err(|error| Error::File { path: file.clone(), message: error.to_string() })?;
        profile.spans.sort_by_key(|span| std::cmp::Reverse(span.time));
        for span in profile.spans.iter().take(40) {
            let line: String = span.line.chars().take(150).collect();
            println!("{:9.1} us  {line}", span.time.as_secs_f64() * 1e6);
        }
    }
    Ok(())
}
