//! Training GPT-2: the loop around the compiled step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fulgurite::compile::{Options, compile};
use fulgurite::device::DeviceState;
use fulgurite::jit::Jit;
use fulgurite::program::Profile;
use fulgurite::tree::Tree;
use fulgurite::{Array, DType, Device, Error, Result};
use fulgurite_ops::prelude::Tensor;
use indicatif::{ProgressBar, ProgressStyle};

use crate::batches::{Batch, Batches, Order, validation_batches};
use crate::checkpoint::{Checkpoint, FIRST_MOMENT, OptimizerSettings, SECOND_MOMENT, TrainingState};
use crate::config::GptConfig;
use crate::generate::{Sampling, generate};
use crate::gpt2::{Dropout, Gpt2};
use crate::host_tensor::HostTensor;
use crate::initialize::initialize;
use crate::schedule::Schedule;
use crate::step::{BatchTensors, StepScalars, TrainState, accumulate_step, train_step, update};
use crate::tokenizer::Tokenizer;
use crate::traces::train_step_trace;
use crate::{resume, training_data, weight_files};

/// What to train, on what, and for how long.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Name of a size: `nano`, `micro`, `124M`, ...; not looked at where `init` is given.
    pub size: String,
    /// Weights to start from, in any format of [`weight_files::Format`]; random ones if absent. The size is that of the file, also
    /// when the run is resumed.
    pub init: Option<PathBuf>,
    /// `gpt2` or `bytes`; if absent, that of `init`, or else `bytes`.
    pub tokenizer: Option<String>,
    /// Text files or llm.c's shards of tokens; tinyshakespeare if there are none.
    pub data: Vec<PathBuf>,
    /// Files to validate with; the last tenth of the data if there are none.
    pub validation: Vec<PathBuf>,
    /// Optimizer steps in all, those of a resumed run included.
    pub steps: u64,
    /// B, sequences in a batch.
    pub batch: usize,
    /// T, tokens in a sequence; the size's context if absent. A model of random weights gets this context; with `init`, sequences may
    /// be shorter than the model's context.
    pub context: Option<usize>,
    /// Batches whose gradients are added for one step.
    pub accumulate: usize,
    /// Peak learning rate.
    pub lr: f64,
    /// Learning rate at the end, as a part of the peak.
    pub final_lr: f64,
    /// Steps until the peak.
    pub warmup: u64,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// Probability of dropping a value.
    pub dropout: f64,
    /// Seed of the weights, the order of the data and dropout.
    pub seed: u64,
    /// Validation loss every so many steps, and at the end; 0 only at the end.
    pub evaluate_every: u64,
    /// Validation batches.
    pub evaluate_batches: usize,
    /// Checkpoint every so many steps, and at the end; 0 only at the end.
    pub save_every: u64,
    /// Tokens of sample text at the end.
    pub sample_tokens: usize,
    /// The prompt of the sample text.
    pub prompt: String,
    /// Folder for the checkpoint and the traces.
    pub out: PathBuf,
    /// Whether one more step is timed symbol by symbol at the end, for `profile.json` in `out`. The checkpoint is not changed.
    pub profile: bool,
    /// Continue from the checkpoint in `out`.
    pub resume: bool,
    /// Start anew even though `out` holds a checkpoint, and replace it. Without this and `resume`, such a folder is refused.
    pub overwrite: bool,
    /// How it is compiled.
    pub compile: Options,
    /// Once it is set the run ends after the step at hand, with a checkpoint.
    pub stop: Option<Arc<AtomicBool>>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainReport {
    /// Steps done, those before a resumption included.
    pub steps: u64,
    /// Whether [`TrainOptions::stop`] ended it.
    pub stopped: bool,
    /// Training loss of each step of this run; empty if the checkpoint had them all.
    pub losses: Vec<f64>,
    /// Validation loss at the end; none if there was nothing to do.
    pub validation_loss: Option<f64>,
    /// Tokens a second, compilation left out; 0 for fewer than two steps.
    pub tokens_per_second: f64,
    /// Text sampled at the end; empty if there was nothing to do.
    pub sample: String,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The folder of traces.
    pub traces: PathBuf,
    /// How often the step was compiled.
    pub compiles: usize,
}

