//! Training GPT-2: the loop around the compiled step.

mod arrays;
mod failure;
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
pub use arrays::{batch_arrays, generator, initial_parameters, parameters_from, step_scalars, zeros};
pub use failure::{Cause, Divergence, TrainError};
pub use options::{OnNonFinite, TrainOptions, TrainReport};
pub use record::write_stages;

use failure::cause_of;
use record::write_profile;
use run::{evaluate, prepare, save};

use crate::batches::{Batch, Batches};
use crate::generate::{Sampling, generate};
use crate::gpt2::{Dropout, Gpt2};
use crate::step::{
    BatchTensors, StepScalars, TrainState, accumulate_step, guarded_step, guarded_update, loss_and_gradients,
};
use crate::{kept, resume};

/// The note of a checkpoint that says in what its step was computed.
pub const COMPUTE_DTYPE: &str = "compute_dtype";

/// The note of a checkpoint whose dropout draws from streams of [`generator`]. Checkpoints without it are of a version whose masks
/// repeated.
pub const DROPOUT_STREAMS: &str = "dropout_streams";

/// Steps in a row whose updates are left out before a run that skips them stops.
const MOST_SKIPPED: u64 = 20;

pub(crate) fn wrong(argument: &str, message: impl ToString) -> Error {
    Error::Argument { argument: argument.into(), message: message.to_string() }
}

fn next_batch(batches: &mut Batches) -> Result<Batch> {
    batches.next_batch().map_err(|error| wrong("data", error))
}

/// Trains as `options` say. Progress goes to the terminal if `progress`; `line` gets every line worth keeping.
///
/// # Errors
/// [`TrainError::Diverged`] where loss, gradients or weights are not finite; what is in the folder then is from before.
pub fn train(
    options: &TrainOptions,
    progress: bool,
    line: &mut dyn FnMut(&str),
) -> std::result::Result<TrainReport, TrainError> {
    let counts = [
        ("accumulate", options.accumulate),
        ("evaluate_batches", options.evaluate_batches),
        ("steps", usize::from(options.steps > 0)),
        ("keep", options.keep),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(wrong(name, "is 0, expected at least 1").into());
    }
    let checkpoint = options.out.join(kept::NEWEST);
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
            skipped: 0,
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
    if let Some((first, more)) = run.passed_over.split_first() {
        let more = if more.is_empty() { String::new() } else { format!(", nor are {} after it", more.len()) };
        line(&format!("an earlier checkpoint is taken, the newest is not good{more}: {first}"));
    }
    if options.resume {
        line(&format!("resumed at step {} of {}", run.done, options.steps));
        if !run.changed.is_empty() {
            line(&format!("not as in the checkpoint, so that the run goes on otherwise: {}", run.changed.join("; ")));
        }
    }
    let optimizer = options.optimizer;
    // Without clipping the norm takes a pass of its own: who stops notices one step later without it.
    let measure = options.nonfinite == OnNonFinite::Skip;
    let step =
        fulgurite::jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
            guarded_step(&config, &optimizer, state, batch, scalars, measure)
        })
        .named("train_step")
        .arguments(["state", "batch", "scalars"])
        .results(["state", "loss_and_norm"])
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
    type Summed<T> = (TrainState<T>, Gpt2<T>, T, StepScalars<T>);
    let apply = fulgurite::jit(|(state, gradients, loss, scalars): Summed<Tensor>| {
        guarded_update(&config, &optimizer, state, gradients, loss, &scalars, measure)
    })
    .named("update_step")
    .arguments(["state", "gradients", "loss", "scalars"])
    .results(["state", "loss_and_norm"])
    .donate("state")
    .options(options.compile.clone());
    // Run only where something is not finite, to say what.
    let gradients_alone = fulgurite::jit(|(params, batch, generator): (Gpt2<Tensor>, BatchTensors<Tensor>, Tensor)| {
        loss_and_gradients(&config, params, &batch, generator).1
    })
    .named("gradients")
    .arguments(["params", "batch", "generator"])
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
    let (mut skipped, mut in_a_row) = (0u64, 0u64);
    let mut timed: Option<Instant> = None;
    let mut timed_steps = 0u64;
    let mut waited = std::time::Duration::ZERO;
    let first = run.done;
    let asked_to_stop = || options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    'steps: while run.done < options.steps {
        let number = run.done + 1;
        let scalars = step_scalars(schedule.learning_rate(run.done), number, options.seed)?;
        // What the gradients were made of, or they themselves.
        let (state, report, sums) = if count == 1 {
            let batch = batch_arrays(&next_batch(&mut run.batches)?)?;
            let made_of = (batch.clone(), scalars.generator.clone());
            let (state, report) = step.call((run.state, batch, scalars))?;
            (state, report, Err(made_of))
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
                let generator = generator(options.seed, number, micro as u32)?;
                (gradients, loss) = accumulate.call((run.state.params.clone(), gradients, loss, batch, generator))?;
            }
            let (state, report) = apply.call((run.state, gradients.clone(), loss, scalars))?;
            (state, report, Ok(gradients))
        };
        run.state = state;
        let report: Vec<f32> = report.to_vec()?;
        let (loss, norm) = (f64::from(report[0]), report.get(1).map(|norm| f64::from(*norm)));
        if report.iter().all(|value| value.is_finite()) {
            in_a_row = 0;
        } else {
            // The state is the one before this step.
            let gradients = match sums {
                Ok(gradients) => gradients,
                Err((batch, generator)) => gradients_alone.call((run.state.params.clone(), batch, generator))?,
            };
            let cause = cause_of(&run.state.params, loss, &gradients)?;
            (skipped, in_a_row) = (skipped + 1, in_a_row + 1);
            let hopeless = matches!(cause, Cause::Weight(_)) || in_a_row >= MOST_SKIPPED;
            if options.nonfinite == OnNonFinite::Stop || hopeless {
                bar.finish_and_clear();
                return Err(run.divergence(number, cause).into());
            }
            bar.suspend(|| line(&format!("step {number}: its update is left out: {cause}")));
        }
        run.done = number;
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
            let message = format!(
                "step {number}: loss {loss:.4}, {}lr {:.2e}{speed}",
                norm.map_or_else(String::new, |norm| format!("grad norm {norm:.3}, ")),
                schedule.learning_rate(number - 1)
            );
            bar.suspend(|| line(&message));
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
            save(&checkpoint, &mut run, options, &validation_loss)?;
        }
        waited += pause.elapsed();
    }
    bar.finish_and_clear();
    let seconds = timed.map_or(0.0, |started| (started.elapsed() - waited).as_secs_f64());
    let tokens_per_second = if timed_steps > 0 { tokens_a_step * timed_steps as f64 / seconds } else { 0.0 };
    // What was only profiled is as it was.
    if run.done > first {
        save(&checkpoint, &mut run, options, &validation_loss)?;
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
        skipped,
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
            let generator = generator(options.seed, 1, 0)?;
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
