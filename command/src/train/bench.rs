//! `train --bench`: what a step of a run takes, and what it ran on, in words and as JSON.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use fulgurite::Error;
use fulgurite::device::DeviceState;
use fulgurite_kernels::ranks::{mesh, rank};
use fulgurite_models::train::{BENCH_FILE, BENCH_FOLDER, Bench, RunLock, TrainError, TrainOptions, WARM_UP, bench};
use serde::Serialize;

use super::super::doctor::{self, Library};
use super::super::interruption::INTERRUPTED;
use super::super::outcome::{Failed, Outcome};
use super::super::output::{mark_debug_build, program, quoted, say, warn};
use super::exit;
use crate::cases::write_whole;

/// The JSON of a bench.
#[derive(Serialize)]
struct Written<'a> {
    command: String,
    version: &'static str,
    build: &'static str,
    device: String,
    libraries: Vec<Library>,
    precision: &'a str,
    ranks: usize,
    batch: usize,
    accumulate: usize,
    warm_up: u64,
    /// Steps that were to be timed.
    asked: u64,
    /// Steps that were timed.
    timed: usize,
    /// Whether an interruption ended it before that.
    interrupted: bool,
    #[serde(flatten)]
    bench: &'a Bench,
}

/// The processor, or the device's model.
fn device(options: &TrainOptions) -> Result<String, Failed> {
    match options.compile.device.filter(|device| !device.is_cpu()) {
        Some(device) => Ok(DeviceState::of(device)?.context().properties().model.clone()),
        None => Ok(fulgurite_kernels::machine::processor().unwrap_or_else(|| "unknown processor".into())),
    }
}

/// Times the steps, tells the figures and writes them.
pub(super) fn run(options: &TrainOptions, steps: u64) -> Outcome {
    let mut broken = None;
    let timed = bench(options, steps, stderr().is_terminal(), &mut |line| {
        if let Err(failed) = say!("{line}") {
            broken.get_or_insert(failed);
        }
    });
    let stopped = options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
    let bench = match timed {
        Ok(bench) => bench,
        // Nothing was timed, and nothing is written.
        Err(TrainError::Failed(Error::Argument { argument, .. })) if stopped && argument == "bench" => {
            warn(&format!("interrupted before the first of {steps} steps was timed"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return exit::of(error),
    };
    let count = bench.milliseconds.len();
    let interrupted = (count as u64) < steps;
    if rank() > 0 {
        return Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS });
    }
    let arguments = std::env::args().skip(1).map(|word| quoted(&word));
    let written = Written {
        command: [program()].into_iter().chain(arguments).collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION"),
        build: fulgurite::BUILD,
        device: device(options)?,
        libraries: if options.compile.device.is_some() { doctor::libraries() } else { Vec::new() },
        precision: options.precision.name(),
        ranks: mesh().ranks(),
        batch: options.batch,
        accumulate: options.accumulate,
        warm_up: WARM_UP,
        asked: steps,
        timed: count,
        interrupted,
        bench: &bench,
    };
    let path = options.out.join(BENCH_FOLDER).join(BENCH_FILE);
    let text = serde_json::to_string_pretty(&written).map_err(|error| Failed::file(&path, error))?;
    // The run has released its folder.
    let lock = RunLock::take(&options.out.join(BENCH_FOLDER))?;
    write_whole(&path, format!("{text}\n").as_bytes())?;
    drop(lock);
    let Bench { median_ms, quartiles_ms, range_ms, .. } = &bench;
    mark_debug_build();
    say!("device: {}", written.device)?;
    let of = if interrupted { format!("{count} of {steps} steps, interrupted,") } else { format!("{count} steps") };
    say!(
        "step: {median_ms:.3} ms, half of {of} {:.3} to {:.3}, all {:.3} to {:.3}",
        quartiles_ms[0],
        quartiles_ms[1],
        range_ms[0],
        range_ms[1]
    )?;
    let items = options.family.reads().name();
    say!("speed: {:.0} {items}/s, {} {items} a step", bench.tokens_per_second, bench.tokens)?;
    match (bench.mfu, bench.peak_flops) {
        (Some(mfu), Some(peak)) => {
            say!("model FLOPs: {:.1} % of {:.1} TFLOP/s", 100.0 * mfu, peak / 1e12)?;
        }
        // Those of models of images are not counted.
        _ if options.family.images().is_some() => {}
        _ => say!("model FLOPs: no share, since what the device does at most is not known (--peak-tflops)")?,
    }
    say!("memory: {:.1} MiB at most", bench.peak_bytes as f64 / f64::from(1 << 20))?;
    let parts = bench.host_parts_us.named().map(|(name, us)| format!("{name} {us:.1}")).join(", ");
    say!("host: {:.1} us a step ({parts}), {:.1} us waiting for the device", bench.host_us, bench.waiting_us)?;
    say!("first step: {:.2} s after the start, {} compilation(s)", bench.first_step_s, bench.compiles)?;
    say!("bench: {}", path.display())?;
    if interrupted {
        warn(&format!("interrupted: {count} of {steps} steps were timed"));
    }
    broken.map_or(Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }), Err)
}
