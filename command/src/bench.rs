//! `bench`: the table of training steps, operators, attention and products, beside what the device does at most and
//! beside peers.

mod cases;
mod figures;
mod kernels;
mod measuring;
mod peers;
mod processes;
mod products;
mod rates_of;
mod report;
mod rows;
mod step;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;

use clap::Args;
use fulgurite::choices::Machine;
use fulgurite::device::find_kind;
use fulgurite::executor::executors_named;
use fulgurite::{Device, Target};
use fulgurite_kernels::machine::exit_at_once;
use fulgurite_rates::too_low::TooLow;
use indicatif::{ProgressBar, ProgressStyle};

use self::figures::{Figure, Measured};
use self::measuring::{Asked, Event, measure};
use self::processes::Processes;
use self::report::Report;
use self::rows::{Group, Row};
use super::files;
use super::idle_executors;
use super::interruption::{self, INTERRUPTED};
use super::outcome::{Failed, Outcome};
use super::output::{mark_debug_build, note, program, quoted, say, warn};
use crate::cases::write_whole;

/// Bytes of the stack of the thread that measures: as many as the command's own has.
const STACK: usize = 8 << 20;
/// Where peers are, from the folder of the repository.
const PEERS: &str = "benches/peers";

/// Arguments of `bench`.
#[derive(Args)]
#[command(after_help = "\
Training steps are processes of `train gpt2 ... --bench`, with the command's own data, log and vocabulary. Rows called
many-gpus-... are `train --devices N --strategy ... --bench` of GPT-2 and TinyLlama, with the same batch on each GPU,
and have their scaling: the step's time on one GPU over that on N. They keep all GPUs busy for long, so that only a
table has them whose --only asks for them; those of more GPUs than the machine has are left out. The other rows are
programs of one operator as they are compiled by default (the list of executors, and what measurements choose): whole
runs with cold caches, between events of the device and as graphs are replayed; backward is forward with its gradients,
less forward. Shares are of the copy and the products that are measured on the device once, and kept below the cache. A
row that fails says why, and the others go on. Without a device the rows of the host are measured. Files have all that
is measured so far: Ctrl-C or SIGTERM ends the command with exit code 130, and the files name the rows that were not
measured.

Examples:
  fulgurite bench --quick
  fulgurite bench --list
  fulgurite bench --only attention softmax -o attention.md
  fulgurite bench --only many-gpus --peers -o many.md --json many.json
  fulgurite bench --peers -o table.md --json table.json")]
