//! `plot`: the curves of runs in one picture, or in the terminal.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite_kernels::durable;
use fulgurite_models::metrics::{PLOT, TABLE, read, svg};

use super::loss_chart;
use super::outcome::{Failed, Outcome};
use super::output::say;

/// Arguments of `plot`.
#[derive(Args)]
#[command(after_help = "\
`train` writes the picture of its own run at its end. In a terminal, and without --out, the loss is shown as text too.

Examples:
  fulgurite plot runs/nano
  fulgurite plot runs/nano runs/bf16 --out compared.svg
  fulgurite plot runs/nano --terminal")]
pub struct Arguments {
    /// Folders of runs, or their metrics.csv.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The picture, as SVG; metrics.svg beside the one run's metrics.csv otherwise.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Shows the losses as text, and writes no file.
    #[arg(long, conflicts_with = "out")]
    terminal: bool,
}

/// Draws loss, learning rate, tokens a second and MFU by step, a line for each run.
pub fn run(arguments: &Arguments) -> Outcome {
    let table = |run: &PathBuf| if run.is_dir() { run.join(TABLE) } else { run.clone() };
    let out = match (&arguments.out, &arguments.runs[..]) {
        (Some(out), _) => out.clone(),
        (None, [run, ..]) if arguments.terminal => table(run).with_file_name(PLOT),
        (None, [run]) => table(run).with_file_name(PLOT),
        (None, _) => return Err(Failed("--out says where the picture of several runs is written".into())),
    };
    if out.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
        return Err(Failed(format!("--out is '{}', expected a name that ends in .svg", out.display())));
    }
    let read_one = |run: &PathBuf| match read(&table(run)) {
        Ok(metrics) if metrics.is_empty() => Err(Failed::file(&table(run), "has no step yet")),
        Ok(metrics) => Ok((run.display().to_string(), metrics)),
        Err(error) => Err(Failed(error.to_string())),
    };
    let runs = arguments.runs.iter().map(read_one).collect::<Result<Vec<_>, Failed>>()?;
    if arguments.terminal || (arguments.out.is_none() && stdout().is_terminal()) {
        for (name, metrics) in &runs {
            loss_chart::show(&if runs.len() > 1 { format!("{name}: loss") } else { "loss".into() }, metrics)?;
        }
    }
    if arguments.terminal {
        return Ok(ExitCode::SUCCESS);
    }
    durable::write(&out, svg(&runs).as_bytes()).map_err(|error| Failed(format!("'{}': {error}", out.display())))?;
    say!("{}", out.display())?;
    Ok(ExitCode::SUCCESS)
}
