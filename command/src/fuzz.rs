//! `fuzz`.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use fulgurite::testing::fuzz::{Event, Finding, Settings, Totals, fuzz};
use fulgurite::{DType, Device, Target};

use super::fuzz_watch::Watch;
use super::outcome::{Failed, Outcome};
use super::output::{program, say};
use crate::cases::{tensor_bytes, write_whole};

/// Arguments of `fuzz`.
#[derive(Args, Clone)]
#[command(after_help = "\
Each case is a random program, or a single call, of every operator, element type and layout, with its gradients. It is
run by each executor, fused and not, with values computed again from the first byte on and with none, with inputs
donated, on other numbers of threads, in fenced memory, printed and parsed: results must agree with the references
within the roundings of the program, and bit for bit where nothing may matter. Cases are made from the seed and their
number alone.

A failing program is reduced and written as a trace with its inputs; the command that repeats it is printed.
The exit code is 1 if any program fails.

A case that takes longer than its deadline ends the search: its number and the command that repeats it are printed, and
the exit code is 1.

Examples:
  fulgurite fuzz --minutes 10
  fulgurite fuzz --seed 7 --case 1234
  fulgurite fuzz --minutes 60 --device cuda --out findings/
  fulgurite fuzz --operators cat,pad,narrow --minutes 2")]
pub struct Arguments {
    /// Duration, in minutes.
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    minutes: f64,
    /// Equal seeds make equal cases.
    #[arg(long, default_value_t = 0, value_name = "S")]
    seed: u64,
    /// Runs only this case.
    #[arg(long, value_name = "NUMBER", conflicts_with = "first")]
    case: Option<u64>,
    /// The number of the first case: a longer search is continued.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    first: u64,
    /// Maximum number of cases.
    #[arg(long, value_name = "NUMBER")]
    cases: Option<u64>,
    /// Stops after this number of findings.
    #[arg(long, value_name = "NUMBER")]
    findings: Option<u64>,
    /// The device kind that runs the programs: cpu, cuda, or auto for the first available one. Programs run on its
    /// first device.
    #[arg(long, default_value = "cpu", value_parser = Device::named)]
    device: Device,
    /// Executors that are tried besides those of the device's default list.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    executors: Vec<String>,
    /// Operators that programs are made of; all otherwise.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    operators: Vec<String>,
    /// Element types that programs and samples are in; all otherwise.
    #[arg(long, value_delimiter = ',', value_name = "DTYPES")]
    dtypes: Vec<DType>,
    /// Maximum time to reduce a failing program, in seconds.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    minimize: f64,
    /// How long a case may take before the search ends with an error, in seconds. Making it smaller has its own time.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    deadline: f64,
    /// Where failing programs are written.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    out: PathBuf,
}

/// How often a line tells how far it is.
const EVERY: Duration = Duration::from_secs(5);

