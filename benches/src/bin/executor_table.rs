//! The table of executors: one model, several lists of executors, the time of its loss and of its loss with all
//! gradients, and memory. On the host or on a device by the same command:
//!
//! ```text
//! executor_table [--model llama|gpt2] [--size Llama-3.1-8B] [--set n_layer=1,n_embd=256] [--batch 1] [--context 128]
//!     [--device cpu|cuda] [--dtype f32|tf32|bf16|bf16-true] [--executors 'default;liger,default'] [--steps 10]
//!     [--python python3 --peers eager,compile]
//! ```
//!
//! Lists are separated by semicolons; `default` in a list stands for the default executors that it does not name.
//! `bf16` computes products in bf16 (autocast), `bf16-true` has parameters in bf16. Each list runs in a process of its
//! own, so that a peak of memory is its own. Times are medians of calls that are waited for. `planned GiB` is what the
//! memory plan of loss and gradients says, `device GiB` what the allocator counted at most, weights included. With
//! `--python`, PyTorch runs a decoder of these sizes (`peers/decoder_torch.py`), eager and compiled.

use std::process::Command;
use std::time::Instant;

use fulgurite_benches::gpt2::argument;
use fulgurite_benches::{log_to_stderr, median_of};
use fulgurite_models::dropout::Dropout;
use fulgurite_models::precision::rounded_to_tf32;
use fulgurite_models::step::{BatchTensors, loss_and_gradients};
use fulgurite_models::train::initial_parameters;
use fulgurite_models::{Family, Model, ModelConfig, Parameters, Tokenizer};
use fulgurite_ops::prelude::to;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::executor::find_executor;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Error, Result, Tensor, jit};
use serde_json::{Value, json};

/// Calls before any is timed.
const WARM: usize = 3;

fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}

/// What the command line asks for.
struct Asked {
    config: ModelConfig,
    device: Device,
    dtype: String,
    rows: usize,
    context: usize,
    steps: usize,
}

impl Asked {
    fn new() -> Result<Asked> {
        let text = |name: &str, otherwise: &str| argument(name).unwrap_or_else(|| otherwise.to_owned());
        let number = |name: &str, otherwise: &str| {
            let given = text(name, otherwise);
            given.parse::<usize>().map_err(|error| wrong(name, format!("is '{given}', expected a number: {error}")))
        };
        let family = match &*text("--model", "llama") {
            "llama" => Family::Llama,
            "gpt2" => Family::Gpt2,
            other => return Err(wrong("--model", format!("is '{other}', expected llama or gpt2"))),
        };
        let set: Vec<String> = text("--set", "").split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        let context = number("--context", "128")?;
        let config = ModelConfig::named(family, &text("--size", "nano"), &set, Some(context), &Tokenizer::bytes())?;
        config.validate().map_err(|error| wrong("--set", error))?;
        let device = Device::named(&text("--device", "cpu")).map_err(|error| wrong("--device", error))?;
        let (rows, steps) = (number("--batch", "1")?, number("--steps", "10")?);
        Ok(Asked { config, device, dtype: text("--dtype", "f32"), rows, context, steps })
    }

    /// How it is compiled with these executors.
    fn options(&self, executors: &str) -> Result<Options> {
        let autocast = (self.dtype == "bf16").then_some(DType::BF16);
        let device = (!self.device.is_cpu()).then_some(self.device);
        let options = Options { verify: false, autocast, device, ..Options::default() };
        let default = options.executor_list(self.device.kind());
        let names = || executors.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut list = Vec::new();
        for name in names() {
            match name {
                "default" => list.extend(default.iter().filter(|own| names().all(|name| name != own.name))),
                name => list.push(find_executor(name)?),
            }
        }
        match &*self.dtype {
            "f32" | "bf16" | "bf16-true" => {}
            "tf32" => list = rounded_to_tf32(&list),
            other => return Err(wrong("--dtype", format!("is '{other}', expected f32, tf32, bf16 or bf16-true"))),
        }
        Ok(Options { executors: Some(list), ..options })
    }