pub(crate) fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}

fn to_array(tensor: &HostTensor) -> Result<Array> {
    Array::from_bytes(tensor.shape(), tensor.dtype(), tensor.bytes())
}

pub(crate) fn to_host(array: &Array) -> Result<HostTensor> {
    HostTensor::new(array.dtype(), array.shape(), array.to_bytes()?).map_err(|error| wrong("tensor", error))
}

/// Parameters of `config`, drawn from `seed`.
pub fn initial_parameters(config: &GptConfig, seed: u64) -> Result<Gpt2<Array>> {
    let rules = config.parameters();
    let mut rules = rules.iter();
    Gpt2::build(config, &mut |name, shape| {
        let rule = rules.next().filter(|rule| rule.name == name && rule.shape == shape);
        let rule = rule.ok_or_else(|| wrong(name, "is not the configuration's next parameter"))?;
        Array::written(shape, |values| initialize(rule, seed, values))
    })
}

/// Parameters from tensors by name.
pub fn parameters_from(
    config: &GptConfig,
    tensors: &BTreeMap<String, HostTensor>,
    prefix: &str,
) -> Result<Gpt2<Array>> {
    Gpt2::build(config, &mut |name, shape| {
        let name = format!("{prefix}{name}");
        let tensor = tensors.get(&name).ok_or_else(|| wrong(&name, "is missing in the checkpoint"))?;
        if tensor.shape() != shape || tensor.dtype() != DType::F32 {
            let found = format!("is {}{:?} in the checkpoint, expected f32{shape:?}", tensor.dtype(), tensor.shape());
            return Err(wrong(&name, found));
        }
        to_array(tensor)
    })
}

/// Zeros of the parameters' shapes, in f32, on `device`: moments, and sums of gradients, at their start.
pub fn zeros(config: &GptConfig, device: Device) -> Result<Gpt2<Array>> {
    Gpt2::build(config, &mut |_, shape| Array::zeros_on(device, shape, DType::F32))
}

fn next_batch(batches: &mut Batches) -> Result<Batch> {
    batches.next_batch().map_err(|error| wrong("data", error))
}

/// A batch as arrays.
pub fn batch_arrays(batch: &Batch) -> Result<BatchTensors<Array>> {
    let shape = [batch.rows, batch.context];
    Ok(BatchTensors { tokens: Array::new(shape, &batch.inputs)?, targets: Array::new(shape, &batch.targets)? })
}

/// The numbers of step `step` (from 1).
pub fn step_scalars(lr: f64, step: u64, seed: u64) -> Result<StepScalars<Array>> {
    Ok(StepScalars {
        lr: Array::scalar(lr as f32),
        step: Array::scalar(step as f32),
        // Each step draws from a part of the sequence of its own; within a step places are 2^40 apart.
        generator: Array::new([2], &[seed as i64, (step as i64).wrapping_shl(48)])?,
    })
}

/// Writes every stage of a compiled function as text.
pub fn write_stages(folder: &Path, stages: &[fulgurite::compile::Stage]) -> Result<()> {
    let failed = |path: &Path, error: std::io::Error| Error::File {
        path: path.display().to_string(),
        message: error.to_string(),
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (i, stage) in stages.iter().enumerate() {
        let path = folder.join(format!("{i:02}_{}.trace", stage.name));
        crate::durable::write(&path, stage.trace.to_string().as_bytes()).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// Writes a profile as a file for trace viewers, and tells it as a table.
fn write_profile(folder: &Path, profile: &Profile, line: &mut dyn FnMut(&str)) -> Result<()> {
    let path = folder.join("profile.json");
    crate::durable::write(&path, profile.to_chrome_trace().as_bytes())
        .map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })?;
    line(&format!("{profile}\nprofile: {}", path.display()));
    Ok(())
}

/// The note of a checkpoint that says in what its step was computed.
pub const COMPUTE_DTYPE: &str = "compute_dtype";

/// What products are computed in. Weights and moments are f32 whatever it is.
pub(crate) fn compute_dtype(compile: &Options) -> &'static str {
    crate::precision::compute_dtype(compile.autocast, compile.executors.as_deref())
}

