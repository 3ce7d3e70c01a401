//! `launch`: starts one process for each rank of a run, and ends all if one dies.

mod output;
mod processes;
mod signals;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use fulgurite::Device;
use fulgurite::device::find_kind;
use fulgurite::mesh::Mesh;
use fulgurite_kernels::ranks::Secret;
use fulgurite_kernels::ranks::environment::RUN;

use super::interruption::{self, INTERRUPTED};
use super::outcome::{DIVERGED, Failed, Outcome};
use super::output::{complain, note};
use processes::{Ended, Run};

/// Arguments of `launch`.
#[derive(Args)]
#[command(after_help = "\
Each process has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them,
and what Fulgurite's ranks meet by: FULGURITE_RENDEZVOUS (an address of this machine that the launcher serves),
FULGURITE_SECRET (drawn anew for each run) and FULGURITE_MESH. The command `train` is that of this program.

The output of rank 0 is shown as it is, that of the others with the number of the rank before each line. Ctrl-C, SIGTERM
and SIGHUP go to all ranks as SIGTERM. Where a rank dies, the others have 3 seconds to end by themselves, get SIGTERM,
and SIGKILL after 5 more; the exit code is that of the rank which died first, or 128 and its signal.

Examples:
  fulgurite launch --gpus 4 -- train gpt2 --device cuda --size 124M --precision bf16-mixed
  fulgurite launch --ranks 2 -- train gpt2 --size nano --steps 100
  fulgurite launch --gpus 2 --log-folder logs -- ./my-training --epochs 3")]
pub struct Arguments {
    /// Starts so many ranks, each for a GPU of this machine; refused if it has fewer.
    #[arg(long, value_name = "N", conflicts_with = "ranks", required_unless_present_any = ["ranks", "mesh"],
        value_parser = clap::value_parser!(u16).range(1..))]
    gpus: Option<u16>,
    /// Starts so many ranks, whatever GPUs there are.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    ranks: Option<u16>,
    /// The axes of the ranks: 'data=2 tensor=2'; data=N otherwise.
    #[arg(long, value_name = "AXES")]
    mesh: Option<Mesh>,
    /// Writes the output of each rank but the first to rank-N.log in this folder, and does not show it.
    #[arg(long, value_name = "DIR")]
    log_folder: Option<PathBuf>,
    /// Starts the command again after a rank has died: so many times at most. `train` goes on from the newest
    /// checkpoint that it has saved, and begins anew without one; other commands get --resume. What was refused is not
    /// started again: usage errors (exit code 2), and errors of `train` before its first step.
    #[arg(long, default_value_t = 0, value_name = "N")]
    restarts: u64,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command on ranks.
pub fn run(arguments: &Arguments) -> Outcome {
    let count = arguments.gpus.or(arguments.ranks).map(usize::from);
    let mesh = match (&arguments.mesh, count) {
        (Some(mesh), Some(count)) if mesh.ranks() != count => {
            let (option, ranks) = (if arguments.gpus.is_some() { "--gpus" } else { "--ranks" }, mesh.ranks());
            return Err(Failed(format!("{option} is {count}, and the mesh '{mesh}' has {ranks} ranks")));
        }
        (Some(mesh), _) => mesh.clone(),
        (None, count) => data_parallel(count.unwrap_or(1))?,
    };
    if arguments.gpus.is_some() {
        enough_devices("cuda", mesh.ranks())?;
    }
    let (program, rest) = arguments.command.split_first().ok_or_else(|| Failed("there is no command".into()))?;
    let trains = program.to_str() == Some("train");
    let (program, words) = match trains {
        true => (own_program()?, arguments.command.clone()),
        false => (program.clone(), rest.to_vec()),
    };
    let log_folder = arguments.log_folder.clone();
    let mut variables = Vec::new();
    if arguments.restarts > 0 {
        // What its checkpoints are known by when it is started again.
        let drawn = Secret::draw().map_err(|error| Failed(format!("the run has no name: {error}")))?;
        variables.push((RUN.to_owned(), drawn.text().to_owned()));
    }
    start(Run { mesh, program, arguments: words, trains, log_folder, variables }, arguments.restarts)
}

