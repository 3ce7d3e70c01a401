//! The steps of a run, one after the other: on a device, the next step computes while the report of one is read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fulgurite_runtime::device::{Activity, DeviceState};
use fulgurite_runtime::{Array, Error, Result};

use super::agreement::{agree, written};
use super::arrays::{generator, next_arrays, step_scalars};
use super::failure::{Cause, Divergence, TrainError, cause_of};
use super::feed::{Feed, Inputs};
use super::host::{Meter, Turn};
use super::log::{Log, Report};
use super::options::{OnNonFinite, TrainOptions};
use super::parallel::averages;
use super::programs::{Programs, STEP, no_report};
use super::run::{Run, evaluate, sample};
use super::save::{poll, save, settle};
use crate::parameter_list::Parameters;
use crate::report::RunReport;
use crate::schedule::Schedule;
use crate::step::{BatchTensors, TrainState};

/// Steps in a row whose updates are left out before a run that skips them stops.
const MOST_SKIPPED: u64 = 20;

/// Most steps at the end of a profiled run whose timeline is told. No evaluation and no save is between them.
const TIMED_STEPS: u64 = 4;

/// What the steps have in common.
pub(super) struct Steps<'a> {
    pub(super) options: &'a TrainOptions,
    pub(super) schedule: &'a Schedule,
    pub(super) programs: &'a Programs<'a>,
    pub(super) checkpoint: &'a Path,
    /// Whether progress is shown.
    pub(super) progress: bool,
}

/// What the steps came to.
pub(super) struct Taken {
    /// The loss of each step.
    pub(super) losses: Vec<f64>,
    /// How long each step took: from the report of the step before it to its own.
    pub(super) laps: Vec<Duration>,
    /// What the host did for each step.
    pub(super) turns: Vec<Turn>,
    /// Steps whose update was left out.
    pub(super) skipped: u64,
    pub(super) tokens_per_second: f64,
    /// What the device did in the last steps of a run that is profiled.
    pub(super) timeline: Vec<Activity>,
}

/// Updates that were left out.
#[derive(Default)]
struct Skipped {
    all: u64,
    /// One after the other, up to now.
    in_a_row: u64,
}

/// A timeline that is being recorded; it ends with the steps, also where they fail.
struct Recording(Arc<DeviceState>);

impl Drop for Recording {
    fn drop(&mut self) {
        // A failing step returns its own error.
        let _ = self.0.end_timeline();
    }
}

enum Step {
    /// The state is the new one.
    Taken(Enqueued),
    /// The run is to stop; nothing has changed.
    Stopped,
}

/// A step that was enqueued and whose report was not read yet.
struct Enqueued {
    number: u64,
    /// The loss and the norm of the gradients.
    report: Array,
    gradients: Gradients,
}

/// The gradients of a step, or what they are made of.
enum Gradients {
    Sums(Parameters<Array>),
    Of(BatchTensors<Array>, Array),
}

