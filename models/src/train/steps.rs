//! The steps of a run, one after the other.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fulgurite_runtime::{Array, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::arrays::{generator, next_arrays, step_scalars};
use super::failure::{Cause, TrainError, cause_of};
use super::options::{OnNonFinite, TrainOptions};
use super::programs::Programs;
use super::run::{Run, evaluate, save};
use crate::batches::Batches;
use crate::gpt2::Gpt2;
use crate::parameters::zeros;
use crate::schedule::Schedule;
use crate::step::{BatchTensors, TrainState};

/// Steps in a row whose updates are left out before a run that skips them stops.
const MOST_SKIPPED: u64 = 20;

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
}

/// One step.
enum Step {
    /// The new state, loss and norm, and the gradients.
    Taken(TrainState<Array>, Vec<f32>, Gradients),
    /// The run is to stop; nothing has changed.
    Stopped(TrainState<Array>),
}

/// The gradients of a step, or what they are made of.
enum Gradients {
    Sums(Gpt2<Array>),
    Of(BatchTensors<Array>, Array),
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

fn progress_bar(progress: bool, run: &Run, steps: u64) -> ProgressBar {
    let bar = if progress { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    bar.set_position(run.done);
    bar
}

impl Steps<'_> {
    /// Takes steps until there are as many as asked for, or the run is to stop.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] where loss, gradients or weights are not finite; a program's or a file's error.
    pub(super) fn take(&self, mut run: Run, line: &mut dyn FnMut(&str)) -> Result<(Run, Taken), TrainError> {
        let options = self.options;
        let bar = progress_bar(self.progress, &run, options.steps);
        let tokens = (options.batch * run.batches.position().context * options.accumulate) as f64;
        let (first, mut in_a_row) = (run.done, 0);
        let (mut taken, mut clock) = (Taken::default(), Clock::default());
        while run.done < options.steps {
            let number = run.done + 1;
            let (state, report, gradients) = match self.step(run.state, &mut run.batches, number, run.done > first)? {
                Step::Taken(state, report, gradients) => (state, report, gradients),
                Step::Stopped(state) => {
                    run.state = state;
                    break;
                }
            };
            run.state = state;
            let (loss, norm) = (f64::from(report[0]), report.get(1).map(|norm| f64::from(*norm)));
            if report.iter().all(|value| value.is_finite()) {
                in_a_row = 0;
            } else {
                (taken.skipped, in_a_row) = (taken.skipped + 1, in_a_row + 1);
                let cause = self.cause(&run, loss, gradients)?;
                let hopeless = matches!(cause, Cause::Weight(_)) || in_a_row >= MOST_SKIPPED;
                if options.nonfinite == OnNonFinite::Stop || hopeless {
                    bar.finish_and_clear();
                    return Err(run.divergence(number, cause).into());
                }
                bar.suspend(|| line(&format!("step {number}: its update is left out: {cause}")));
            }
            run.done = number;
            taken.losses.push(loss);
            clock.tick();
            let speed = clock.speed().map_or_else(String::new, |steps| format!(", {:.0} tokens/s", tokens * steps));
            bar.inc(1);
            bar.set_message(format!("loss {loss:.4}{speed}"));
            if number == first + 1 || number.is_multiple_of(10) || number == options.steps {
                let norm = norm.map_or_else(String::new, |norm| format!("grad norm {norm:.3}, "));
                let rate = self.schedule.learning_rate(number - 1);
                bar.suspend(|| line(&format!("step {number}: loss {loss:.4}, {norm}lr {rate:.2e}{speed}")));
            }
            if options.asked_to_stop() {
                break;
            }
            let pause = Instant::now();
            self.between(&mut run, &mut |text| bar.suspend(|| line(text)))?;
            clock.waited += pause.elapsed();
        }
        bar.finish_and_clear();
        taken.tokens_per_second = clock.speed().map_or(0.0, |steps| tokens * steps);
        Ok((run, taken))
    }

    /// One step; `may_stop` is whether it may end before its last batch.
    fn step(&self, state: TrainState<Array>, batches: &mut Batches, number: u64, may_stop: bool) -> Result<Step> {
        let (options, programs) = (self.options, self.programs);
        let scalars = step_scalars(self.schedule.learning_rate(number - 1), number, options.seed)?;
        if options.accumulate == 1 {
            let batch = next_arrays(batches)?;
            let made_of = Gradients::Of(batch.clone(), scalars.generator.clone());
            let (state, report) = programs.step.call((state, batch, scalars))?;
            return Ok(Step::Taken(state, report.to_vec()?, made_of));
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
        Ok(Step::Taken(state, report.to_vec()?, Gradients::Sums(gradients)))
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

    /// What is done every so many steps, but not after the last.
    fn between(&self, run: &mut Run, line: &mut dyn FnMut(&str)) -> Result<(), TrainError> {
        let (options, number) = (self.options, run.done);
        let due = |every: u64| every > 0 && number.is_multiple_of(every) && number != options.steps;
        let loss = &self.programs.validation_loss;
        if due(options.evaluate_every) {
            let value = evaluate(run, loss)?;
            line(&format!("step {number}: validation loss {value:.4}"));
        }
        if due(options.save_every) {
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