pub(crate) fn schedule_of(options: &TrainOptions) -> Schedule {
    Schedule {
        peak: options.lr,
        floor: options.lr * options.final_lr,
        warmup_steps: options.warmup,
        total_steps: options.steps,
    }
}

/// Where the steps run.
fn device_of(options: &TrainOptions) -> Device {
    options.compile.device.unwrap_or(Device::CPU)
}

struct Run {
    config: GptConfig,
    tokenizer: Tokenizer,
    state: TrainState<Array>,
    done: u64,
    batches: Batches,
    validation: Vec<Batch>,
    /// Settings other than those of the checkpoint that it continues from.
    changed: Vec<String>,
}

/// Refuses a model that does not fit before its weights are made, which takes minutes where they are many: by the plan of its
/// step, or, where gradients are accumulated over several programs, by what weights, moments and gradients take.
fn within_memory(options: &TrainOptions, config: &GptConfig, context: usize) -> Result<()> {
    let Some(limit) = options.compile.memory_limit else { return Ok(()) };
    let weights = (config.parameter_count() as u64).saturating_mul(4);
    let (resident, transient) = (weights.saturating_mul(3), weights);
    let least = resident.saturating_add(transient);
    if least > limit {
        return Err(Error::PlanTooLarge { predicted: least, resident, transient, limit });
    }
    // What is small beside the limit is planned when it is compiled.
    if options.accumulate > 1 || least < limit / 8 {
        return Ok(());
    }
    let trace = train_step_trace(config, &options.optimizer, options.batch, context)?;
    compile(trace, &options.compile).map(drop)
}

fn prepare(options: &TrainOptions, checkpoint: &Path) -> Result<Run> {
    let initial = options.init.as_deref().map(|path| weight_files::load(path, None)).transpose();
    let initial = initial.map_err(|error| wrong("init", error))?;
    let tokenizer = match (&options.tokenizer, &initial) {
        (Some(name), _) => Tokenizer::from_name(name).map_err(|error| wrong("tokenizer", error))?,
        (None, Some(loaded)) => loaded.tokenizer().map_err(|error| wrong("init", error))?,
        (None, None) => Tokenizer::bytes(),
    };
    let mut config = match &initial {
        Some(loaded) => loaded.weights.config().clone(),
        None => {
            let named = GptConfig::named(&options.size, tokenizer.vocabulary());
            let named = named.map_err(|error| wrong("size", error))?;
            GptConfig { context: options.context.unwrap_or(named.context), ..named }
        }
    };
    config.dropout = options.dropout;
    config.validate().map_err(|error| wrong("model", error))?;
    let context = options.context.unwrap_or(config.context);
    if !(1..=config.context).contains(&context) {
        return Err(wrong("context", format!("is {context}, the model of 'init' takes 1 to {}", config.context)));
    }
    if config.vocabulary < tokenizer.vocabulary() {
        let (name, ids) = (tokenizer.name(), tokenizer.vocabulary());
        let message = format!("'{name}' has {ids} ids, the model of 'init' has a vocabulary of {}", config.vocabulary);
        return Err(wrong("tokenizer", message));
    }
    within_memory(options, &config, context)?;
    let saved = match options.resume {
        true => Some(resume::continued(options, checkpoint, &config, tokenizer.name(), context)?),
        false => None,
    };
    let (train, validation) =
        training_data::open(&options.data, &options.validation, tokenizer).map_err(|error| wrong("data", error))?;
    let validation = validation_batches(&validation, options.batch, context, options.evaluate_batches)
        .map_err(|error| wrong("validation data", error))?;
    if let Some(saved) = saved {
        let Checkpoint { state: stored, tensors } = saved;
        let changed = resume::changed(options, &stored);
        let batches = Batches::resume(train, stored.data).map_err(|error| wrong("data", error))?;
        let state = TrainState {
            params: parameters_from(&config, &tensors, "")?,
            exp_avg: parameters_from(&config, &tensors, FIRST_MOMENT)?,
            exp_avg_sq: parameters_from(&config, &tensors, SECOND_MOMENT)?,
        };
        return Ok(Run { state, done: stored.step, batches, validation, tokenizer, config, changed });
    }
    let device = device_of(options);
    let batches = Batches::new(train, options.batch, context, Order::Shuffled, options.seed)
        .map_err(|error| wrong("data", error))?;
    let state = TrainState {
        params: match &initial {
            Some(loaded) => loaded.weights.params()?,
            None => initial_parameters(&config, options.seed)?,
        },
        exp_avg: zeros(&config, device)?,
        exp_avg_sq: zeros(&config, device)?,
    };
    Ok(Run { state, done: 0, batches, validation, tokenizer, config, changed: Vec::new() })
}