/// The mesh of ranks that each have a part of the data.
pub fn data_parallel(ranks: usize) -> Result<Mesh, Failed> {
    format!("data={ranks}").parse().map_err(Failed)
}

/// This program.
pub fn own_program() -> Result<OsString, Failed> {
    let path = std::env::current_exe().map_err(|error| Failed(format!("this program has no path: {error}")))?;
    Ok(path.into_os_string())
}

/// Refuses more ranks than there are devices of a kind.
pub fn enough_devices(kind: &str, ranks: usize) -> Result<(), Failed> {
    let found = find_kind(kind)?.count().map_err(|error| Failed(error.to_string()))? as usize;
    match found < ranks {
        true => Err(Failed(format!(
            "{ranks} ranks need a device of kind {kind} each, and this machine has {found}; start {found} at most"
        ))),
        false => Ok(()),
    }
}

/// Starts the command that this process was started with on each rank of a mesh, all of this machine.
pub fn again(mesh: Mesh, device: Device) -> Outcome {
    let (ranks, mut variables) = (mesh.ranks(), Vec::new());
    if device.is_cpu() {
        // The ranks share the processors.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) / ranks;
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            variables.push(("RAYON_NUM_THREADS".to_owned(), threads.max(1).to_string()));
        }
    } else {
        enough_devices(device.kind(), ranks)?;
    }
    let (program, arguments) = (own_program()?, std::env::args_os().skip(1).collect());
    start(Run { mesh, program, arguments, trains: true, log_folder: None, variables }, 0)
}

/// The exit code of a command that does not know its arguments.
const USAGE: i32 = 2;

/// Why a command that ended so would end so again.
fn in_vain(run: &Run, status: ExitStatus, begun: bool) -> Option<&'static str> {
    match status.code() {
        Some(USAGE) => Some("its arguments were refused"),
        Some(code) if run.trains && code == i32::from(DIVERGED) => Some("its numbers would diverge again"),
        Some(_) if run.trains && !begun => Some("it was refused before its first step"),
        _ => None,
    }
}

/// Starts the ranks, and waits for their end.
fn start(mut run: Run, restarts: u64) -> Outcome {
    let signals = Arc::new(AtomicUsize::new(0));
    let heard = signals.clone();
    interruption::listen(move || {
        heard.fetch_add(1, Ordering::SeqCst);
    })?;
    let ranks = run.mesh.ranks();
    for left in (0..=restarts).rev() {
        let (rank, status, begun) = match processes::run(&run, &signals)? {
            Ended::Well => return Ok(ExitCode::SUCCESS),
            Ended::Interrupted => return Ok(ExitCode::from(INTERRUPTED)),
            Ended::Died { rank, status, begun } => (rank, status, begun),
        };
        complain(&format!("rank {rank} of {ranks} was the first to end: {status}"));
        // One that was told to end has died of that, and is not to begin again.
        if left == 0 || signals.load(Ordering::SeqCst) > 0 {
            return Ok(ExitCode::from(processes::code(status)));
        }
        if let Some(why) = in_vain(&run, status, begun) {
            note(&format!("not started again: {why}"));
            return Ok(ExitCode::from(processes::code(status)));
        }
        let left = left - 1;
        if run.trains {
            note(&format!("starting again, from its newest checkpoint if it has saved one; {left} more times at most"));
            continue;
        }
        note(&format!("starting again, with --resume; {left} more times at most"));
        run.arguments.retain(|word| word != "--overwrite");
        if !run.arguments.iter().any(|word| word == "--resume") {
            run.arguments.push("--resume".into());
        }
    }
    Ok(ExitCode::FAILURE)
}
