//! What a run tells of its steps: lines, the progress bar, the table of metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::{Array, Error, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::agreement::writes;
use super::evaluation::Evaluation;
use super::options::TrainOptions;

use crate::metrics::{Metrics, MetricsError, MetricsFile, flops};
use crate::model::Model;
use crate::report::{RunReport, What};
use crate::schedule::Schedule;

/// The error of the table of metrics.
pub(super) fn in_table(error: MetricsError) -> Error {
    match error {
        MetricsError::Io { path, error } => {
            Error::File { path: path.display().to_string(), message: error.to_string() }
        }
        MetricsError::Line { path, line, message } => {
            let message = format!("line {line}: {message}; move the file away to go on without it");
            Error::File { path: path.display().to_string(), message }
        }
    }
}

/// What a step reports of itself.
pub(super) struct Report {
    pub(super) loss: f64,
    /// Of the gradients, where it is measured.
    pub(super) norm: Option<f64>,
}

impl Report {
    /// The report of a step, which is waited for.
    pub(super) fn read(report: &Array) -> Result<Report> {
        let values = report.to_vec::<f32>()?;
        Ok(Report { loss: f64::from(values[0]), norm: values.get(1).map(|norm| f64::from(*norm)) })
    }

    pub(super) fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_none_or(f64::is_finite)
    }
}

/// The progress bar is brought up to date at most this often, and with every line that is told: nobody reads faster,
/// and a step of a millisecond is not to be slowed down by it.
const BAR_EVERY: Duration = Duration::from_millis(50);

/// What is told of steps as their reports are read.
pub(super) struct Log<'a> {
    options: &'a TrainOptions,
    schedule: &'a Schedule,
    bar: ProgressBar,
    /// When the bar was brought up to date last.
    shown: Option<Instant>,
    /// `None` for the host.
    device: Option<Arc<DeviceState>>,
    line: &'a mut dyn FnMut(&str),
    report: &'a mut RunReport,
    /// Tokens of a step, or images.
    tokens: f64,
    metrics: MetricsFile,
    /// How long a step would take if the device did nothing but the model's arithmetic, as fast as it can, if that is
    /// known.
    seconds_at_peak: Option<f64>,
    /// The number of the run's first step.
    first: u64,
    /// The loss of each step.
    pub(super) losses: Vec<f64>,
    /// How long each step took.
    pub(super) laps: Vec<Duration>,
    pub(super) clock: Clock,
}

impl<'a> Log<'a> {
    /// The log of a run that goes on after step `done` with sequences of `context` tokens, and `tokens` a step.
    pub(super) fn open(
        options: &'a TrainOptions,
        schedule: &'a Schedule,
        model: &dyn Model,
        (done, context, tokens): (u64, usize, usize),
        progress: bool,
        (line, report): (&'a mut dyn FnMut(&str), &'a mut RunReport),
    ) -> Result<Log<'a>> {
        let tokens = tokens as f64;
        let metrics = match writes() {
            true => MetricsFile::open(&options.out, options.resume.then_some(done)).map_err(in_table)?,
            false => MetricsFile::nowhere(),
        };
        let device = options.device();
        let device = (!device.is_cpu()).then(|| DeviceState::of(device)).transpose()?;
        let peak = peak_flops(options)?.map(|peak| peak * options.all_ranks() as f64);
        let seconds_at_peak = peak.map(|peak| tokens * flops::of_token(model, context) / peak);
        Ok(Log {
            options,
            schedule,
            bar: progress_bar(progress, done, options.steps),
            shown: None,
            device,
            line,
            report,
            tokens,
            metrics,
            seconds_at_peak,
            first: done + 1,
            losses: Vec::new(),
            laps: Vec::new(),
            clock: Clock::start(),
        })
    }

    /// A line, above the progress bar.
    pub(super) fn tell(&mut self, text: &str) {
        let line = &mut self.line;
        self.bar.suspend(|| line(text));
    }

    /// A line that is a note of the report too.
    pub(super) fn note(&mut self, text: &str) -> Result<()> {
        self.tell(text);
        self.report.add(What::Note { text: text.to_owned() }).map_err(in_table)
    }

    /// Tells the loss of the validation batches after step `number`.
    pub(super) fn validation(&mut self, number: u64, found: &Evaluation) -> Result<()> {
        let text = format!("step {number}: {found}");
        if !found.loss.is_finite() {
            return self.note(&text);
        }
        self.tell(&text);
        self.report.add(found.event()).map_err(in_table)
    }

    /// Tells a text by the model.
    pub(super) fn sample(&mut self, number: u64, text: String) -> Result<()> {
        let prompt = &self.options.prompt;
        self.tell(&format!("step {number}: sample:\n{prompt}{text}"));
        self.report.add(What::Sample { prompt: prompt.clone(), text }).map_err(in_table)
    }

    /// Brings the table and the events to the disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.metrics.sync().and_then(|()| self.report.sync()).map_err(in_table)
    }

    /// Ends the progress bar.
    pub(super) fn end_bar(&self) {
        self.bar.finish_and_clear();
    }

    /// Tokens a second, compilation left out; 0 for fewer than two steps.
    pub(super) fn tokens_per_second(&self) -> f64 {
        self.clock.speed().map_or(0.0, |steps| self.tokens * steps)
    }

    /// Tells a step whose report was read.
    pub(super) fn step(&mut self, number: u64, report: &Report) -> Result<()> {
        let (options, Report { loss, norm }) = (self.options, report);
        self.losses.push(*loss);
        self.clock.tick();
        let rate = self.schedule.learning_rate(number - 1);
        let lap = self.clock.lap();
        self.laps.push(lap);
        let spent = lap.as_secs_f64();
        // The first step compiles.
        let speed = (number != self.first && spent > 0.0).then_some(1.0 / spent);
        let metrics = Metrics {
            step: number,
            loss: *loss as f32,
            learning_rate: rate,
            gradient_norm: norm.map(|norm| norm as f32),
            tokens_per_second: speed.map(|steps| self.tokens * steps),
            mfu: speed.zip(self.seconds_at_peak).map(|(steps, seconds)| steps * seconds),
            milliseconds: 1e3 * spent,
            peak_bytes: peak_of(self.device.as_deref()),
        };
        self.metrics.add(&metrics).map_err(in_table)?;
        let writing = self.report.step(&metrics);
        if self.device.is_none() {
            // A device computes meanwhile.
            self.clock.pause(writing);
        }
        if let Some(failure) = self.report.failure() {
            self.tell(&failure);
        }
        let items = options.family.reads().name();
        let speed =
            || self.clock.speed().map_or_else(String::new, |steps| format!(", {:.0} {items}/s", self.tokens * steps));
        let is_told = number == self.first || number.is_multiple_of(options.log_every) || number == options.steps;
        // Lines are printed above the bar, which is drawn again with them.
        if !self.bar.is_hidden() && (is_told || self.shown.is_none_or(|shown| shown.elapsed() >= BAR_EVERY)) {
            self.bar.set_position(number);
            self.bar.set_message(format!("loss {loss:.4}{}", speed()));
            self.shown = Some(Instant::now());
        }
        if is_told {
            let norm = norm.map_or_else(String::new, |norm| format!("grad norm {norm:.3}, "));
            let text = format!("step {number}: loss {loss:.4}, {norm}lr {rate:.2e}{}", speed());
            self.tell(&text);
        }
        Ok(())
    }
}

