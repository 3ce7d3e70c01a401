//! `bench`: the table of training steps, operators, attention and products, beside what the device does at most and
//! beside peers.

mod cases;
mod figures;
mod kernels;
mod peers;
mod products;
mod report;
mod rows;
mod step;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::Device;
use fulgurite::choices::Machine;
use fulgurite::models::metrics::rates::Rates;
use indicatif::{ProgressBar, ProgressStyle};

use self::figures::{Figure, Measured};
use self::report::{Report, share, short};
use self::rows::{Group, Row};
use super::files;
use super::outcome::{Failed, Outcome};
use super::output::{program, quoted, say};
use crate::cases::write_whole;

/// Where peers are, from the folder of the repository.
const PEERS: &str = "benches/peers";

/// Arguments of `bench`.
#[derive(Args)]
#[command(after_help = "\
Training steps are processes of `train gpt2 ... --bench`, with the command's own data, log and vocabulary. The other rows
are programs of one operator as they are compiled by default (the list of executors, and what measurements choose): whole
runs with cold caches, between events of the device and as graphs are replayed; backward is forward with its gradients,
less forward. Shares are of the copy and the products that are measured on the device once, and kept below the cache. A
row that fails says why, and the others go on. Files have all that is measured so far. Without a device the rows of the host are measured.

Examples:
  fulgurite bench --quick
  fulgurite bench --list
  fulgurite bench --only attention softmax -o attention.md
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
    /// Runs the same work in PyTorch after ours, by the scripts of this folder; benches/peers otherwise.
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
        rows.iter().try_for_each(|row| say!("{:<28} {}", row.name, row.work))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.group == Group::Host || !device.is_cpu()).collect();
    if rows.is_empty() {
        return Err(Failed("no row that was asked for runs on the host, and there is no other device".into()));
    }
    files::can_be_written(&[&arguments.out, &arguments.json].into_iter().flatten().collect::<Vec<_>>())?;
    let Machine { device: model, libraries } = Machine::of(device)?;
    let host = Machine::of(Device::CPU)?.device;
    let bar = ProgressBar::new(rows.len() as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    let words = std::env::args().skip(1).map(|word| quoted(&word));
    let mut report = Report {
        command: [program()].into_iter().chain(words).collect::<Vec<_>>().join(" "),
        version: format!("{}, {}", env!("CARGO_PKG_VERSION"), if cfg!(debug_assertions) { "debug" } else { "release" }),
        device: (!device.is_cpu()).then_some(model),
        libraries: (!device.is_cpu()).then_some(libraries),
        host,
        rates: Vec::new(),
        peers: None,
        rows: Vec::new(),
    };
    let mut rates = RatesOf { measured: Vec::new(), again: arguments.measure };
    for row in &rows {
        bar.set_message(row.name.clone());
        let on = if row.group == Group::Host { Device::CPU } else { device };
        let (figures, failed) = match figures_of(row, on, arguments.executors.as_deref(), &mut rates) {
            Ok(figures) => (figures, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let row = Measured {
            name: row.name.clone(),
            group: row.group.heading().into(),
            what: row.work.to_string(),
            row: serde_json::to_value(row).map_err(|error| Failed(error.to_string()))?,
            command: step::command(&row.work, on, arguments.executors.as_deref()),
            figures,
            failed,
            peers: Vec::new(),
        };
        bar.suspend(|| tell(&row))?;
        report.rows.push(row);
        report.rates = rates.in_words();
        // A long run that is ended early has said what it found.
        arguments.write(&report)?;
        bar.inc(1);
    }
    bar.set_message("peers");
    if let Some(folder) = &arguments.peers {
        let mut failed = None;
        let mut each = |peer: &figures::Peer| {
            bar.set_message(format!("{} by {}", peer.row, peer.who));
            if let Some(row) = report.rows.iter_mut().find(|row| row.name == peer.row) {
                row.peers.push(peer.clone());
            }
            failed = failed.take().or_else(|| arguments.write(&report).err());
        };
        let about = peers::run(folder, &rows, device, &mut each);
        failed.map_or(Ok(()), Err)?;
        bar.suspend(|| say!("peers: {about}"))?;
        report.peers = Some(about);
    }
    bar.finish_and_clear();
    arguments.write(&report)?;
    for path in [&arguments.out, &arguments.json].into_iter().flatten() {
        say!("wrote {}", path.display())?;
    }
    let all_failed = report.rows.iter().all(|row| row.failed.is_some());
    Ok(if all_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Arguments {
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

/// Tells a row as soon as it is measured.
fn tell(row: &Measured) -> Result<(), Failed> {
    if let Some(reason) = &row.failed {
        return say!("{}: failed: {reason}", row.what);
    }
    let one = |figure: &Figure| {
        let share = share(figure);
        let share = if share.is_empty() { share } else { format!(" ({share})") };
        format!("{} {} {}{share}", figure.name, short(figure.median), figure.unit)
    };
    say!("{}: {}", row.what, row.figures.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// The figures of a row, or why there are none.
fn figures_of(row: &Row, device: Device, executors: Option<&str>, rates: &mut RatesOf) -> Result<Vec<Figure>, String> {
    if let Some(figures) = step::measure(&row.work, device, executors) {
        return figures;
    }
    let rates = rates.of(device);
    match kernels::measure(&row.work, device, executors, rates.as_ref()) {
        Some(figures) => {
            let mut figures = figures.map_err(|error| error.to_string())?;
            products::library(&row.work, device, &mut figures)?;
            Ok(figures)
        }
        None => Err("no program is known for it".into()),
    }
}

/// Rates of devices, measured when the first row needs them: training runs before that have the device for themselves.
struct RatesOf {
    measured: Vec<(Device, Result<Rates, String>)>,
    again: bool,
}

impl RatesOf {
    fn of(&mut self, device: Device) -> Option<Rates> {
        if let Some((_, rates)) = self.measured.iter().find(|(known, _)| *known == device) {
            return rates.as_ref().ok().cloned();
        }
        let rates = if self.again { Rates::measure(device) } else { Rates::of(device) };
        let rates = rates.map_err(|error| error.to_string());
        self.measured.push((device, rates.clone()));
        rates.ok()
    }

    fn in_words(&self) -> Vec<String> {
        let words = |(device, rates): &(Device, Result<Rates, String>)| match rates {
            Ok(rates) => {
                let products =
                    rates.products.iter().map(|(name, rate)| format!("{name} {} TFLOP/s", short(rate / 1e12)));
                let products: Vec<String> = products.collect();
                format!("{device}: copy {} GB/s; products {}", short(rates.copy / 1e9), products.join(", "))
            }
            Err(reason) => format!("{device}: none: {reason}"),
        };
        self.measured.iter().map(words).collect()
    }
}
