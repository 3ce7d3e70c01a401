//! Steps of a run that are timed, as the run takes them: with its data, its log and its table. No checkpoint is read or
//! written.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use fulgurite_runtime::device::DeviceState;
use serde::Serialize;

use super::agreement::{agree, writes};
use super::failure::TrainError;
use super::host::{HostParts, Turn};
use super::images::begun;
use super::log::{in_table, peak_bytes, peak_flops};
use super::options::TrainOptions;
use super::run_lock::RunLock;
use super::steps::Steps;
use super::{fit, ready, sameness, settings};
use crate::argument_error::wrong;
use crate::kept;
use crate::metrics::flops;
use crate::model::Model;
use crate::report::RunReport;

/// Steps before those that are timed: the first ones compile, measure products and record graphs.
pub const WARM_UP: u64 = 10;

/// The folder of a bench in that of the run.
pub const FOLDER: &str = "bench";
/// The file in it that has the figures, where steps were timed; the caller of [`bench`] writes it.
pub const FILE: &str = "bench.json";

/// What the steps of a run take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bench {
    /// Parameters of the model.
    pub parameters: usize,
    /// Tokens of the model's vocabulary; classes of a model of images.
    pub vocabulary: usize,
    /// Tokens of a step, of all ranks; images of a model of images.
    pub tokens: usize,
    /// Each timed step in milliseconds: from the report of the step before it to its own.
    pub milliseconds: Vec<f64>,
    /// The median of the times.
    pub median_ms: f64,
    /// A quarter of them is below the first, a quarter above the second.
    pub quartiles_ms: [f64; 2],
    /// The shortest and the longest.
    pub range_ms: [f64; 2],
    /// Tokens of a step by the median time.
    pub tokens_per_second: f64,
    /// The time in which the host is busy for a step, the median, in microseconds: it makes the batch, enqueues the
    /// step, and tells the report of the step before. Waiting for the device is no part of it. On the host it is the
    /// step itself.
    pub host_us: f64,
    /// The host's time of `host_us` by part: the median of each, so that their sum need not be `host_us`.
    pub host_parts_us: HostParts,
    /// For how long the host waits for the device in a step, the median, in microseconds.
    pub waiting_us: f64,
    /// The model's arithmetic in the median step, as a share of what the ranks' devices do at most; none where that is
    /// not known.
    pub mfu: Option<f64>,
    /// Floating-point operations that a device does at most in a second.
    pub peak_flops: Option<f64>,
    /// The most memory that was held, in bytes: the device's, or of arrays on the host.
    pub peak_bytes: u64,
    /// Until the end of the first step, in seconds: data and weights are read, and the step is compiled.
    pub first_step_s: f64,
    /// How often the step was compiled.
    pub compiles: usize,
    /// The loss of the last step.
    pub loss: f64,
}

/// The number below which a `part` of the sorted `numbers` is, between neighbours in proportion.
fn quantile(numbers: &[f64], part: f64) -> f64 {
    let at = part * (numbers.len().max(1) - 1) as f64;
    let pick = |index: f64| numbers.get(index as usize).copied().unwrap_or(f64::NAN);
    let (low, high) = (pick(at.floor()), pick(at.ceil()));
    low + (high - low) * at.fract()
}