impl Steps<'_> {
    /// Runs steps until the requested number is reached, or the run must stop. On a device, the next step is enqueued
    /// before the report of the last one is read, unless something must be done between the two.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] where loss, gradients or weights are not finite; a program's or a file's error.
    pub(super) fn take(
        &self,
        mut run: Run,
        report: &mut RunReport,
        line: &mut dyn FnMut(&str),
    ) -> Result<(Run, Taken), TrainError> {
        let options = self.options;
        let first = run.done + 1;
        let at = (run.done, run.batches.position().context, run.tokens);
        let mut log = Log::open(options, self.schedule, self.programs.config, at, self.progress, (line, report))?;
        let mut skipped = Skipped::default();
        let mut unread: Option<Enqueued> = None;
        let mut turns = Vec::new();
        let of_step = (options.accumulate == 1).then_some((options, self.schedule));
        let mut feed = of_step.map(|of| Feed::start(of, STEP, first, &run.batches)).transpose()?;
        let mut recording = None;
        while run.done < options.steps {
            let number = run.done + 1;
            if let Err(error) = poll(&mut run) {
                unread.take().map_or(Ok(()), |before| self.read(&mut run, before, &mut skipped, &mut log))?;
                return Err(error);
            }
            if self.is_timed() && recording.is_none() && number + TIMED_STEPS > options.steps {
                // Its reads are no part of the steps.
                settle(&mut run)?;
                let device = DeviceState::of(options.device())?;
                device.begin_timeline()?;
                recording = Some(Recording(device));
            }
            let mut meter = Meter::start();
            let inputs = match feed.as_mut().map(|feed| feed.next(&mut run.batches)).transpose() {
                Ok(inputs) => inputs,
                Err(error) => {
                    // What is enqueued is told first.
                    unread.take().map_or(Ok(()), |before| self.read(&mut run, before, &mut skipped, &mut log))?;
                    return Err(error.into());
                }
            };
            meter.batch();
            let previous = unread.as_ref().map(|step| step.report.clone());
            let step = match self.step(number, &mut run, inputs, previous, number > first) {
                Ok(Step::Taken(step)) => step,
                Ok(Step::Stopped) => break,
                // The state went with the step.
                Err(failed) => {
                    // Of several ranks this one may have failed alone.
                    if options.all_ranks() == 1 {
                        settle(&mut run)?;
                    }
                    let saved = run.saved.or(run.resumed);
                    return Err(match unread.take() {
                        Some(before) => self.failed_after(&before, failed, saved, &mut log),
                        None => failed.into(),
                    });
                }
            };
            meter.step();
            run.done = number;
            let before = unread.take();
            let read = before.map_or(Ok(()), |before| self.read(&mut run, before, &mut skipped, &mut log));
            // Several ranks stop after the same step, and fail together where one cannot tell its report.
            let agreed = format!("the end of step {number}");
            let stop = if self.goes_on(number) {
                let ((), stop) = agree(&agreed, options.asked_to_stop(), read)?;
                if !stop {
                    unread = Some(step);
                    meter.report();
                    turns.push(meter.end());
                    continue;
                }
                self.read(&mut run, step, &mut skipped, &mut log)?;
                stop
            } else {
                let read = read.and_then(|()| self.read(&mut run, step, &mut skipped, &mut log));
                agree(&agreed, options.asked_to_stop(), read)?.1
            };
            meter.report();
            turns.push(meter.end());
            if stop {
                break;
            }
            if self.pauses_after(number) {
                // The timeline is of steps alone; it begins again with the next one.
                drop(recording.take());
            }
            let pause = Instant::now();
            self.between(&mut run, &mut log)?;
            log.clock.pause(pause.elapsed());
        }
        log.end_bar();
        written("the table", || Ok(log.sync()?))?;
        let tokens_per_second = log.tokens_per_second();
        let Log { losses, laps, .. } = log;
        let timeline = Vec::new();
        let mut taken = Taken { losses, laps, turns, skipped: skipped.all, tokens_per_second, timeline };
        if let Some(Recording(device)) = &recording {
            taken.timeline = device.end_timeline()?;
        }
        Ok((run, taken))
    }

    /// Whether the last steps are to be told in a profile.
    fn is_timed(&self) -> bool {
        self.options.profile && !self.options.device().is_cpu()
    }

    /// Whether the step after `number` is enqueued before the report of `number` is read. Not on the host, which has
    /// computed the report by then; not over several batches, since the gradients of two steps would be held; and not
    /// where an update is left out and the run goes on, since the cause is found by the state before the next one.
    fn goes_on(&self, number: u64) -> bool {
        let options = self.options;
        let alone = options.accumulate == 1 && options.nonfinite == OnNonFinite::Stop && !options.device().is_cpu();
        alone && number != options.steps && !self.pauses_after(number)
    }

    /// Whether an evaluation, a sample or a save is due after step `number`.
    fn pauses_after(&self, number: u64) -> bool {
        let options = self.options;
        [options.evaluate_every, options.sample_every, options.save_every].iter().any(|every| self.due(number, *every))
    }

    /// Reads the report of a step, which waits for it, and tells it. The state of `run` is the one after this step or,
    /// if it is not finite, before it.
    fn read(&self, run: &mut Run, step: Enqueued, skipped: &mut Skipped, log: &mut Log<'_>) -> Result<(), TrainError> {
        let (options, number) = (self.options, step.number);
        let report = Report::read(&step.report)?;
        if report.is_finite() {
            skipped.in_a_row = 0;
        } else {
            (skipped.all, skipped.in_a_row) = (skipped.all + 1, skipped.in_a_row + 1);
            let cause = self.cause(run, report.loss, step.gradients)?;
            let hopeless = matches!(cause, Cause::Weight(_)) || skipped.in_a_row >= MOST_SKIPPED;
            if options.nonfinite == OnNonFinite::Stop || hopeless {
                log.end_bar();
                settle(run)?;
                return Err(run.divergence(number, cause).into());
            }
            log.note(&format!("step {number}: its update is left out: {cause}"))?;
        }
        log.step(number, &report)?;
        Ok(())
    }

    /// Why a run ends whose next step could not be enqueued: because of what is not finite in the step before, if
    /// something is, and otherwise because of `failed`. The step before is told first. `saved` is the step of the
    /// newest checkpoint.
    fn failed_after(&self, before: &Enqueued, failed: Error, saved: Option<u64>, log: &mut Log<'_>) -> TrainError {
        // Where the device is lost, its error is the one that it was lost by.
        let Ok(report) = Report::read(&before.report) else { return failed.into() };
        if report.is_finite() {
            // A table that cannot be written is not why the run ends.
            let _ = log.step(before.number, &report);
            return failed.into();
        }
        log.end_bar();
        let Report { loss, norm } = report;
        let cause = Cause::Report { loss, norm, failed: failed.to_string() };
        Divergence { step: before.number, cause, saved }.into()
    }

    /// Enqueues one step of `run` on `inputs`, or on several of its batches, after one whose report is `previous`, if
    /// that was not read; `may_stop` is whether it may end before its last batch.
    fn step(
        &self,
        number: u64,
        run: &mut Run,
        inputs: Option<Inputs>,
        previous: Option<Array>,
        may_stop: bool,
    ) -> Result<Step> {
        let (options, programs) = (self.options, self.programs);
        if let Some(Inputs { batch, scalars }) = inputs {
            let made_of = Gradients::Of(batch.clone(), scalars.generator.clone());
            let previous = previous.map_or_else(|| no_report(options), Ok)?;
            let report = programs.step.call_bound(&mut run.state, (batch, scalars, previous))?;
            return Ok(Step::Taken(Enqueued { number, report, gradients: made_of }));
        }
        let scalars = step_scalars(self.schedule.learning_rate(number - 1), number, options.seed)?;
        let (mut gradients, mut loss) = (options.own_zeros(programs.config)?, Array::scalar(0.0));
        let before = run.batches.clone();
        for micro in 0..options.accumulate {
            // A step of many batches is not waited for: what it has added up is left, and its batches come again.
            // Several ranks end a step together.
            if options.asked_to_stop() && micro > 0 && may_stop && options.all_ranks() == 1 {
                run.batches = before;
                return Ok(Step::Stopped);
            }
            let batch = next_arrays(&mut run.batches)?;
            let generator = generator(options.seed, number, micro as u32)?;
            let TrainState { params, copies, .. } = run.state.get()?;
            let params = (params.clone(), copies.clone());
            (gradients, loss) = programs.accumulate.call((params, gradients, loss, batch, generator))?;
        }
        let report = programs.update.call_bound(&mut run.state, (gradients.clone(), loss, scalars))?;
        Ok(Step::Taken(Enqueued { number, report, gradients: Gradients::Sums(gradients) }))
    }

    /// What was not finite in a step. The state is the one before it.
    fn cause(&self, run: &mut Run, loss: f64, gradients: Gradients) -> Result<Cause> {
        let (options, config) = (self.options, self.programs.config);
        let own = run.state.get()?.params.clone();
        let params = options.whole(config, &own)?;
        let gradients = match gradients {
            Gradients::Sums(gradients) => options.whole(config, &averages(options, gradients)?)?,
            Gradients::Of(batch, generator) => self.programs.gradients.call((own, batch, generator))?,
        };
        cause_of(&params, loss, &gradients)
    }

    /// Whether what is done every so many steps, but not after the last, is due after step `number`.
    fn due(&self, number: u64, every: u64) -> bool {
        every > 0 && number.is_multiple_of(every) && number != self.options.steps
    }

    /// What is done every so many steps.
    fn between(&self, run: &mut Run, log: &mut Log<'_>) -> Result<(), TrainError> {
        let (options, number) = (self.options, run.done);
        let loss = &self.programs.validation_loss;
        if self.due(number, options.evaluate_every) {
            log.validation(number, &evaluate(run, loss)?)?;
        }
        if self.due(number, options.sample_every) {
            let params = options.whole(self.programs.config, &run.state.get()?.params)?;
            let told = |text| log.sample(number, text);
            written("a sample", || Ok(sample(run, &params, options)?.map_or(Ok(()), told)?))?;
        }
        if self.due(number, options.save_every) {
            written("the table", || Ok(log.sync()?))?;
            save(self.checkpoint, run, options, loss)?;
        }
        Ok(())
    }
}

impl TrainOptions {
    /// Whether the run is to end after the step at hand.
    pub(super) fn asked_to_stop(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}
