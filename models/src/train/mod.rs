//! Training a model: from options to a report.

mod agreement;
mod arrays;
mod bench;
mod chunks;
mod evaluation;
mod failure;
mod feed;
mod fit;
mod host;
mod images;
mod log;
pub mod notes;
mod options;
mod parallel;
mod programs;
mod record;
mod resume;
mod run;
mod run_lock;
mod sameness;
mod save;
mod saving;
mod settings;
mod snapshot;
mod steps;
mod strategy;
#[cfg(test)]
mod tests;

use fulgurite_runtime::Result;
use fulgurite_runtime::device::DeviceState;

pub use crate::parameters::{initial_parameters, parameters_from, zeros};
pub use arrays::{batch_arrays, generator, step_scalars};
pub use bench::{Bench, FILE as BENCH_FILE, FOLDER as BENCH_FOLDER, WARM_UP, bench};
pub use failure::{Cause, Divergence, TrainError};
pub use host::HostParts;
pub use notes::{DROPOUT_STREAMS, PRECISION};
pub use options::{OnNonFinite, TrainOptions, TrainReport};
pub(crate) use parallel::GATHERED_AGAIN;
pub use record::write_stages;
pub use resume::precision_of;
pub use run_lock::RunLock;
pub use strategy::{StateDict, Strategy};

use agreement::{agree, writes, written};
use images::begun;
use log::in_table;
use record::{ceilings, write_profile};
use run::{Run, evaluate, sample};
use save::{save, settle};
use steps::Steps;

use crate::argument_error::wrong;
use crate::batch_tensors::Reads;
use crate::kept;
use crate::metrics;
use crate::model::Model;
use crate::report::{RunReport, What};
use crate::schedule::Schedule;
use crate::tokenizer::Tokenizer;

/// Trains as `options` say. Progress goes to the terminal if `progress`; `line` gets every line worth keeping.
///
/// # Errors
/// [`TrainError::Diverged`] where loss, gradients or weights are not finite; what is in the folder then is from before.
/// The folder of a run that is going on is refused; it says which process that is. Of several ranks, which all call it
/// with the same options, one writes and tells; where it fails, or another one does, all end.
pub fn train(
    options: &TrainOptions,
    progress: bool,
    line: &mut dyn FnMut(&str),
) -> std::result::Result<TrainReport, TrainError> {
    let (options, schedule) = &ready(options.clone())?;
    let line: &mut dyn FnMut(&str) = if writes() { line } else { &mut |_| {} };
    let checkpoint = options.out.join(kept::NEWEST);
    let begin = || {
        // Before anything in the folder is read: another run may be about to write it.
        let lock = writes().then(|| RunLock::take(&options.out)).transpose()?;
        if writes() {
            resume::refuse_overwrite(options, &checkpoint)?;
        }
        let opening = DeviceState::open_ahead(options.device());
        let run = begun(options, &checkpoint, true)?;
        if let Some(Tokenizer::File(file)) = &run.tokenizer
            && writes()
        {
            file.copy_to(&options.out, options.overwrite).map_err(|error| wrong("tokenizer", error))?;
        }
        Ok((lock, opening, run))
    };
    let ((_lock, _opening, mut run), _) = agree("the beginning of a run", false, begin())?;
    sameness::same_run(options, &mut run)?;
    let report = TrainReport {
        steps: run.done,
        stopped: false,
        losses: Vec::new(),
        validation_loss: None,
        accuracy: None,
        tokens_per_second: 0.0,
        sample: String::new(),
        traces: options.out.join("traces"),
        skipped: 0,
        compiles: 0,
        checkpoint,
    };
    if options.resume && run.done >= options.steps && !options.profile {
        let (steps, wanted) = (run.done, options.steps);
        line(&format!("nothing to do: the checkpoint is at step {steps}, and {wanted} steps in all are requested"));
        return Ok(report);
    }
    announce(options, &run, line);
    let done = options.resume.then_some(run.done);
    let subject = settings::subject(options, &run);
    let open = || {
        let mut page = match writes() {
            true => RunReport::open(&options.out, subject, done)?,
            false => RunReport::nowhere(subject),
        };
        if let Some(done) = done {
            let changed = if run.changed.is_empty() { "as it was".to_owned() } else { run.changed.join("; ") };
            page.add(What::Note { text: format!("resumed at step {done}: {changed}") })?;
        }
        Ok(page)
    };
    let (mut page, _) = agree("the report", false, open().map_err(|error| in_table(error).into()))?;
    let outcome = reported(options, run, report, (schedule, progress), &mut page, line);
    match &outcome {
        Ok(TrainReport { stopped: true, steps, .. }) => {
            page.end(Ok(&format!("stopped after step {steps} of {}; --resume goes on", options.steps)));
        }
        Ok(TrainReport { steps, .. }) => page.end(Ok(&format!("{steps} steps"))),
        Err(error) => page.end(Err(&error.to_string())),
    }
    match page.failure() {
        Some(failure) => line(&failure),
        None if outcome.is_ok() => line(&format!("report: {}", page.path().display())),
        None => {}
    }
    outcome
}

