//! The steps of a run, one after the other: on a device, the next step computes while the report of one is read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fulgurite_runtime::device::{Activity, DeviceState};
use fulgurite_runtime::{Array, Error, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::arrays::{generator, next_arrays, step_scalars};
use super::failure::{Cause, Divergence, TrainError, cause_of};
use super::options::{OnNonFinite, TrainOptions};
use super::programs::{Programs, no_report};
use super::run::{Run, evaluate, save};
use crate::batches::Batches;
use crate::parameter_list::Parameters;
use crate::parameters::zeros;
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
#[derive(Default)]
pub(super) struct Taken {
    /// The loss of each step.
    pub(super) losses: Vec<f64>,
    /// Steps whose update was left out.
    pub(super) skipped: u64,
    pub(super) tokens_per_second: f64,
    /// What the device did in the last steps of a run that is profiled.
    pub(super) timeline: Vec<Activity>,
}

/// A timeline that is being recorded; it ends with the steps, also where they fail.
struct Recording(Arc<DeviceState>);

impl Drop for Recording {
    fn drop(&mut self) {
        // Who takes the steps is told why they fail.
        let _ = self.0.end_timeline();
    }
}

/// One step.
enum Step {
    /// The new state, and the step.
    Taken(TrainState<Array>, Enqueued),
    /// The run is to stop; nothing has changed.
    Stopped(TrainState<Array>),
}

/// A step that was enqueued and whose report was not read yet.
struct Enqueued {
    number: u64,
    /// Loss and norm.
    report: Array,
    gradients: Gradients,
}

/// What a step reports of itself.
struct Report {
    loss: f64,
    /// Of the gradients, where it is measured.
    norm: Option<f64>,
}

impl Report {
    /// That of a step, which is waited for.
    fn of(step: &Enqueued) -> Result<Report> {
        let values = step.report.to_vec::<f32>()?;
        Ok(Report { loss: f64::from(values[0]), norm: values.get(1).map(|norm| f64::from(*norm)) })
    }

    fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_none_or(f64::is_finite)
    }
}

/// The gradients of a step, or what they are made of.
enum Gradients {
    Sums(Parameters<Array>),
    Of(BatchTensors<Array>, Array),
}

/// What is told of steps as their reports are read.
struct Log<'a> {
    bar: ProgressBar,
    line: &'a mut dyn FnMut(&str),
    tokens: f64,
    /// The number of the run's first step.
    first: u64,
    /// Updates left out, one after the other.
    in_a_row: u64,
    taken: Taken,
    clock: Clock,
}

/// How long steps take.
#[derive(Default)]
struct Clock {
    since: Option<Instant>,
    steps: u64,
    /// Spent on other things than steps.
    waited: Duration,
}

impl Clock {
    /// A step has ended. The first one compiles, which says nothing of the speed.
    fn tick(&mut self) {
        self.steps += u64::from(self.since.is_some());
        self.since.get_or_insert_with(Instant::now);
    }

    /// Steps a second, once there is something to say.
    fn speed(&self) -> Option<f64> {
        let since = self.since.filter(|_| self.steps > 0)?;
        Some(self.steps as f64 / (since.elapsed() - self.waited).as_secs_f64())
    }
}

impl Log<'_> {
    /// A line, above the progress bar.
    fn tell(&mut self, text: &str) {
        let line = &mut self.line;
        self.bar.suspend(|| line(text));
    }
}

