//! The table of executors: one model, several lists of executors, the time of its loss and of its loss with all
//! gradients, or of its training step, and memory. On the host or on a device by the same command:
//!
//! ```text
//! executor_table [--model llama|gpt2] [--size Llama-3.1-8B] [--set n_layer=1,n_embd=256] [--batch 1] [--context 128]
//!     [--what loss|step] [--device cpu|cuda] [--precision 32-true|tf32|bf16-mixed|bf16-true] [--threads 2]
//!     [--executors 'default;liger,default'] [--steps 10] [--python python3 --peers eager,compile --peer-threads 1,2]
//!     [--plot FILE.svg [--against FILE]]
//! ```
//!
//! Lists are separated by semicolons; `default` in a list stands for the default executors that it does not name. Each
//! list runs in a process of its own, so that a peak of memory is its own. Times are medians of calls that are waited
//! for; `enqueued ms` is that of steps enqueued one after the other. `planned GiB` is what the memory plan says,
//! `device GiB` what the allocator counted at most, weights included. A step is AdamW's: all parameters decay, nothing
//! is clipped. With `--python`, PyTorch runs a decoder of these sizes (`peers/decoder_torch.py`), eager and compiled,
//! on the host with each number of threads.

use std::process::Command;
use std::time::Instant;

use fulgurite_benches::plot::{Drawing, Field};
use fulgurite_benches::step::{Setting, batch, measure, options};
use fulgurite_benches::weights::drawn;
use fulgurite_benches::{argument, log_to_stderr, median_of, number, wrong};
use fulgurite_models::dropout::Dropout;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::step::{BatchTensors, loss_and_gradients};
use fulgurite_models::train::batch_arrays;
use fulgurite_models::{Family, Model, ModelConfig, Parameters, Tokenizer};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::{Array, Device, Result, Tensor, jit};
use serde_json::{Value, json};

/// Calls before any is timed.
const WARM: usize = 3;

/// What the command line asks for.
struct Asked {
    config: ModelConfig,
    device: Device,
    precision: Precision,
    /// Whether it is a training step.
    step: bool,
    rows: usize,
    context: usize,
    steps: usize,
}

impl Asked {
    fn new() -> Result<Asked> {
        let text = |name: &str, otherwise: &str| argument(name).unwrap_or_else(|| otherwise.to_owned());
        let family = match &*text("--model", "llama") {
            "llama" => Family::Llama,
            "gpt2" => Family::Gpt2,
            other => return Err(wrong("--model", format!("is '{other}', expected llama or gpt2"))),
        };
        let set: Vec<String> = text("--set", "").split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        let context = number("--context", 128)?;
        let config = ModelConfig::named(family, &text("--size", "nano"), &set, Some(context), &Tokenizer::bytes())?;
        config.validate().map_err(|error| wrong("--set", error))?;
        let device = Device::named(&text("--device", "cpu")).map_err(|error| wrong("--device", error))?;
        let (rows, steps) = (number("--batch", 1)?, number("--steps", 10)?);
        let precision = text("--precision", "32-true").parse().map_err(|message| wrong("--precision", message))?;
        let step = match &*text("--what", "loss") {
            "loss" => false,
            "step" => true,
            other => return Err(wrong("--what", format!("is '{other}', expected loss or step"))),
        };
        Ok(Asked { config, device, precision, step, rows, context, steps })
    }

    /// How it is compiled with these executors.
    fn options(&self, executors: &str) -> Result<Options> {
        let names: Vec<&str> = executors.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        options(self.device, &names)
    }

    fn batch(&self) -> Result<BatchTensors<Array>> {
        let BatchTensors { inputs, targets, .. } =
            batch_arrays(&batch(self.config.vocabulary(), self.rows, self.context))?;
        Ok(BatchTensors::of_tokens(inputs.to_device(self.device)?, targets.to_device(self.device)?))
    }