fn save(path: &Path, run: &Run, options: &TrainOptions) -> Result<()> {
    let mut tensors = BTreeMap::new();
    for (prefix, tree) in
        [("", &run.state.params), (FIRST_MOMENT, &run.state.exp_avg), (SECOND_MOMENT, &run.state.exp_avg_sq)]
    {
        for (name, array) in tree.leaves() {
            tensors.insert(format!("{prefix}{name}"), to_host(array)?);
        }
    }
    let state = TrainingState {
        step: run.done,
        model: run.config.clone(),
        tokenizer: run.tokenizer.name().to_owned(),
        data: run.batches.position().clone(),
        accumulation: options.accumulate as u64,
        schedule: schedule_of(options),
        optimizer: options.optimizer,
        seed: options.seed,
        // Each step draws from a part of the sequence that its number says.
        random_offset: run.done << 48,
        notes: BTreeMap::from([(COMPUTE_DTYPE.to_owned(), compute_dtype(&options.compile).to_owned())]),
    };
    Checkpoint { state, tensors }.save(path).map_err(|error| resume::in_file(path, error))
}

/// Mean loss over the validation batches.
fn evaluate<F>(run: &Run, loss: &Jit<(Gpt2<Array>, BatchTensors<Array>), Tensor, F>) -> Result<f64>
where
    F: Fn((Gpt2<Tensor>, BatchTensors<Tensor>)) -> Tensor,
{
    let mut total = 0.0;
    for batch in &run.validation {
        let value: Array = loss.call((run.state.params.clone(), batch_arrays(batch)?))?;
        total += value.item()?;
    }
    Ok(total / run.validation.len() as f64)
}

