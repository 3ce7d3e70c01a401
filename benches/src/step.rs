//! A training step of a model on the host or on a device, measured.

use std::time::Instant;

use fulgurite_models::batches::Batch;
use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::{batch_arrays, step_scalars, zeros};
use fulgurite_models::{ModelConfig, Parameters, placed, rounded_copies};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::executor::DEFAULT;
use fulgurite_runtime::program::{Profile, RunCounts};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{Array, Device, Result, Tensor, jit};

use crate::{median_of, wrong};

/// Learning rate of every step.
pub const LEARNING_RATE: f64 = 1e-4;
/// Steps whose losses are kept, before any is timed.
pub const LOSSES: usize = 10;

type Arguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>);

/// The settings of a benchmark of training steps.
pub struct Setting {
    /// The model.
    pub config: ModelConfig,
    /// The optimizer's settings.
    pub optimizer: OptimizerSettings,
    /// Element types of parameters and products.
    pub precision: Precision,
    /// How it is compiled, the device included.
    pub options: Options,
    /// Steps timed one by one, and again one after the other.
    pub steps: usize,
    /// Whether one more step is timed symbol by symbol.
    pub profile: bool,
}

/// The results of a benchmark of training steps.
pub struct Measured {
    /// Losses of the first [`LOSSES`] steps.
    pub losses: Vec<f64>,
    /// Median of a step that is waited for, in milliseconds.
    pub waited_ms: f64,
    /// A step of many enqueued one after the other, in milliseconds.
    pub piped_ms: f64,
    /// Median of the host's time for one of these, in microseconds.
    pub host_us: f64,
    /// From `started` to the end of the first step, in seconds.
    pub first_s: f64,
    /// How often the step was compiled.
    pub compiles: usize,
    /// Runs, graphs and replays.
    pub counts: RunCounts,
    /// The plan's peak, in bytes.
    pub predicted: u64,
    /// What the allocator counted at most, in bytes.
    pub counted: u64,
    /// The step after the stage `claim`.
    pub claimed: Option<Trace>,
    /// If it was asked for.
    pub profile: Option<Profile>,
}

/// Trains on one batch over and over; `started` is when the process began.
pub fn measure(setting: &Setting, params: Parameters<Array>, batch: &Batch, started: Instant) -> Result<Measured> {
    let device = setting.options.device.unwrap_or(Device::CPU);
    let state = (!device.is_cpu()).then(|| DeviceState::of(device)).transpose()?;
    let finish = || state.as_ref().map_or(Ok(()), |state| state.synchronize());
    let step = jit(|(state, batch, scalars): Arguments<Tensor>| {
        train_step(&setting.config, &setting.optimizer, state, batch, scalars)
    })
    .named("train_step")
    .arguments(["state", "batch", "scalars"])
    .results(["state", "loss", "grad_norm"])
    .donate("state")
    .options(setting.precision.compile_options(&setting.options)?);
    let dtype = setting.precision.parameters();
    let params = placed(params, dtype, device)?;
    let zeros = || zeros(&setting.config, dtype, device);
    let copies = rounded_copies(&setting.config, &params, setting.precision.copies())?;
    let mut training =
        TrainState { params, exp_avg: zeros()?, exp_avg_sq: zeros()?, copies, buffers: Parameters::none() };
    let (mut losses, mut waited, mut first_s) = (Vec::new(), Vec::new(), 0.0);
    for number in 1..=LOSSES + setting.steps {
        let (batch, scalars) = (batch_arrays(batch)?, step_scalars(LEARNING_RATE, number as u64, 42)?);
        let start = Instant::now();
        let (next, loss, _) = step.call((training, batch, scalars))?;
        finish()?;
        let elapsed = start.elapsed();
        training = next;
        if number == 1 {
            first_s = started.elapsed().as_secs_f64();
        }
        match number <= LOSSES {
            true => losses.push(loss.item()?),
            false => waited.push(elapsed.as_secs_f64() * 1e3),
        }
    }
    // Enqueued one after the other: the device is never idle, and the host's own time is what a call takes.
    let (start, mut host) = (Instant::now(), Vec::new());
    for number in 0..setting.steps as u64 {
        let arguments = (training, batch_arrays(batch)?, step_scalars(LEARNING_RATE, 100 + number, 42)?);
        let called = Instant::now();
        let (next, _, _) = step.call(arguments)?;
        host.push(called.elapsed().as_secs_f64() * 1e6);
        training = next;
    }
    finish()?;
    let piped_ms = start.elapsed().as_secs_f64() * 1e3 / setting.steps.max(1) as f64;
    let arguments = (training, batch_arrays(batch)?, step_scalars(LEARNING_RATE, 1, 42)?);
    let compiled = step.compile(&arguments)?;
    let counted = match &state {
        Some(state) => state.context().memory_held().peak,
        None => fulgurite_kernels::buffer::peak_bytes(),
    } as u64;
    let profile = setting.profile.then(|| step.profile(arguments)).transpose()?.map(|(_, profile)| profile);
    Ok(Measured {
        losses,
        waited_ms: median_of(waited),
        piped_ms: (piped_ms * 1e3).round() / 1e3,
        host_us: median_of(host),
        first_s: (first_s * 100.0).round() / 100.0,
        compiles: step.compiles(),
        counts: compiled.program().counts().unwrap_or_default(),
        predicted: compiled.program().memory().peak(),
        counted,
        claimed: compiled.stage("claim").cloned(),
        profile,
    })
}

/// Options for `device` with executors by name; none is the default list.
pub fn options(device: Device, names: &[&str]) -> Result<Options> {
    let device = (!device.is_cpu()).then_some(device);
    let options = Options { verify: false, device, ..Options::default() };
    options.with_executors(if names.is_empty() { &[DEFAULT] } else { names })
}

/// Tokens below `ids`, and after each the next one.
pub fn batch(ids: usize, rows: usize, context: usize) -> Batch {
    let token = |i: usize| (i * 7919 % ids) as i64;
    let inputs = (0..rows * context).map(token).collect();
    Batch { inputs, targets: (1..=rows * context).map(token).collect(), rows, context }
}

/// GPT-2 of a named size as the peer has it: the vocabulary padded to a multiple of 128.
pub fn gpt2(size: &str, context: usize) -> Result<GptConfig> {
    let mut config = GptConfig::named(size, 50_304).map_err(|error| wrong("size", error))?;
    config.context = config.context.max(context);
    Ok(config)
}