    /// The median time of `call`, in milliseconds.
    fn time(&self, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
        let state = (!self.device.is_cpu()).then(|| DeviceState::of(self.device)).transpose()?;
        let mut times = Vec::new();
        for number in 0..WARM + self.steps.max(1) {
            let start = Instant::now();
            call()?;
            if let Some(state) = &state {
                state.synchronize()?;
            }
            if number >= WARM {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(median_of(times))
    }

    /// A training step by one list of executors in this process.
    fn training(&self, executors: &str) -> Result<Value> {
        let setting = Setting {
            config: self.config.clone(),
            precision: self.precision,
            optimizer: OptimizerSettings { clip: None, beta2: 0.95, weight_decay: 0.1, ..OptimizerSettings::default() },
            options: self.options(executors)?,
            steps: self.steps,
            profile: false,
        };
        let batch = batch(self.config.vocabulary(), self.rows, self.context);
        let weights = drawn(&self.config, self.precision.parameters(), self.device)?;
        let measured = measure(&setting, weights, &batch, Instant::now())?;
        Ok(json!({"waited_ms": measured.waited_ms, "piped_ms": measured.piped_ms, "planned": measured.predicted,
            "device": (!self.device.is_cpu()).then_some(measured.counted), "loss": measured.losses.first()}))
    }

    /// One list of executors in this process.
    fn one(&self, executors: &str) -> Result<Value> {
        if self.step {
            return self.training(executors);
        }
        let options = self.precision.compile_options(&self.options(executors)?)?;
        let parameters = drawn(&self.config, self.precision.parameters(), self.device)?;
        let batch = self.batch()?;
        let model: &dyn Model = &self.config;
        let loss = jit(|(parameters, batch): (Parameters<Tensor>, BatchTensors<Tensor>)| {
            model.loss(&parameters, batch.inputs, batch.targets, &Dropout::none())
        })
        .options(options.clone());
        let both = jit(|(parameters, batch, generator): (Parameters<Tensor>, BatchTensors<Tensor>, Tensor)| {
            loss_and_gradients(model, parameters, &Parameters::none(), &batch, generator)
        })
        .options(options);
        let loss_ms = self.time(|| loss.call((parameters.clone(), batch.clone())).map(drop))?;
        let generator = Array::new([2], &[42_i64, 0])?.to_device(self.device)?;
        let arguments = || (parameters.clone(), batch.clone(), generator.clone());
        let both_ms = self.time(|| both.call(arguments()).map(drop))?;
        let planned = both.compile(&arguments())?.program().memory().peak();
        let device = match self.device.is_cpu() {
            true => None,
            false => Some(DeviceState::of(self.device)?.context().memory_held().peak as u64),
        };
        let value = both.call(arguments())?.0.item()?;
        Ok(json!({"loss_ms": loss_ms, "both_ms": both_ms, "planned": planned, "device": device, "loss": value}))
    }

    /// PyTorch in a process of its own.
    fn peer(&self, python: &str, mode: &str, threads: Option<&str>) -> std::result::Result<Value, String> {
        let ModelConfig::Decoder(config) = &self.config else { return Err("it is written for decoders".into()) };
        let script = argument("--script").unwrap_or_else(|| "benches/peers/decoder_torch.py".into());
        let config = serde_json::to_string(config).map_err(|error| error.to_string())?;
        let mut command = Command::new(python);
        command.args([&*script, "--mode", mode, "--config", &config, "--precision", self.precision.name()]);
        command.args(["--what", if self.step { "step" } else { "loss" }]);
        if let Some(threads) = threads {
            command.args(["--threads", threads]);
        }
        command.args(["--device", self.device.kind(), "--batch", &self.rows.to_string()]);
        command.args(["--context", &self.context.to_string(), "--steps", &self.steps.to_string()]);
        last_json(&mut command)
    }
}

/// Runs a command that prints a line of JSON last.
fn last_json(command: &mut Command) -> std::result::Result<Value, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rfind(|line| line.starts_with('{'));
    last.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        error.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed no result").to_owned()
    })
}

/// The columns of the table: titles, and the fields of a run with the digits that are told of them; of memory, none.
fn columns(step: bool) -> [(&'static str, &'static str, Option<usize>); 5] {
    let [first, second] = match step {
        false => [("loss ms", "loss_ms", Some(3)), ("loss and gradients ms", "both_ms", Some(3))],
        true => [("step ms", "waited_ms", Some(3)), ("enqueued ms", "piped_ms", Some(3))],
    };
    [first, second, ("planned GiB", "planned", None), ("device GiB", "device", None), ("loss", "loss", Some(5))]
}