/// Trains as `options` say. Progress goes to the terminal if `progress`; `line` gets every line worth keeping.
pub fn train(options: &TrainOptions, progress: bool, line: &mut dyn FnMut(&str)) -> Result<TrainReport> {
    let counts = [
        ("accumulate", options.accumulate),
        ("evaluate_batches", options.evaluate_batches),
        ("steps", usize::from(options.steps > 0)),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(wrong(name, "is 0, expected at least 1"));
    }
    let checkpoint = options.out.join("checkpoint.safetensors");
    resume::spare(options, &checkpoint)?;
    let schedule = schedule_of(options);
    schedule.validate().map_err(|error| wrong("lr", error))?;
    let device = device_of(options);
    let _opening = DeviceState::open_ahead(device);
    let traces = options.out.join("traces");
    let mut run = prepare(options, &checkpoint)?;
    std::fs::create_dir_all(&options.out)
        .map_err(|error| Error::File { path: options.out.display().to_string(), message: error.to_string() })?;
    if options.resume && run.done >= options.steps && !options.profile {
        let (steps, wanted) = (run.done, options.steps);
        line(&format!("nothing to do: the checkpoint is at step {steps}, and {wanted} steps in all are asked for"));
        return Ok(TrainReport {
            steps,
            stopped: false,
            losses: Vec::new(),
            validation_loss: None,
            tokens_per_second: 0.0,
            sample: String::new(),
            checkpoint,
            traces,
            compiles: 0,
        });
    }
    let config = run.config.clone();
    let context = run.batches.position().context;
    let origin = options.init.as_ref().map_or(options.size.clone(), |path| format!("from {}", path.display()));
    line(&format!(
        "gpt2 {origin}: {} parameters, vocabulary {}, {} tokens a step, {} steps, {} batches an epoch",
        config.parameter_count(),
        config.vocabulary,
        options.batch * context * options.accumulate,
        options.steps,
        run.batches.batches_per_epoch(),
    ));
    if options.resume {
        line(&format!("resumed at step {} of {}", run.done, options.steps));
        if !run.changed.is_empty() {
            line(&format!("not as in the checkpoint, so that the run goes on otherwise: {}", run.changed.join("; ")));
        }
    }
    let optimizer = options.optimizer;
    let step =
        fulgurite::jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
            train_step(&config, &optimizer, state, batch, scalars)
        })
        .named("train_step")
        .arguments(["state", "batch", "scalars"])
        .results(["state", "loss", "grad_norm"])
        .donate("state")
        .options(options.compile.clone());
    let count = options.accumulate;
    type Accumulated<T> = (Gpt2<T>, Gpt2<T>, T, BatchTensors<T>, T);
    let accumulate = fulgurite::jit(|(params, gradients, loss, batch, generator): Accumulated<Tensor>| {
        accumulate_step(&config, count, params, gradients, loss, batch, generator)
    })
    .named("accumulate_step")
    .arguments(["params", "gradients", "loss", "batch", "generator"])
    .results(["gradients", "loss"])
    .donate("gradients")
    .donate("loss")
    .options(options.compile.clone());
    let apply =
        fulgurite::jit(|(state, gradients, scalars): (TrainState<Tensor>, Gpt2<Tensor>, StepScalars<Tensor>)| {
            update(&config, &optimizer, state, gradients, &scalars)
        })
        .named("update_step")
        .arguments(["state", "gradients", "scalars"])
        .results(["state", "grad_norm"])
        .donate("state")
        .options(options.compile.clone());
    let validation_loss = fulgurite::jit(|(params, batch): (Gpt2<Tensor>, BatchTensors<Tensor>)| {
        params.loss(&config, batch.tokens, batch.targets, &Dropout::none())
    })
    .named("validation_loss")
    .arguments(["params", "batch"])
    .options(options.compile.clone());

    let bar = if progress { ProgressBar::new(options.steps) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    bar.set_position(run.done);
    let tokens_a_step = (options.batch * context * count) as f64;
    let mut losses = Vec::new();
    let mut timed: Option<Instant> = None;
    let mut timed_steps = 0u64;
    let mut waited = std::time::Duration::ZERO;
    let first = run.done;
    let mut stopped = false;
    while run.done < options.steps {
        let number = run.done + 1;
        let scalars = step_scalars(schedule.learning_rate(run.done), number, options.seed)?;
        let (state, loss, norm) = if count == 1 {
            let batch = batch_arrays(&next_batch(&mut run.batches)?)?;
            step.call((run.state, batch, scalars))?
        } else {
            let (mut gradients, mut loss) = (zeros(&config, device)?, Array::scalar(0.0));
            for micro in 0..count {
                let batch = batch_arrays(&next_batch(&mut run.batches)?)?;
                let offset = (number as i64).wrapping_shl(48) | ((micro as i64) << 20);
                let generator = Array::new([2], &[options.seed as i64, offset])?;
                (gradients, loss) = accumulate.call((run.state.params.clone(), gradients, loss, batch, generator))?;
            }
            let (state, norm) = apply.call((run.state, gradients, scalars))?;
            (state, loss, norm)
        };
        run.state = state;
        run.done = number;
        let loss = loss.item()?;
        losses.push(loss);
        timed_steps += u64::from(timed.is_some());
        let started = *timed.get_or_insert_with(Instant::now);
        let seconds = (started.elapsed() - waited).as_secs_f64();
        // The first step compiles, which says nothing of the speed.
        let speed = match timed_steps {
            0 => String::new(),
            steps => format!(", {:.0} tokens/s", tokens_a_step * steps as f64 / seconds),
        };
        bar.inc(1);
        bar.set_message(format!("loss {loss:.4}{speed}"));
        if number == first + 1 || number % 10 == 0 || number == options.steps {
            let norm = norm.map(|norm| norm.item()).transpose()?;
            let message = format!(
                "step {number}: loss {loss:.4}, {}lr {:.2e}{speed}",
                norm.map_or_else(String::new, |norm| format!("grad norm {norm:.3}, ")),
                schedule.learning_rate(number - 1)
            );
            bar.suspend(|| line(&message));
        }
        if !loss.is_finite() {
            let kept = if checkpoint.exists() { "the checkpoint holds the last state saved, " } else { "" };
            return Err(wrong("loss", format!("is {loss} at step {number}; {kept}lower the learning rate")));
        }
        let pause = Instant::now();
        if options.evaluate_every > 0 && number % options.evaluate_every == 0 && number != options.steps {
            let value = evaluate(&run, &validation_loss)?;
            bar.suspend(|| line(&format!("step {number}: validation loss {value:.4}")));
        }
        if options.save_every > 0 && number % options.save_every == 0 && number != options.steps {
            save(&checkpoint, &run, options)?;
        }
        waited += pause.elapsed();
        stopped = options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) && number < options.steps;
        if stopped {
            break;
        }
    }
    bar.finish_and_clear();
    let seconds = timed.map_or(0.0, |started| (started.elapsed() - waited).as_secs_f64());
    let tokens_per_second = if timed_steps > 0 { tokens_a_step * timed_steps as f64 / seconds } else { 0.0 };
    // What was only profiled is as it was.
    if run.done > first {
        save(&checkpoint, &run, options)?;
    }
    if stopped {
        line(&format!("stopped after step {} of {}; --resume goes on", run.done, options.steps));
        line(&format!("checkpoint: {}", checkpoint.display()));
        return Ok(TrainReport {
            steps: run.done,
            stopped,
            losses,
            validation_loss: None,
            tokens_per_second,
            sample: String::new(),
            checkpoint,
            traces,
            compiles: step.compiles().max(accumulate.compiles()),
        });
    }
    let final_loss = evaluate(&run, &validation_loss)?;
    line(&format!("validation loss {final_loss:.4} after {} steps", run.done));
    let sampling = Sampling { seed: options.seed, ..Sampling::default() };
    let sample = generate(
        &config,
        run.tokenizer,
        &run.state.params,
        &options.prompt,
        options.sample_tokens,
        sampling,
        &mut |_| {},
    )?;
    line(&format!("sample:\n{}{sample}", options.prompt));
    let scalars = step_scalars(options.lr, 1, options.seed)?;
    let compiles = if count == 1 {
        let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
        let compiled = step.compile(&(run.state.clone(), batch, scalars))?;
        write_stages(&traces, compiled.stages())?;
        if options.profile {
            let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
            let scalars = step_scalars(options.lr, 1, options.seed)?;
            let (_, profile) = step.profile((run.state, batch, scalars))?;
            write_profile(&options.out, &profile, line)?;
        }
        step.compiles()
    } else {
        let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
        let generator = scalars.generator.clone();
        let compiled = accumulate.compile(&(
            run.state.params.clone(),
            zeros(&config, device)?,
            Array::scalar(0.0),
            batch,
            generator,
        ))?;
        write_stages(&traces, compiled.stages())?;
        if options.profile {
            let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
            let generator = Array::new([2], &[options.seed as i64, 0])?;
            let arguments = (run.state.params, zeros(&config, device)?, Array::scalar(0.0), batch, generator);
            let (_, profile) = accumulate.profile(arguments)?;
            write_profile(&options.out, &profile, line)?;
        }
        accumulate.compiles()
    };
    line(&format!("checkpoint: {}", checkpoint.display()));
    line(&format!("traces: {}", traces.display()));
    Ok(TrainReport {
        steps: run.done,
        stopped,
        losses,
        validation_loss: Some(final_loss),
        tokens_per_second,
        sample,
        checkpoint,
        traces,
        compiles,
    })
}