/// Takes the steps of a run, with its page.
fn reported(
    options: &TrainOptions,
    mut run: Run,
    mut report: TrainReport,
    (schedule, progress): (&Schedule, bool),
    page: &mut RunReport,
    line: &mut dyn FnMut(&str),
) -> std::result::Result<TrainReport, TrainError> {
    let (config, first) = (run.config.clone(), run.done);
    let (programs, chunks) = fit::programs(options, &config, &mut run, true)?;
    if let Some(why) = chunks.map(|why| why.to_string()) {
        line(&why);
        page.add(What::Note { text: why }).map_err(in_table)?;
    }
    // What is asked for is among the settings that were told.
    let before = run.logits_before.filter(|before| options.logits.is_none() && *before != programs.logits);
    if let Some(before) = before {
        let text = format!("logits {}, were {before} in the checkpoint: sums are rounded otherwise", programs.logits);
        line(&text);
        page.add(What::Note { text }).map_err(in_table)?;
    }
    let checkpoint = &report.checkpoint;
    let steps = Steps { options, schedule, programs: &programs, checkpoint, progress };
    fulgurite_kernels::ranks::begun();
    let (mut run, taken) = steps.take(run, page, line)?;
    sameness::same_weights(options, &mut run)?;
    // What was only profiled is as it was.
    if run.done > first {
        save(checkpoint, &mut run, options, &programs.validation_loss)?;
        settle(&mut run)?;
    }
    let traces = programs.of_batch(options, run.state.get()?, &run.batches, |_, stages| {
        written("the traces", || {
            metrics::plot(&options.out).map_err(in_table)?;
            Ok(write_stages(&report.traces, stages)?)
        })
    });
    traces??;
    (report.steps, report.losses, report.skipped) = (run.done, taken.losses, taken.skipped);
    (report.tokens_per_second, report.compiles) = (taken.tokens_per_second, programs.compiles(options));
    ((), report.stopped) = agree("the end of the steps", options.asked_to_stop(), Ok(()))?;
    if !report.stopped {
        let found = evaluate(&mut run, &programs.validation_loss)?;
        line(&format!("{found} after {} steps", run.done));
        (report.validation_loss, report.accuracy) = (Some(found.loss), found.accuracy);
        if found.loss.is_finite() {
            page.add(found.event()).map_err(in_table)?;
        }
        let params = options.whole(&run.config, &run.state.get()?.params)?;
        written("a sample", || {
            if let Some(text) = sample(&run, &params, options)? {
                report.sample = text.clone();
                line(&format!("sample:\n{}{text}", options.prompt));
                page.add(What::Sample { prompt: options.prompt.clone(), text }).map_err(in_table)?;
            }
            Ok(())
        })?;
        ((), report.stopped) = agree("the end of the sample", options.asked_to_stop(), Ok(()))?;
    }
    if options.profile && !report.stopped {
        let mut profile = programs.profile(options, run.state.into_inner()?, &run.batches)?;
        profile.timeline = taken.timeline;
        profile.ceilings = ceilings(options)?;
        written("the profile", || Ok(write_profile(&options.out, &profile, line)?))?;
    }
    if report.stopped {
        line(&format!("stopped after step {} of {}; --resume goes on", report.steps, options.steps));
    }
    line(&format!("checkpoint: {}", report.checkpoint.display()));
    line(&format!("traces: {}", report.traces.display()));
    line(&format!("metrics: {}, {}", options.out.join(metrics::TABLE).display(), metrics::PLOT));
    Ok(report)
}