pub struct Arguments {
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available.
    #[arg(long, default_value = "auto", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    /// Rows whose names begin with one of these.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// A few rows that take a minute.
    #[arg(long)]
    quick: bool,
    /// Prints the rows, and measures nothing.
    #[arg(long, conflicts_with_all = ["out", "json", "peers"])]
    list: bool,
    /// Runs the same work in PyTorch after ours, by the scripts of this folder. Without a folder they are those of
    /// benches/peers, so that the command runs in the root of the repository.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = PEERS)]
    peers: Option<PathBuf>,
    /// Executors in the order of their priority, as `trace show` has them, in place of the default list.
    #[arg(long, value_name = "NAMES")]
    executors: Option<String>,
    /// Measures the rates of device and host again, and replaces their records.
    #[arg(long)]
    measure: bool,
    /// Writes the table as Markdown.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Writes the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures the rows.
pub fn run(arguments: &Arguments) -> Outcome {
    let device = arguments.device;
    let rows =
        rows::selected(&arguments.only, arguments.quick).map_err(|reason| Failed(format!("--only: {reason}")))?;
    if arguments.list {
        return list(if arguments.only.is_empty() && !arguments.quick { rows::all() } else { rows });
    }
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.group == Group::Host || !device.is_cpu()).collect();
    if rows.is_empty() {
        let message = "no row that was asked for runs on the host, as those called host-... do; --device names another \
                       device";
        return Err(Failed(message.into()));
    }
    let rows = on_this_machine(rows, (device.kind(), devices(device.kind())))?;
    files::can_be_written(&[&arguments.out, &arguments.json].into_iter().flatten().collect::<Vec<_>>())?;
    if let Some(folder) = &arguments.peers {
        peers::has_script(folder).map_err(|reason| Failed(format!("--peers: {reason}")))?;
    }
    let Machine { device: model, libraries } = Machine::of(device)?;
    let host = Machine::of(Device::CPU)?.device;
    if let Some(names) = &arguments.executors {
        arguments.warn_of_executors(names, &rows)?;
    }
    let folder = tempfile::Builder::new().prefix("fulgurite-bench-").tempdir();
    let folder = folder.map_err(|error| Failed(format!("no folder for the files of runs can be made: {error}")))?;
    let bar = ProgressBar::new(rows.len() as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let mut report = Report {
        command: [program()].into_iter().chain(words).collect::<Vec<_>>().join(" "),
        version: format!("{}, {}", env!("CARGO_PKG_VERSION"), fulgurite::BUILD),
        device: (!device.is_cpu()).then_some(model),
        libraries: (!device.is_cpu()).then_some(libraries),
        host,
        rates: Vec::new(),
        rates_too_low: Vec::new(),
        peers: None,
        rows: Vec::new(),
        not_measured: rows.iter().map(|row| row.name.clone()).collect(),
    };
    let asked = Arc::new(Asked {
        rows,
        device,
        executors: arguments.executors.clone(),
        again: arguments.measure,
        peers: arguments.peers.clone(),
        folder: folder.path().to_owned(),
    });
    let processes = Arc::new(Processes::default());
    let (sender, events) = channel();
    let (mut interruptions, interrupted) = (0, sender.clone());
    interruption::listen(move || {
        interruptions += 1;
        if interruptions > 1 || interrupted.send(Event::Interrupted).is_err() {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    let worker = {
        let (asked, processes) = (asked.clone(), processes.clone());
        let thread = Builder::new().name("bench".into()).stack_size(STACK);
        thread
            .spawn(move || measure(&asked, &processes, sender))
            .map_err(|error| Failed(format!("no thread: {error}")))?
    };
    let interrupted = arguments.follow(&events, &asked, &mut report, &bar);
    processes.end();
    bar.finish_and_clear();
    let interrupted = interrupted?;
    if !interrupted && let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
    arguments.write(&report)?;
    for path in [&arguments.out, &arguments.json].into_iter().flatten() {
        say!("wrote {}", path.display())?;
    }
    mark_debug_build();
    if interrupted {
        warn(&format!("interrupted: {} of {} rows were measured", report.rows.len(), asked.rows.len()));
        drop(folder);
        // A row may be computing.
        exit_at_once(INTERRUPTED.into());
    }
    let all_failed = report.rows.iter().all(|row| row.failed.is_some());
    Ok(if all_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How many devices of a kind this machine has; none where their libraries are absent.
fn devices(kind: &str) -> usize {
    find_kind(kind).ok().and_then(|kind| kind.count().ok()).unwrap_or(0) as usize
}

/// Prints the rows.
fn list(rows: Vec<Row>) -> Outcome {
    rows.iter().try_for_each(|row| say!("{:<32} {}", row.name, row.work))?;
    if rows.iter().any(|row| row.group == Group::ManyGpus) {
        let (name, count) = (rows::MANY_GPUS, devices("cuda"));
        note(&format!("rows called {name}-... are measured where --only names them; this machine has {count} GPUs"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows that this machine has enough devices of a kind for; how many are left out is told.
fn on_this_machine(rows: Vec<Row>, (kind, count): (&str, usize)) -> Result<Vec<Row>, Failed> {
    let (rows, beyond): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.work.devices() <= count.max(1));
    if rows.is_empty() {
        return Err(Failed(format!("the rows that were asked for need more devices of kind {kind} than {count}")));
    }
    if !beyond.is_empty() {
        let number = beyond.len();
        note(&format!("{number} rows are left out: they need more devices of kind {kind} than {count}"));
    }
    Ok(rows)
}

/// Adds to the figures of a step on several devices how it scales, if the same step on one was measured before it.
fn with_scaling(row: &Row, figures: &mut Vec<Figure>, asked: &[Row], measured: &[Measured]) {
    let Some(one) = row.work.on_one() else { return };
    let name = asked.iter().find(|row| row.work == one).map(|row| &row.name);
    let one = name.and_then(|name| measured.iter().find(|row| row.name == *name));
    figures.extend(one.and_then(|one| Figure::scaling(&one.figures, figures)));
}

impl Arguments {
    /// Warns of executors that have nothing for any device that rows run on; a name that is none is an error.
    fn warn_of_executors(&self, names: &str, rows: &[Row]) -> Result<(), Failed> {
        let runs = |group: Group| rows.iter().any(|row| row.group == group);
        let mut devices = vec![self.device];
        if runs(Group::Host) && !self.device.is_cpu() {
            devices.push(Device::CPU);
        }
        let targets: Vec<Target> = devices.into_iter().map(Target::of).collect::<fulgurite::Result<_>>()?;
        let executors = executors_named(&names.split(',').collect::<Vec<_>>(), self.device.kind())?;
        idle_executors::warn_of(&executors, &targets);
        Ok(())
    }

    /// Tells and writes what is measured, until it ends; whether an interruption ended it.
    fn follow(
        &self,
        events: &Receiver<Event>,
        asked: &Asked,
        report: &mut Report,
        bar: &ProgressBar,
    ) -> Result<bool, Failed> {
        for event in events {
            match event {
                Event::Begins(row) => bar.set_message(asked.rows[row].name.clone()),
                Event::Row { row, figures, rates, too_low } => {
                    let row = &asked.rows[row];
                    let (figures, failed) = match figures {
                        Ok(mut figures) => {
                            with_scaling(row, &mut figures, &asked.rows, &report.rows);
                            (figures, None)
                        }
                        Err(reason) => (Vec::new(), Some(reason)),
                    };
                    let row = Measured {
                        name: row.name.clone(),
                        group: row.group.heading().into(),
                        what: row.work.to_string(),
                        row: serde_json::to_value(row).map_err(|error| Failed(error.to_string()))?,
                        command: step::command(&row.work, asked.device_of(row), asked.executors.as_deref()),
                        figures,
                        failed,
                        peers: Vec::new(),
                    };
                    bar.suspend(|| say!("{}", report::told(&row)))?;
                    report.not_measured.retain(|name| *name != row.name);
                    report.rows.push(row);
                    report.rates = rates;
                    for low in too_low {
                        let is_told = |told: &TooLow| (&told.device, told.rate) == (&low.device, low.rate);
                        if !report.rates_too_low.iter().any(is_told) {
                            bar.suspend(|| warn(&low.to_string()));
                            report.rates_too_low.push(low);
                        }
                    }
                    // Whatever ends the command, its files have what was found until then.
                    self.write(report)?;
                    bar.inc(1);
                    if asked.peers.is_some() && report.not_measured.is_empty() {
                        bar.set_message("peers");
                        report.peers = Some("not all of them have run".into());
                    }
                }
                Event::Peer(peer) => {
                    bar.set_message(format!("{} by {}", peer.row, peer.who));
                    if let Some(row) = report.rows.iter_mut().find(|row| row.name == peer.row) {
                        bar.suspend(|| say!("{}", report::told_by(row, &peer)))?;
                        row.peers.push(peer);
                    }
                    self.write(report)?;
                }
                Event::Peers(about) => {
                    bar.suspend(|| say!("peers: {about}"))?;
                    report.peers = Some(about);
                }
                Event::Interrupted => return Ok(true),
                Event::Ended => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Writes the table as it is so far.
    fn write(&self, report: &Report) -> Result<(), Failed> {
        if let Some(path) = &self.out {
            write_whole(path, report.markdown().as_bytes())?;
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(report).map_err(|error| Failed::file(path, error))?;
            write_whole(path, format!("{text}\n").as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_several_devices_have_their_scaling_by_the_row_of_one() {
        let rows = rows::selected(&["many-gpus-gpt2-b16".to_owned()], false).unwrap();
        let step = |ms: f64| vec![Figure::one("step", "ms", ms)];
        let mut measured: Vec<Measured> = Vec::new();
        let mut scaled = |name: &str, ms: f64, rows: &[Row]| {
            let row = rows.iter().find(|row| row.name == name).unwrap();
            let mut figures = step(ms);
            with_scaling(row, &mut figures, rows, &measured);
            let scaling = figures.get(1).map(|figure| figure.median);
            let (what, row, group) = (String::new(), serde_json::Value::Null, String::new());
            let name = name.to_owned();
            measured.push(Measured { name, group, what, row, figures, command: None, failed: None, peers: Vec::new() });
            scaling
        };
        assert_eq!(scaled("many-gpus-gpt2-b16-ddp-x2", 32.0, &rows), None, "before that on one");
        assert_eq!(scaled("many-gpus-gpt2-b16-x1", 30.0, &rows), None);
        assert_eq!(scaled("many-gpus-gpt2-b16-ddp-x4", 32.0, &rows), Some(93.75));
        // A row with another batch is not compared.
        let all = rows::all();
        assert_eq!(scaled("many-gpus-gpt2-b4-ddp-x2", 10.0, &all), None);
    }

    #[test]
    fn rows_of_more_devices_than_there_are_are_left_out() {
        let of = |name: &str| rows::selected(&[name.to_owned()], false).unwrap();
        let host = of("host");
        assert_eq!(on_this_machine(host.clone(), ("cpu", 0)).unwrap(), host);
        let of_model = of("many-gpus-tinyllama");
        for (count, expected) in [(0, 1), (1, 1), (2, 4), (5, 7), (8, 10)] {
            assert_eq!(on_this_machine(of_model.clone(), ("cuda", count)).unwrap().len(), expected);
        }
        let refused = on_this_machine(of("many-gpus-gpt2-b16-ddp-x4"), ("cuda", 2)).unwrap_err();
        assert_eq!(refused.0, "the rows that were asked for need more devices of kind cuda than 2");
    }
}
