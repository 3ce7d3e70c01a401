//! Rows that are training runs: processes of this command, `train gpt2 ... --bench`, on one device or several.

use std::path::Path;
use std::process::{Command, Stdio};

use fulgurite::Device;
use serde_json::Value;

use super::super::output::program;
use super::figures::{Figure, quantile};
use super::processes::{Processes, complaints_of};
use super::work::Work;

/// How often the first step is measured, after a run that warms the caches.
const FIRST_STEPS: usize = 3;

/// A training run that is measured.
#[derive(Clone, Copy)]
struct Training<'a> {
    model: &'a str,
    size: &'a str,
    batch: usize,
    context: usize,
    precision: &'a str,
    checkpointing: bool,
    /// Ranks and how they divide the work, if there are several.
    ranks: Option<(usize, &'a str)>,
    steps: usize,
}

impl Training<'_> {
    /// The words of the command, without the folder.
    fn words(&self, device: Device, executors: Option<&str>) -> Vec<String> {
        let Training { model, size, batch, context, precision, checkpointing, ranks, steps } = self;
        let mut words: Vec<String> = ["train", model, "--size", size].map(str::to_owned).into();
        if *model == "gpt2" {
            // Its vocabulary is that of the tokenizer; a published model has one of its own.
            words.extend(["--tokenizer", "gpt2"].map(str::to_owned));
        }
        words.extend(["--precision", precision, "--device"].map(str::to_owned));
        words.push(device.to_string());
        words.extend(
            [("--batch", batch), ("--context", context), ("--bench", steps)]
                .into_iter()
                .flat_map(|(option, value)| [option.to_owned(), value.to_string()]),
        );
        if *checkpointing {
            words.extend(["--activation-checkpointing", "blocks"].map(str::to_owned));
        }
        if let Some((ranks, strategy)) = ranks {
            words.extend(["--devices", &ranks.to_string(), "--strategy", strategy].map(str::to_owned));
        }
        words.extend(executors.into_iter().flat_map(|names| ["--executors".to_owned(), names.to_owned()]));
        words
    }

    /// Runs the command; what `bench.json` has.
    fn run(
        &self,
        (device, executors): (Device, Option<&str>),
        folder: &Path,
        processes: &Processes,
    ) -> Result<Value, String> {
        let own = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let mut command = Command::new(own);
        command.args(self.words(device, executors)).arg("--out").arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let ran = complaints_of(processes, &mut command);
        let (status, text) = ran.map_err(|error| format!("cannot be started: {error}"))?;
        if !status.success() {
            return Err(format!("{} ({status})", reason(&text)));
        }
        let path = folder.join(fulgurite_models::train::BENCH_FOLDER).join("bench.json");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("'{}': {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("'{}': {error}", path.display()))
    }
}

/// Why a run failed by what it wrote: the first error, since what other ranks and their launcher say after it follows
/// from it; without one the last line.
fn reason(text: &str) -> &str {
    // Lines of ranks but the first have `[1] ` before them.
    let error = |line: &&str| {
        let said = line.split_once("] ").filter(|(rank, _)| rank.starts_with('[')).map_or(*line, |(_, said)| said);
        said.starts_with("error: ")
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.clone().find(error).or_else(|| lines.next_back()).unwrap_or("no message")
}

/// The command of a row.
pub fn command(work: &Work, device: Device, executors: Option<&str>) -> Option<String> {
    let words = training(work)?.words(device, executors);
    Some(format!("{} {}", program(), words.join(" ")))
}

fn training(work: &Work) -> Option<Training<'_>> {
    match *work {
        Work::Step { size, batch, context, precision, checkpointing, steps } => {
            Some(Training { model: "gpt2", size, batch, context, precision, checkpointing, ranks: None, steps })
        }
        Work::RanksStep { model, size, batch, context, precision, devices, strategy, steps } => {
            let ranks = strategy.map(|strategy| (devices, strategy));
            Some(Training { model, size, batch, context, precision, checkpointing: false, ranks, steps })
        }
        Work::FirstStep { size, batch, context, precision } => {
            let (checkpointing, ranks, steps) = (false, None, 1);
            Some(Training { model: "gpt2", size, batch, context, precision, checkpointing, ranks, steps })
        }
        _ => None,
    }
}