fn row(who: &str, run: &Value, step: bool) {
    let gib = |bytes: u64| format!("{:.3}", bytes as f64 / f64::from(1 << 30));
    let cells = columns(step).map(|(_, field, digits)| {
        let value = &run[field];
        let told = match digits {
            None => value.as_u64().map(gib),
            Some(digits) => value.as_f64().map(|number| format!("{number:.digits$}")),
        };
        told.unwrap_or_else(|| "-".into())
    });
    println!("| {who} | {} |", cells.join(" | "));
}

/// The panels of the table's picture.
fn panels(step: bool) -> Vec<Field> {
    let times: [Field; 2] = match step {
        false => [("loss, ms", &["loss_ms"]), ("loss and gradients, ms", &["both_ms"])],
        true => [("step, ms", &["waited_ms", "ms"]), ("step of many enqueued, ms", &["piped_ms"])],
    };
    let memory: [Field; 2] =
        [("planned memory, GiB", &["planned_gib"]), ("memory of the device, GiB", &["device_gib"])];
    [times, memory].concat()
}

/// Draws the table, if that is asked for.
fn draw(drawing: Option<Drawing>, asked: &Asked, rows: &[(String, Value)]) -> Result<()> {
    let Some(drawing) = drawing else { return Ok(()) };
    let rows: Vec<(String, Value)> = rows.iter().cloned().map(|(who, run)| (who, with_gib(run))).collect();
    let what = if asked.step { "training step" } else { "loss" };
    let model = asked.config.family();
    let heading =
        format!("{model}, {what}: {} x {} tokens, {}, {}", asked.rows, asked.context, asked.precision, asked.device);
    drawing.draw(&heading, &rows)
}

/// A run whose bytes are GiB too.
fn with_gib(mut run: Value) -> Value {
    for (bytes, gib) in [("planned", "planned_gib"), ("device", "device_gib")] {
        if let Some(bytes) = run[bytes].as_u64() {
            run[gib] = json!(bytes as f64 / f64::from(1 << 30));
        }
    }
    run
}

fn main() -> Result<()> {
    fulgurite_benches::require_release()?;
    log_to_stderr();
    let asked = Asked::new()?;
    if let Some(executors) = argument("--only") {
        println!("{}", asked.one(&executors)?);
        return Ok(());
    }
    let drawing = Drawing::asked(&panels(asked.step))?;
    let this = std::env::current_exe().map_err(|error| wrong("program", error))?;
    println!("{} x {} tokens, {}, {}:\n", asked.rows, asked.context, asked.precision, asked.device);
    println!("| executors | {} |", columns(asked.step).map(|(title, ..)| title).join(" | "));
    println!("|---|---|---|---|---|---|");
    let mut rows: Vec<(String, Value)> = Vec::new();
    for list in argument("--executors").unwrap_or_else(|| "default".into()).split(';') {
        let mut command = Command::new(&this);
        command.args(std::env::args().skip(1)).args(["--only", list]);
        if let Some(threads) = argument("--threads") {
            command.env("RAYON_NUM_THREADS", threads);
        }
        let run = last_json(&mut command).map_err(|reason| wrong("--executors", format!("{list}: {reason}")))?;
        row(list, &run, asked.step);
        rows.push((list.to_owned(), run));
    }
    let Some(python) = argument("--python") else { return draw(drawing, &asked, &rows) };
    let counts = argument("--peer-threads");
    let counts: Vec<Option<&str>> = counts.as_deref().map_or(vec![None], |list| list.split(',').map(Some).collect());
    for mode in argument("--peers").unwrap_or_else(|| "eager,compile".into()).split(',') {
        for threads in &counts {
            let who = threads.map_or(format!("PyTorch, {mode}"), |count| format!("PyTorch, {mode}, {count} threads"));
            match asked.peer(&python, mode, *threads) {
                Ok(run) => {
                    row(&who, &run, asked.step);
                    rows.push((who, run));
                }
                Err(reason) => println!("\n{who}, did not run: {reason}"),
            }
        }
    }
    draw(drawing, &asked, &rows)
}