/// Looks for programs that fail.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.device.index() != 0 {
        let (device, kind) = (arguments.device, arguments.device.kind());
        return Err(Failed(format!(
            "--device {device}: the fuzzer runs on the first device of a kind, expected '{kind}' \
             (CUDA_VISIBLE_DEVICES={} makes another GPU the first)",
            device.index()
        )));
    }
    // A device that is not there is said at once.
    Target::of(arguments.device)?;
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failed::file(&arguments.out, error))?;
    let seconds = |seconds: f64, what: &str| {
        Duration::try_from_secs_f64(seconds).map_err(|_| Failed(format!("--{what}: expected a time, got {seconds}")))
    };
    let time = seconds(arguments.minutes * 60.0, "minutes")?;
    let settings = Settings {
        seed: arguments.seed,
        first: arguments.case.unwrap_or(arguments.first),
        cases: arguments.case.map(|_| 1).or(arguments.cases),
        time: arguments.case.is_none().then_some(time),
        findings: arguments.findings,
        device: arguments.device.kind().to_owned(),
        executors: arguments.executors.clone(),
        operators: arguments.operators.clone(),
        dtypes: arguments.dtypes.clone(),
        minimize: seconds(arguments.minimize, "minimize")?,
    };
    let watch = Watch::start(seconds(arguments.deadline, "deadline")?, {
        let arguments = arguments.clone();
        move |case| arguments.again(case)
    })?;
    let mut progress = Progress { last: Instant::now(), terminal: stderr().is_terminal() };
    let mut failed: Option<Failed> = None;
    let totals = fuzz(&settings, &mut |event| match event {
        Event::Begins(case) => {
            // A case that ends the process is known by this file; the deadline may end it at once.
            let _ = std::fs::write(arguments.out.join(CURRENT), arguments.again(case) + "\n");
            watch.begins(case, Duration::ZERO);
        }
        Event::Fails(case) => watch.begins(case, settings.minimize),
        Event::Progress(totals) => {
            watch.ends();
            progress.tell(totals);
        }
        Event::Found(finding) => {
            progress.clear();
            if let Err(error) = tell(arguments, finding) {
                failed.get_or_insert(error);
            }
        }
    })?;
    progress.clear();
    let _ = std::fs::remove_file(arguments.out.join(CURRENT));
    if let Some(error) = failed {
        return Err(error);
    }
    say!("{}", summary(&totals))?;
    if totals.unmade > 0 {
        return Err(Failed(format!("{} cases failed while they were made; the log tells of them", totals.unmade)));
    }
    if totals.comparisons == 0 && totals.refused == 0 {
        return Err(Failed("nothing was compared: give more time, or other operators and types".into()));
    }
    Ok(if totals.failing > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The file that names the case at hand.
const CURRENT: &str = "fuzz-current.txt";

impl Arguments {
    /// The command that runs one case again: cases are made from what programs are made of, and run as the device and
    /// executors say.
    fn again(&self, case: u64) -> String {
        let Arguments { seed, device, executors, operators, dtypes, .. } = self;
        let mut text = format!("{} fuzz --seed {seed} --case {case}", program());
        if !device.is_cpu() {
            text += &format!(" --device {device}");
        }
        let dtypes: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
        for (name, values) in [("executors", executors), ("operators", operators), ("dtypes", &dtypes)] {
            if !values.is_empty() {
                text += &format!(" --{name} {}", values.join(","));
            }
        }
        text
    }
}

fn summary(totals: &Totals) -> String {
    format!(
        "{} programs and {} calls ({} with gradients, {} refused) in {:.1} min: \
         {} comparisons of {} elements ({} left out), {} failing",
        totals.programs,
        totals.calls,
        totals.gradients,
        totals.refused,
        totals.time.as_secs_f64() / 60.0,
        totals.comparisons,
        totals.elements,
        totals.skipped,
        totals.failing
    )
}

struct Progress {
    last: Instant,
    terminal: bool,
}

impl Progress {
    fn tell(&mut self, totals: &Totals) {
        // In a log, a line a minute is enough.
        let every = if self.terminal { EVERY } else { EVERY * 12 };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        self.clear();
        let end = if self.terminal { "" } else { "\n" };
        let _ = write!(stderr().lock(), "{}, next {}{end}", summary(totals), totals.next);
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(stderr().lock(), "\r\x1b[2K");
        }
    }
}

/// Writes a finding as files, and says how to repeat it.
fn tell(arguments: &Arguments, finding: &Finding) -> Result<(), Failed> {
    let stem = format!("fuzz-{}-{}", arguments.seed, finding.case);
    let path = |ending: &str| arguments.out.join(format!("{stem}{ending}"));
    let (trace, inputs) = (path(".trace"), path(".safetensors"));
    write_whole(&trace, finding.trace.to_string().as_bytes())?;
    let bytes = tensor_bytes(&finding.inputs).map_err(|message| Failed::file(&inputs, message))?;
    write_whole(&inputs, &bytes)?;
    say!("case {}: {}", finding.case, finding.message)?;
    say!("  {}", finding.program)?;
    let run = |trace: &Path, flags: &str| {
        format!("{} trace run {} --inputs {} {flags}", program(), trace.display(), inputs.display())
    };
    say!("  fails:    {}", run(&trace, &finding.flags))?;
    if let Some((other, flags)) = &finding.against {
        let own = path(".expected.trace");
        if let Some(other) = other {
            write_whole(&own, other.to_string().as_bytes())?;
        }
        say!("  expected: {}", run(if other.is_some() { &own } else { &trace }, flags))?;
    } else {
        say!("  expected: {}", run(&trace, "--executors reference --fuel 0 --no-fuse --no-recompute"))?;
    }
    say!("  again:    {}", arguments.again(finding.case))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Arguments;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// What programs are made of decides about a case, and so do the executors that it is run by.
    #[test]
    fn a_case_is_repeated_by_what_made_it() {
        let given = "fuzz --seed 7 --operators cat,pad --dtypes bf16,f32 --executors reference --minutes 2 --out found";
        let again = Cli::parse_from(given.split(' ')).arguments.again(40);
        let (program, rest) = again.split_once(' ').unwrap_or_default();
        assert!(!program.is_empty());
        assert_eq!(rest, "fuzz --seed 7 --case 40 --executors reference --operators cat,pad --dtypes bf16,f32");
        let again = Cli::parse_from(["fuzz", "--device", "cuda:0"]).arguments.again(1);
        assert!(again.ends_with("fuzz --seed 0 --case 1 --device cuda:0"), "{again}");
    }
}