fn progress_bar(progress: bool, run: &Run, steps: u64) -> ProgressBar {
    let bar = if progress { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    bar.set_position(run.done);
    bar
}

impl Steps<'_> {
    /// Runs steps until the requested number is reached, or the run must stop. On a device, the next step is enqueued
    /// before the report of the last one is read, unless something must be done between the two.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] where loss, gradients or weights are not finite; a program's or a file's error.
    pub(super) fn take(&self, mut run: Run, line: &mut dyn FnMut(&str)) -> Result<(Run, Taken), TrainError> {
        let options = self.options;
        let bar = progress_bar(self.progress, &run, options.steps);
        let tokens = (options.batch * run.batches.position().context * options.accumulate) as f64;
        let first = run.done + 1;
        let (taken, clock) = (Taken::default(), Clock::default());
        let mut log = Log { bar, line, tokens, first, in_a_row: 0, taken, clock };
        let mut unread: Option<Enqueued> = None;
        let mut recording = None;
        while run.done < options.steps {
            let number = run.done + 1;
            if self.is_timed() && recording.is_none() && number + TIMED_STEPS > options.steps {
                let device = DeviceState::of(options.device())?;
                device.begin_timeline()?;
                recording = Some(Recording(device));
            }
            let batch = match (options.accumulate == 1).then(|| next_arrays(&mut run.batches)).transpose() {
                Ok(batch) => batch,
                Err(error) => {
                    // What is enqueued is told first.
                    unread.take().map_or(Ok(()), |before| self.read(&run, before, &mut log))?;
                    return Err(error.into());
                }
            };
            let previous = unread.as_ref().map(|step| step.report.clone());
            let step = match self.step(number, run.state, batch, previous, &mut run.batches, number > first) {
                Ok(Step::Taken(state, step)) => {
                    run.state = state;
                    step
                }
                Ok(Step::Stopped(state)) => {
                    run.state = state;
                    break;
                }
                // The state went with the step.
                Err(failed) => {
                    let saved = run.saved.or(run.resumed);
                    return Err(match unread.take() {
                        Some(before) => self.failed_after(&before, failed, saved, &mut log),
                        None => failed.into(),
                    });
                }
            };
            run.done = number;
            if let Some(before) = unread.take() {
                self.read(&run, before, &mut log)?;
            }
            if self.goes_on(number) && !options.asked_to_stop() {
                unread = Some(step);
                continue;
            }
            self.read(&run, step, &mut log)?;
            if options.asked_to_stop() {
                break;
            }
            if self.pauses_after(number) {
                // The timeline is of steps alone; it begins again with the next one.
                drop(recording.take());
            }
            let pause = Instant::now();
            self.between(&mut run, &mut |text| log.tell(text))?;
            log.clock.waited += pause.elapsed();
        }
        log.bar.finish_and_clear();
        let mut taken = log.taken;
        taken.tokens_per_second = log.clock.speed().map_or(0.0, |steps| tokens * steps);
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

    /// Whether an evaluation or a save is due after step `number`.
    fn pauses_after(&self, number: u64) -> bool {
        self.due(number, self.options.evaluate_every) || self.due(number, self.options.save_every)
    }

    /// Reads the report of a step, which waits for it, and tells it. The state of `run` is the one after this step or,
    /// if it is not finite, before it.
    fn read(&self, run: &Run, step: Enqueued, log: &mut Log<'_>) -> Result<(), TrainError> {
        let (options, number) = (self.options, step.number);
        let report = Report::of(&step)?;
        if report.is_finite() {
            log.in_a_row = 0;
        } else {
            (log.taken.skipped, log.in_a_row) = (log.taken.skipped + 1, log.in_a_row + 1);
            let cause = self.cause(run, report.loss, step.gradients)?;
            let hopeless = matches!(cause, Cause::Weight(_)) || log.in_a_row >= MOST_SKIPPED;
            if options.nonfinite == OnNonFinite::Stop || hopeless {
                log.bar.finish_and_clear();
                return Err(run.divergence(number, cause).into());
            }
            log.tell(&format!("step {number}: its update is left out: {cause}"));
        }
        self.tell(number, &report, log);
        Ok(())
    }

    /// Why a run ends whose next step could not be enqueued: because of what is not finite in the step before, if
    /// something is, and otherwise because of `failed`. The step before is told first. `saved` is the step of the
    /// newest checkpoint.
    fn failed_after(&self, before: &Enqueued, failed: Error, saved: Option<u64>, log: &mut Log<'_>) -> TrainError {
        // Where the device is lost, its error is the one that it was lost by.
        let Ok(report) = Report::of(before) else { return failed.into() };
        if report.is_finite() {
            self.tell(before.number, &report, log);
            return failed.into();
        }
        log.bar.finish_and_clear();
        let Report { loss, norm } = report;
        let cause = Cause::Report { loss, norm, failed: failed.to_string() };
        Divergence { step: before.number, cause, saved }.into()
    }

    /// Tells a step whose report was read.
    fn tell(&self, number: u64, report: &Report, log: &mut Log<'_>) {
        let (options, Report { loss, norm }) = (self.options, report);
        log.taken.losses.push(*loss);
        log.clock.tick();
        let speed = log.clock.speed().map_or_else(String::new, |steps| format!(", {:.0} tokens/s", log.tokens * steps));
        log.bar.inc(1);
        log.bar.set_message(format!("loss {loss:.4}{speed}"));
        if number == log.first || number.is_multiple_of(10) || number == options.steps {
            let norm = norm.map_or_else(String::new, |norm| format!("grad norm {norm:.3}, "));
            let rate = self.schedule.learning_rate(number - 1);
            log.tell(&format!("step {number}: loss {loss:.4}, {norm}lr {rate:.2e}{speed}"));
        }
    }

    /// Enqueues one step on `batch`, or on several of `batches`, after one whose report is `previous`, if that was not
    /// read; `may_stop` is whether it may end before its last batch.
    fn step(
        &self,
        number: u64,
        state: TrainState<Array>,
        batch: Option<BatchTensors<Array>>,
        previous: Option<Array>,
        batches: &mut Batches,
        may_stop: bool,
    ) -> Result<Step> {
        let (options, programs) = (self.options, self.programs);
        let scalars = step_scalars(self.schedule.learning_rate(number - 1), number, options.seed)?;
        if let Some(batch) = batch {
            let made_of = Gradients::Of(batch.clone(), scalars.generator.clone());
            let previous = previous.map_or_else(|| no_report(options), Ok)?;
            let (state, report) = programs.step.call((state, batch, scalars, previous))?;
            return Ok(Step::Taken(state, Enqueued { number, report, gradients: made_of }));
        }
        let (mut gradients, mut loss) = (zeros(programs.config, options.device())?, Array::scalar(0.0));
        let before = batches.clone();
        for micro in 0..options.accumulate {
            // A step of many batches is not waited for: what it has added up is left, and its batches come again.
            if options.asked_to_stop() && micro > 0 && may_stop {
                *batches = before;
                return Ok(Step::Stopped(state));
            }
            let batch = next_arrays(batches)?;
            let generator = generator(options.seed, number, micro as u32)?;
            (gradients, loss) = programs.accumulate.call((state.params.clone(), gradients, loss, batch, generator))?;
        }
        let (state, report) = programs.update.call((state, gradients.clone(), loss, scalars))?;
        Ok(Step::Taken(state, Enqueued { number, report, gradients: Gradients::Sums(gradients) }))
    }

    /// What was not finite in a step. The state is the one before it.
    fn cause(&self, run: &Run, loss: f64, gradients: Gradients) -> Result<Cause> {
        let gradients = match gradients {
            Gradients::Sums(gradients) => gradients,
            Gradients::Of(batch, generator) => {
                self.programs.gradients.call((run.state.params.clone(), batch, generator))?
            }
        };
        cause_of(&run.state.params, loss, &gradients)
    }

    /// Whether what is done every so many steps, but not after the last, is due after step `number`.
    fn due(&self, number: u64, every: u64) -> bool {
        every > 0 && number.is_multiple_of(every) && number != self.options.steps
    }

    /// What is done every so many steps.
    fn between(&self, run: &mut Run, line: &mut dyn FnMut(&str)) -> Result<(), TrainError> {
        let (options, number) = (self.options, run.done);
        let loss = &self.programs.validation_loss;
        if self.due(number, options.evaluate_every) {
            let value = evaluate(run, loss)?;
            line(&format!("step {number}: validation loss {value:.4}"));
        }
        if self.due(number, options.save_every) {
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
