//! A training step of GPT-2 or a Llama on a CUDA device, or on the host, as `peers/gpt2_torch.py` and
//! `peers/decoder_torch.py` run it in PyTorch:
//!
//! ```text
//! device_step [--model gpt2|llama] [--size 124M] [--set n_layer=2,...] [--batch 4] [--context 64] [--device cuda|cpu]
//!     [--precision 32-true|tf32|bf16-mixed|bf16-true] [--executors llmc,default] [--steps 20] [--profile FILE]
//!     [--plot FILE.svg [--against FILE]]
//! ```
//!
//! Prints one line of JSON: milliseconds a step (each waited for, and enqueued one after the other), the host's time
//! for one replay, memory predicted and counted, and the losses of the first ten steps. `--profile` times one more step
//! symbol by symbol: a table, and a file for Perfetto. `--plot` draws the step beside those of peers, whose lines of
//! JSON are in the file of `--against`.

use std::time::Instant;

use fulgurite_benches::plot::{Drawing, Field};
use fulgurite_benches::step::{Setting, batch, gpt2, measure, options};
use fulgurite_benches::weights::drawn;
use fulgurite_benches::{argument, number, wrong};
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::train::initial_parameters;
use fulgurite_models::{Family, Model, ModelConfig, Tokenizer};
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::{Device, Error, Result};

fn main() -> Result<()> {
    let started = Instant::now();
    fulgurite_benches::log_to_stderr();
    let fields: [Field; 3] = [
        ("step, ms", &["ms"]),
        ("step of many enqueued, ms", &["piped_ms"]),
        ("memory, MiB", &["counted_mib", "peak_mib"]),
    ];
    let drawing = Drawing::asked(&fields)?;
    let (rows, context, steps) = (number("--batch", 4)?, number("--context", 64)?, number("--steps", 20)?);
    let size = argument("--size").unwrap_or_else(|| "124M".into());
    let device = Device::named(argument("--device").as_deref().unwrap_or("cuda"));
    let device = device.map_err(|error| wrong("--device", error))?;
    let precision = argument("--precision").unwrap_or_else(|| Precision::F32True.to_string());
    let precision: Precision = precision.parse().map_err(|message| wrong("--precision", message))?;
    // GPT-2's vocabulary is padded, and has no tokens in the padding.
    let (config, ids) = match argument("--model").as_deref() {
        None | Some("gpt2") => (ModelConfig::from(gpt2(&size, context)?), 50_257),
        Some("llama") => {
            let set: Vec<String> = argument("--set").iter().flat_map(|all| all.split(',')).map(str::to_owned).collect();
            let config = ModelConfig::named(Family::Llama, &size, &set, Some(context), &Tokenizer::bytes())?;
            config.validate().map_err(|error| wrong("--set", error))?;
            let ids = config.vocabulary();
            (config, ids)
        }
        Some(other) => return Err(wrong("--model", format!("is '{other}', expected gpt2 or llama"))),
    };
    let executors = argument("--executors").unwrap_or_default();
    let names: Vec<&str> = executors.split(',').filter(|name| !name.is_empty()).collect();
    let file = argument("--profile");
    let setting = Setting {
        config,
        precision,
        // The peers decay everything and do not clip.
        optimizer: OptimizerSettings { clip: None, beta2: 0.95, weight_decay: 0.1, ..OptimizerSettings::default() },
        options: options(device, &names)?,
        steps,
        profile: file.is_some(),
    };
    let batch = batch(ids, rows, context);
    let _opening = setting.options.device.map(DeviceState::open_ahead);
    let parameters = match setting.config.family() {
        // The peer starts with the same.
        Family::Gpt2 => initial_parameters(&setting.config, 42)?,
        Family::Llama => drawn(&setting.config, precision.parameters(), device)?,
    };
    tracing::debug!("initial weights made");
    let measured = measure(&setting, parameters, &batch, started)?;
    let losses: Vec<f64> = measured.losses.iter().map(|loss| (loss * 1e5).round() / 1e5).collect();
    let line = serde_json::json!({
            "who": "fulgurite", "size": size, "precision": precision.name(), "executors": executors,
            "B": rows, "T": context, "ms": measured.waited_ms, "piped_ms": measured.piped_ms,
            "host_us": measured.host_us,
            "launch_us": measured.counts.launching.as_secs_f64() * 1e6 / measured.counts.replays.max(1) as f64, "first_s": measured.first_s, "compiles": measured.compiles,
            "graphs": measured.counts.graphs, "replays": measured.counts.replays, "commands": measured.counts.commands,
            "predicted_mib": measured.predicted >> 20, "counted_mib": measured.counted >> 20, "losses": losses,
    });
    println!("{line}");
    let family = setting.config.family();
    let heading = format!("{family} {size}, a step of {rows} x {context} tokens, {precision}");
    drawing.map_or(Ok(()), |drawing| drawing.draw(&heading, &[("fulgurite".into(), line)]))?;
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
