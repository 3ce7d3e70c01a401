//! A training step of GPT-2 on a device, measured.

use std::time::Instant;

use fulgurite_models::Parameters;
use fulgurite_models::batches::Batch;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::config::GptConfig;
use fulgurite_models::precision::rounded_to_tf32;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::{batch_arrays, step_scalars, zeros};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::program::{Profile, RunCounts};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{Array, DType, Device, Error, Result, Tensor, jit};

use crate::median_of;

/// Learning rate of every step.
pub const LEARNING_RATE: f64 = 1e-4;
/// Steps whose losses are kept, before any is timed.
pub const LOSSES: usize = 10;

type Arguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>);

/// What is measured.
pub struct Setting {
    /// The model.
    pub config: GptConfig,
    /// The optimizer's settings.
    pub optimizer: OptimizerSettings,
    /// How it is compiled, the device included.
    pub options: Options,
    /// Steps timed one by one, and again one after the other.
    pub steps: usize,
    /// Whether one more step is timed symbol by symbol.
    pub profile: bool,
}

/// What came out.
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
    /// The allocator's counter, in bytes.
    pub counted: u64,
    /// The step after the stage `claim`.
    pub claimed: Option<Trace>,
    /// If it was asked for.
    pub profile: Option<Profile>,
}

/// Trains on one batch over and over; `started` is when the process began.
pub fn measure(setting: &Setting, params: Parameters<Array>, batch: &Batch, started: Instant) -> Result<Measured> {
    let device = setting.options.device.unwrap_or(Device::new("cuda", 0));
    let state = DeviceState::of(device)?;
    let step = jit(|(state, batch, scalars): Arguments<Tensor>| {
        train_step(&setting.config, &setting.optimizer, state, batch, scalars)
    })
    .named("train_step")
    .arguments(["state", "batch", "scalars"])
    .results(["state", "loss", "grad_norm"])
    .donate("state")
    .options(Options { device: Some(device), ..setting.options.clone() });
    let zeros = || zeros(&setting.config, device);
    let mut training = TrainState { params, exp_avg: zeros()?, exp_avg_sq: zeros()? };
    let (mut losses, mut waited, mut first_s) = (Vec::new(), Vec::new(), 0.0);
    for number in 1..=LOSSES + setting.steps {
        let (batch, scalars) = (batch_arrays(batch)?, step_scalars(LEARNING_RATE, number as u64, 42)?);
        let start = Instant::now();
        let (next, loss, _) = step.call((training, batch, scalars))?;
        state.synchronize()?;
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
    state.synchronize()?;
    let piped_ms = start.elapsed().as_secs_f64() * 1e3 / setting.steps.max(1) as f64;
    let arguments = (training, batch_arrays(batch)?, step_scalars(LEARNING_RATE, 1, 42)?);
    let compiled = step.compile(&arguments)?;
    let counted = state.context().memory_held().peak as u64;
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

/// How products are computed: `f32` (IEEE), `tf32`, `bf16`; added to the options, with executors by name (none is the
/// default list).
pub fn options(dtype: &str, executors: &[&str]) -> Result<Options> {
    let autocast = (dtype == "bf16").then_some(DType::BF16);
    let options = Options { verify: false, autocast, device: Some(Device::new("cuda", 0)), ..Options::default() };
    let mut list = match executors {
        [] => options.executor_list("cuda"),
        names => names.iter().map(|name| fulgurite_runtime::executor::find_executor(name)).collect::<Result<_>>()?,
    };
    match dtype {
        "f32" | "bf16" => {}
        "tf32" => list = rounded_to_tf32(&list),
        other => {
            return Err(Error::Argument {
                argument: "dtype".into(),
                message: format!("is '{other}', expected f32, tf32 or bf16"),
            });
        }
    }
    Ok(Options { executors: Some(list), ..options })
}

/// GPT-2 of a named size as the peer has it: the vocabulary padded to a multiple of 128.
pub fn config(size: &str, context: usize) -> Result<GptConfig> {
    let mut config = GptConfig::named(size, 50_304)
        .map_err(|error| Error::Argument { argument: "size".into(), message: error.to_string() })?;
    config.context = config.context.max(context);
    Ok(config)
}

/// The value of a named argument of the command line.
pub fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}