/// The options of a run on the ranks that run, and its learning rates.
///
/// # Errors
/// Settings that no run can have, on all ranks.
fn ready(mut options: TrainOptions) -> std::result::Result<(TrainOptions, Schedule), TrainError> {
    let compile = options.precision.compile_options(&options.compile);
    let compile = compile.and_then(|compile| parallel::compile_options(&options, compile));
    let checked = compile.and_then(|compile| Ok((compile, checked(&options)?)));
    let ((compile, schedule), _) = agree("the options of a run", false, checked.map_err(TrainError::from))?;
    agree("the settings of the ranks", false, sameness::same_settings(&options))?;
    options.compile = compile;
    options.compile.memory_limit = agreement::memory_limit(options.compile.memory_limit)?;
    Ok((options, schedule))
}

/// Refuses settings that no run can have; the learning rates of a run otherwise.
fn checked(options: &TrainOptions) -> Result<Schedule> {
    let counts = [
        ("batch", options.batch),
        ("accumulate", options.accumulate),
        ("evaluate_batches", options.evaluate_batches),
        ("steps", usize::from(options.steps > 0)),
        ("keep", options.keep),
        ("log_every", options.log_every as usize),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
        return Err(wrong(name, "is 0, expected at least 1"));
    }
    if let Some(peak) = options.peak_flops.filter(|peak| !peak.is_finite() || *peak <= 0.0) {
        return Err(wrong("peak_flops", format!("is {peak}, expected a number above 0")));
    }
    if options.resume && options.overwrite {
        return Err(wrong("overwrite", "is given with 'resume': a run continues from a checkpoint or replaces it"));
    }
    let settings = options.optimizer.validate();
    settings.map_err(|(name, value, expected)| wrong(name, format!("is {value}, expected {expected}")))?;
    let schedule = options.schedule();
    schedule.validate().map_err(|error| wrong("lr", error))?;
    Ok(schedule)
}

/// Says what is about to be trained, and from where on.
fn announce(options: &TrainOptions, run: &Run, line: &mut dyn FnMut(&str)) {
    let (origin, reads) = (settings::origin(options, run), options.family.reads());
    let classes = if reads == Reads::Images { "classes" } else { "vocabulary" };
    for warning in run.tokenizer.iter().flat_map(Tokenizer::warnings) {
        line(&format!("warning: {warning}"));
    }
    line(&format!(
        "{} {origin}: {} parameters, {classes} {}, {} {} a step{}, {} steps, {} batches an epoch",
        run.config.family(),
        run.config.parameter_count(),
        run.config.vocabulary(),
        run.tokens,
        reads.name(),
        match options.all_ranks() {
            1 => String::new(),
            ranks => format!(" on {ranks} ranks by {}, {} sequences a batch", options.strategy, options.whole_batch()),
        },
        options.steps,
        run.batches.batches_per_epoch(),
    ));
    if let Some(tokenizer) = run.tokenizer.as_ref().filter(|_| !run.has_samples) {
        let (prompt, name) = (&options.prompt, tokenizer.name());
        line(&format!("no samples: the prompt {prompt:?} has no tokens of the tokenizer '{name}'"));
    }
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
}