    /// The parameters on the device, in their element type.
    fn parameters(&self) -> Result<Parameters<Array>> {
        let parameters = initial_parameters(&self.config, 42)?;
        let device = (!self.device.is_cpu()).then_some(self.device);
        let options = Options { device, ..Options::default() };
        let dtype = if self.dtype == "bf16-true" { DType::BF16 } else { DType::F32 };
        let placed = jit(|parameters: Parameters<Tensor>| parameters.map(&mut |tensor| to(tensor, dtype)));
        placed.options(options).call(parameters)
    }

    fn batch(&self) -> Result<BatchTensors<Array>> {
        let token = |i: usize| (i * 7919 % self.config.vocabulary()) as i64;
        let shape = [self.rows, self.context];
        let tokens = |first: usize| -> Result<Array> {
            let ids: Vec<i64> = (first..first + self.rows * self.context).map(token).collect();
            Array::new(shape, &ids)?.to_device(self.device)
        };
        Ok(BatchTensors { tokens: tokens(0)?, targets: tokens(1)? })
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

    /// One list of executors in this process.
    fn one(&self, executors: &str) -> Result<Value> {
        let (parameters, batch, options) = (self.parameters()?, self.batch()?, self.options(executors)?);
        let model: &dyn Model = &self.config;
        let loss = jit(|(parameters, batch): (Parameters<Tensor>, BatchTensors<Tensor>)| {
            model.loss(&parameters, batch.tokens, batch.targets, &Dropout::none())
        })
        .options(options.clone());
        let both = jit(|(parameters, batch, generator): (Parameters<Tensor>, BatchTensors<Tensor>, Tensor)| {
            loss_and_gradients(model, parameters, &batch, generator)
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
    fn peer(&self, python: &str, mode: &str) -> std::result::Result<Value, String> {
        let ModelConfig::Decoder(config) = &self.config else { return Err("it is written for decoders".into()) };
        let script = argument("--script").unwrap_or_else(|| "benches/peers/decoder_torch.py".into());
        let config = serde_json::to_string(config).map_err(|error| error.to_string())?;
        let mut command = Command::new(python);
        command.args([&*script, "--mode", mode, "--config", &config, "--dtype", &self.dtype]);
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

fn row(who: &str, run: &Value) {
    let gib = |bytes: &Value| {
        bytes.as_u64().map_or_else(|| "-".into(), |bytes| format!("{:.3}", bytes as f64 / f64::from(1 << 30)))
    };
    let number = |value: &Value, digits: usize| value.as_f64().map_or_else(|| "-".into(), |x| format!("{x:.digits$}"));
    println!(
        "| {who} | {} | {} | {} | {} | {} |",
        number(&run["loss_ms"], 3),
        number(&run["both_ms"], 3),
        gib(&run["planned"]),
        gib(&run["device"]),
        number(&run["loss"], 5)
    );
}

fn main() -> Result<()> {
    log_to_stderr();
    let asked = Asked::new()?;
    if let Some(executors) = argument("--only") {
        println!("{}", asked.one(&executors)?);
        return Ok(());
    }
    let this = std::env::current_exe().map_err(|error| wrong("program", error))?;
    println!("{} x {} tokens, {}, {}:\n", asked.rows, asked.context, asked.dtype, asked.device);
    println!("| executors | loss ms | loss and gradients ms | planned GiB | device GiB | loss |");
    println!("|---|---|---|---|---|---|");
    for list in argument("--executors").unwrap_or_else(|| "default".into()).split(';') {
        let mut command = Command::new(&this);
        command.args(std::env::args().skip(1)).args(["--only", list]);
        row(list, &last_json(&mut command).map_err(|reason| wrong("--executors", format!("{list}: {reason}")))?);
    }
    if let Some(python) = argument("--python") {
        for mode in argument("--peers").unwrap_or_else(|| "eager,compile".into()).split(',') {
            match asked.peer(&python, mode) {
                Ok(run) => row(&format!("PyTorch, {mode}"), &run),
                Err(reason) => println!("\nPyTorch, {mode}, did not run: {reason}"),
            }
        }
    }
    Ok(())
}