/// Takes [`WARM_UP`] steps of the run that `options` describe and `timed` more, which are timed. Its table and report
/// are in [`FOLDER`] of the run's folder, in place of those of an earlier bench.
///
/// # Errors
/// Those of [`train`](super::train), and no steps to be timed.
pub fn bench(
    options: &TrainOptions,
    timed: u64,
    progress: bool,
    line: &mut dyn FnMut(&str),
) -> Result<Bench, TrainError> {
    let started = Instant::now();
    let steps = timed.checked_add(WARM_UP).filter(|_| timed > 0);
    let steps = steps.ok_or_else(|| wrong("bench", format!("is {timed}, expected a number of steps from 1 on")))?;
    let line: &mut dyn FnMut(&str) = if writes() { line } else { &mut |_| {} };
    let options = TrainOptions {
        // Those of the schedule.
        steps: options.steps.max(steps),
        out: options.out.join(FOLDER),
        evaluate_every: 0,
        sample_every: 0,
        save_every: 0,
        profile: false,
        resume: false,
        overwrite: true,
        ..options.clone()
    };
    let checkpoint = options.out.join(kept::NEWEST);
    let (options, schedule) = ready(options)?;
    let options = &TrainOptions { steps, ..options };
    let begin = || {
        let lock = writes().then(|| RunLock::take(&options.out)).transpose()?;
        let opening = DeviceState::open_ahead(options.device());
        let run = begun(options, &checkpoint, false)?;
        let subject = settings::subject(options, &run);
        if !writes() {
            return Ok((lock, opening, run, RunReport::nowhere(subject)));
        }
        // The figures of an earlier bench are not those of the table and the report that are begun now.
        remove_figures(&options.out.join(FILE))?;
        let page = RunReport::open(&options.out, subject, None).map_err(in_table)?;
        Ok((lock, opening, run, page))
    };
    let ((_lock, _opening, mut run, mut page), _) = agree("the beginning of a bench", false, begin())?;
    sameness::same_run(options, &mut run)?;
    super::announce(options, &run, line);
    let (config, tokens, context) = (run.config.clone(), run.tokens, run.batches.position().context);
    let (programs, chunks) = fit::programs(options, &config, &mut run, false)?;
    if let Some(why) = chunks {
        line(&why.to_string());
    }
    let prepared = started.elapsed();
    let taken = Steps { options, schedule: &schedule, programs: &programs, checkpoint: &checkpoint, progress }
        .take(run, &mut page, line);
    match &taken {
        Ok((_, taken)) => {
            let done = taken.laps.len().saturating_sub(WARM_UP as usize);
            let cut = if (done as u64) < timed { format!(" of {timed}, interrupted") } else { String::new() };
            page.end(Ok(&format!("{done} steps timed{cut}")));
        }
        Err(error) => page.end(Err(&error.to_string())),
    }
    let (_, taken) = taken?;
    let counted =
        |times: &[Duration]| -> Vec<f64> { times.iter().skip(WARM_UP as usize).map(Duration::as_secs_f64).collect() };
    let turns: Vec<Turn> = taken.turns.iter().skip(WARM_UP as usize).copied().collect();
    let milliseconds: Vec<f64> = counted(&taken.laps).into_iter().map(|seconds| seconds * 1e3).collect();
    if milliseconds.is_empty() {
        return Err(wrong("bench", "was stopped before a step was timed").into());
    }
    let sorted = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers
    };
    let times = sorted(milliseconds.clone());
    let microseconds = |of: fn(&Turn) -> Duration| {
        quantile(&sorted(turns.iter().map(|turn| of(turn).as_secs_f64() * 1e6).collect()), 0.5)
    };
    let median_ms = quantile(&times, 0.5);
    let tokens_per_second = tokens as f64 / (median_ms * 1e-3);
    let peak = peak_flops(options)?;
    Ok(Bench {
        parameters: config.parameter_count(),
        vocabulary: config.vocabulary(),
        tokens,
        quartiles_ms: [quantile(&times, 0.25), quantile(&times, 0.75)],
        range_ms: [quantile(&times, 0.0), quantile(&times, 1.0)],
        milliseconds,
        median_ms,
        tokens_per_second,
        host_us: microseconds(Turn::busy),
        host_parts_us: HostParts::of(microseconds),
        waiting_us: microseconds(|turn| turn.waiting),
        mfu: peak
            .map(|peak| tokens_per_second * flops::of_token(&config, context) / (peak * options.all_ranks() as f64)),
        peak_flops: peak,
        peak_bytes: peak_bytes(options)?,
        first_step_s: (prepared + taken.laps.first().copied().unwrap_or_default()).as_secs_f64(),
        compiles: programs.compiles(options),
        loss: taken.losses.last().copied().unwrap_or(f64::NAN),
    })
}

fn remove_figures(path: &Path) -> Result<(), TrainError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let (path, message) = (path.display().to_string(), error.to_string());
            Err(fulgurite_runtime::Error::File { path, message }.into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let numbers = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|part| quantile(&numbers, part)), [1.0, 1.75, 3.0, 8.0]);
        assert_eq!(quantile(&[5.0], 0.5), 5.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
