//! Training GPT-2: the loop around the compiled step.

mod arrays;
mod options;
mod record;
mod run;

use std::sync::atomic::Ordering;
use std::time::Instant;

use fulgurite::device::DeviceState;
use fulgurite::{Array, Error, Result};
use fulgurite_ops::prelude::Tensor;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use arrays::to_host;
pub use arrays::{batch_arrays, initial_parameters, parameters_from, step_scalars, zeros};
pub use options::{TrainOptions, TrainReport};
pub use record::write_stages;

use record::write_profile;
use run::{evaluate, prepare, save};

use crate::batches::{Batch, Batches};
use crate::generate::{Sampling, generate};
use crate::gpt2::{Dropout, Gpt2};
use crate::resume;
use crate::step::{BatchTensors, StepScalars, TrainState, accumulate_step, train_step, update};

/// The note of a checkpoint that says in what its step was computed.
pub const COMPUTE_DTYPE: &str = "compute_dtype";

pub(crate) fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}

fn next_batch(batches: &mut Batches) -> Result<Batch> {
    batches.next_batch().map_err(|error| wrong("data", error))
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
    let settings = options.optimizer.validate();
    settings.map_err(|(name, value, expected)| wrong(name, format!("is {value}, expected {expected}")))?;
    let schedule = options.schedule();
    schedule.validate().map_err(|error| wrong("lr", error))?;
    let device = options.device();
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
    let asked_to_stop = || options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    'steps: while run.done < options.steps {
        let number = run.done + 1;
        let scalars = step_scalars(schedule.learning_rate(run.done), number, options.seed)?;
        let (state, loss, norm) = if count == 1 {
            let batch = batch_arrays(&next_batch(&mut run.batches)?)?;
            step.call((run.state, batch, scalars))?
        } else {
            let (mut gradients, mut loss) = (zeros(&config, device)?, Array::scalar(0.0));
            let before = run.batches.clone();
            for micro in 0..count {
                // A step of many batches is not waited for: what it has added up is left, and its batches come again.
                if asked_to_stop() && micro > 0 && run.done > first {
                    run.batches = before;
                    break 'steps;
                }
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
        if asked_to_stop() {
            break;
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
    }
    bar.finish_and_clear();
    let seconds = timed.map_or(0.0, |started| (started.elapsed() - waited).as_secs_f64());
    let tokens_per_second = if timed_steps > 0 { tokens_a_step * timed_steps as f64 / seconds } else { 0.0 };
    // What was only profiled is as it was.
    if run.done > first {
        save(&checkpoint, &run, options)?;
    }
    let compiled = if count == 1 {
        let scalars = step_scalars(options.lr, 1, options.seed)?;
        let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
        step.compile(&(run.state.clone(), batch, scalars))?.stages().to_vec()
    } else {
        let generator = step_scalars(options.lr, 1, options.seed)?.generator;
        let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
        let sums = (zeros(&config, device)?, Array::scalar(0.0));
        accumulate.compile(&(run.state.params.clone(), sums.0, sums.1, batch, generator))?.stages().to_vec()
    };
    write_stages(&traces, &compiled)?;
    let mut report = TrainReport {
        steps: run.done,
        stopped: asked_to_stop(),
        losses,
        validation_loss: None,
        tokens_per_second,
        sample: String::new(),
        checkpoint,
        traces,
        compiles: if count == 1 { step.compiles() } else { accumulate.compiles() },
    };
    if !report.stopped {
        let loss = evaluate(&run, &validation_loss)?;
        line(&format!("validation loss {loss:.4} after {} steps", run.done));
        report.validation_loss = Some(loss);
        let sampling = Sampling { seed: options.seed, ..Sampling::default() };
        let (params, tokens) = (&run.state.params, options.sample_tokens);
        report.sample = generate(&config, run.tokenizer, params, &options.prompt, tokens, sampling, &mut |_| {})?;
        line(&format!("sample:\n{}{}", options.prompt, report.sample));
        report.stopped = asked_to_stop();
    }
    if options.profile && !report.stopped {
        let batch = batch_arrays(&next_batch(&mut run.batches.clone())?)?;
        let profile = if count == 1 {
            step.profile((run.state, batch, step_scalars(options.lr, 1, options.seed)?))?.1
        } else {
            let generator = Array::new([2], &[options.seed as i64, 0])?;
            let arguments = (run.state.params, zeros(&config, device)?, Array::scalar(0.0), batch, generator);
            accumulate.profile(arguments)?.1
        };
        write_profile(&options.out, &profile, line)?;
    }
    if report.stopped {
        line(&format!("stopped after step {} of {}; --resume goes on", report.steps, options.steps));
    }
    line(&format!("checkpoint: {}", report.checkpoint.display()));
    line(&format!("traces: {}", report.traces.display()));
    Ok(report)
}