/// What the device of a run does in a second at most, in floating-point operations, if that is known.
pub(super) fn peak_flops(options: &TrainOptions) -> Result<Option<f64>> {
    // The arithmetic of models of images is not counted.
    if options.family.images().is_some() {
        return Ok(None);
    }
    if options.peak_flops.is_some() || options.device().is_cpu() {
        return Ok(options.peak_flops);
    }
    let state = DeviceState::of(options.device())?;
    Ok(fulgurite_rates::flops::of_device(&state.context().properties().model, options.precision.products()))
}

/// The largest amount of memory that this process has held so far: of the device's, or of the host's in arrays.
pub(super) fn peak_bytes(options: &TrainOptions) -> Result<u64> {
    let device = options.device();
    let state = (!device.is_cpu()).then(|| DeviceState::of(device)).transpose()?;
    Ok(peak_of(state.as_deref()))
}

/// As [`peak_bytes`], of a device that is open, or of the host.
fn peak_of(device: Option<&DeviceState>) -> u64 {
    let peak = device.map_or_else(fulgurite_kernels::buffer::peak_bytes, |state| state.context().memory_held().peak);
    peak as u64
}

/// How long steps take.
pub(super) struct Clock {
    since: Option<Instant>,
    steps: u64,
    /// Spent on other things than steps.
    waited: Duration,
    /// When the last step ended.
    last: Instant,
    /// Spent on other things since then.
    waited_since: Duration,
}

impl Clock {
    /// A step has ended. The first one compiles, which says nothing of the speed.
    fn tick(&mut self) {
        self.steps += u64::from(self.since.is_some());
        self.since.get_or_insert_with(Instant::now);
    }

    /// Other things than steps took so long.
    pub(super) fn pause(&mut self, spent: Duration) {
        self.waited += spent;
        self.waited_since += spent;
    }

    /// The first step begins.
    fn start() -> Clock {
        let waited = Duration::ZERO;
        Clock { since: None, steps: 0, waited, last: Instant::now(), waited_since: waited }
    }

    /// How long the step took that has ended.
    fn lap(&mut self) -> Duration {
        let spent = self.last.elapsed().saturating_sub(self.waited_since);
        (self.last, self.waited_since) = (Instant::now(), Duration::ZERO);
        spent
    }

    /// Steps a second, once there is something to say.
    pub(super) fn speed(&self) -> Option<f64> {
        let since = self.since.filter(|_| self.steps > 0)?;
        Some(self.steps as f64 / (since.elapsed() - self.waited).as_secs_f64())
    }
}

fn progress_bar(progress: bool, done: u64, steps: u64) -> ProgressBar {
    let bar = if progress { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} steps, {elapsed} (left {eta}) {msg}") {
        bar.set_style(style);
    }
    bar.set_position(done);
    bar
}