/// The figures of a row that is a training run, whose files are in a folder below `folder` meanwhile; `None` for one
/// that is not.
pub fn measure(
    work: &Work,
    on: (Device, Option<&str>),
    folder: &Path,
    processes: &Processes,
) -> Option<Result<Vec<Figure>, String>> {
    let training = training(work)?;
    // The command makes it.
    let folder = folder.join("run");
    let run = || training.run(on, &folder, processes);
    let warm_up = || Training { steps: 1, ..training }.run(on, &folder, processes).map(drop);
    let figures = measured((&warm_up, &run), on.0, matches!(work, Work::FirstStep { .. }));
    // The next row's has nothing of it. What cannot be removed goes with the command.
    let _ = std::fs::remove_dir_all(&folder);
    Some(figures)
}

fn measured(
    (warm_up, run): (&dyn Fn() -> Result<(), String>, &dyn Fn() -> Result<Value, String>),
    device: Device,
    first: bool,
) -> Result<Vec<Figure>, String> {
    let number =
        |file: &Value, name: &str| file[name].as_f64().ok_or_else(|| format!("bench.json has no number {name}"));
    let figures = if first {
        let first_step = || number(&run()?, "first_step_s");
        first_step()?;
        vec![Figure::of(
            "first step",
            "s",
            (0..FIRST_STEPS).map(|_| first_step()).collect::<Result<Vec<f64>, String>>()?,
        )]
    } else {
        // A run that fills the caches measures choices, which takes memory and time that later runs do not need.
        if !device.is_cpu() {
            warm_up()?;
        }
        let file = run()?;
        let times: Vec<f64> = file["milliseconds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let tokens = number(&file, "tokens")?;
        let mut figures = vec![
            Figure::of("step", "ms", times),
            Figure::one("speed", "tokens/s", tokens * 1e3 / quantile(&sorted, 0.5)),
            Figure::one("memory", "GiB", number(&file, "peak_bytes")? / f64::from(1 << 30)),
            Figure::one("first step", "s", number(&file, "first_step_s")?),
        ];
        // On the host it is the step itself.
        if !device.is_cpu() {
            figures.push(Figure::one("host", "us", number(&file, "host_us")?));
            figures.push(Figure::one("host waits", "us", number(&file, "waiting_us")?));
        }
        figures
    };
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::super::rows::all;
    use super::*;

    #[test]
    fn rows_of_several_gpus_are_runs_on_as_many_ranks() {
        let rows = all();
        let command = |name: &str| {
            let row = rows.iter().find(|row| row.name == name).unwrap();
            let words = training(&row.work).unwrap().words(Device::CPU, Some("cuda"));
            words.join(" ")
        };
        assert_eq!(
            command("many-gpus-gpt2-b16-zero2-x4"),
            "train gpt2 --size 124M --tokenizer gpt2 --precision bf16-mixed --device cpu --batch 16 --context 1024 \
             --bench 40 --devices 4 --strategy zero2 --executors cuda"
        );
        assert_eq!(
            command("many-gpus-tinyllama-b4-x1"),
            "train llama --size TinyLlama-1.1B --precision bf16-mixed --device cpu --batch 4 --context 2048 --bench 20 \
             --executors cuda"
        );
    }

    #[test]
    fn a_run_of_several_ranks_failed_for_its_first_error() {
        let text = "warning: slow\n\n[2] error: rank 2 has no memory\nerror: rank 2 has ended or failed\n\
                    error: rank 2 of 4 was the first to end: exit status: 1\n";
        assert_eq!(reason(text), "[2] error: rank 2 has no memory");
        assert_eq!(reason("first\nlast\n \n"), "last");
        assert_eq!(reason("\n"), "no message");
    }
}
