//! The processes of a run's ranks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, stderr, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fulgurite::mesh::Mesh;
use fulgurite_kernels::ranks::environment::{MASTER, MESH, OPEN_MPI, RENDEZVOUS, SECRET, SLURM, TORCHRUN};
use fulgurite_kernels::ranks::{PATIENCE, Rendezvous, Secret};

use super::super::interruption::INTERRUPTED;
use super::super::outcome::Failed;
use super::{output, signals};

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long the end of a process may take after it has closed its connection.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How long ranks have to end by themselves after one has died, which they notice where they wait for it.
const BY_THEMSELVES: Duration = Duration::from_secs(3);
/// How long they have after they were asked to.
const ASKED: Duration = Duration::from_secs(5);

/// How long the output of what ranks left behind is shown.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// What is run on each rank.
pub struct Run {
    pub mesh: Mesh,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Whether it is `train` of this program.
    pub trains: bool,
    /// Where the output of ranks but the first goes.
    pub log_folder: Option<PathBuf>,
    /// Variables beside those of ranks.
    pub variables: Vec<(String, String)>,
}

/// How a run ended.
pub enum Ended {
    /// All ranks ended well.
    Well,
    /// Signals ended it.
    Interrupted,
    /// A rank died before the others; whether a rank had said that it computes.
    Died { rank: usize, status: ExitStatus, begun: bool },
}

/// The exit code that tells how a process ended.
pub fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let code = signal.map(|signal| 128 + signal).or(status.code()).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The processes, which are ended where this is dropped early.
struct Ranks {
    children: Vec<(Child, Option<ExitStatus>)>,
    shown: Vec<JoinHandle<()>>,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (child, _) in self.children.iter_mut().filter(|(_, status)| status.is_none()) {
            signals::kill(child);
            let _ = child.wait();
        }
        // They show what there is; a process that a rank has left behind may write for ever.
        let until = Instant::now() + LEFT_BEHIND;
        while self.shown.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }
}

/// Runs the ranks; `interrupted` is how many signals have come.
pub fn run(run: &Run, interrupted: &AtomicUsize) -> Result<Ended, Failed> {
    let failed = |error: io::Error| Failed(format!("the ranks have no rendezvous: {error}"));
    let secret = Secret::draw().map_err(failed)?;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let rendezvous = Rendezvous::listen(anywhere, "the launcher", &run.mesh, &secret, PATIENCE).map_err(failed)?;
    let mut ranks = Ranks { children: Vec::new(), shown: Vec::new() };
    for rank in 0..run.mesh.ranks() {
        spawn(run, rank, (&rendezvous, &secret), &mut ranks)
            .map_err(|error| Failed(format!("rank {rank}: '{}' cannot be started: {error}", run.program.display())))?;
    }
    let (mut first, mut told, mut since): (Option<(usize, ExitStatus)>, usize, Option<Instant>) = (None, 0, None);
    let mut asked = false;
    loop {
        for (child, status) in ranks.children.iter_mut().filter(|(_, status)| status.is_none()) {
            *status = child.try_wait().map_err(failed)?;
        }
        let ended = || ranks.children.iter().enumerate().filter_map(|(rank, (_, status))| Some((rank, (*status)?)));
        let died = |(_, status): &(usize, ExitStatus)| {
            let stopped = told > 0 && status.code() == Some(INTERRUPTED.into());
            !status.success() && !stopped
        };
        if first.is_none() && ended().any(|found| died(&found)) {
            // The rendezvous knows whose connection was lost first; the system may take a moment to end that process.
            let passed = since.get_or_insert_with(Instant::now).elapsed();
            let known = rendezvous.first_ended();
            let is_awaited = known.is_some_and(|rank| ranks.children[rank].1.is_none()) && passed < LAST_MOMENT;
            let by_signal = |(_, status): &(usize, ExitStatus)| status.code().is_none();
            let found = || ended().filter(died).min_by_key(|of| (known != Some(of.0), !by_signal(of), of.0));
            first = if is_awaited { None } else { found() };
        }
        if ended().count() == ranks.children.len() {
            break;
        }
        let signals = interrupted.load(Ordering::SeqCst);
        if signals > told {
            told = signals;
            // The third one ends what two have not.
            let end = if told > 2 { signals::kill } else { signals::terminate };
            going_on(&mut ranks, end);
        }
        // A second one ends ranks at once: one that hangs does not hear it.
        if told > 1 && ranks.children.iter().any(|(_, status)| status.is_some()) {
            since.get_or_insert_with(Instant::now);
        }
        match since.map(|since| since.elapsed()) {
            Some(passed) if passed > BY_THEMSELVES + ASKED => going_on(&mut ranks, signals::kill),
            Some(passed) if passed > BY_THEMSELVES && !asked => {
                asked = true;
                going_on(&mut ranks, signals::terminate);
            }
            _ => {}
        }
        thread::sleep(LOOK);
    }
    Ok(match first {
        Some((rank, status)) => Ended::Died { rank, status, begun: rendezvous.has_begun() },
        None if told > 0 => Ended::Interrupted,
        None => Ended::Well,
    })
}

/// Does something to the processes that have not ended.
fn going_on(ranks: &mut Ranks, what: fn(&mut Child)) {
    ranks.children.iter_mut().filter(|(_, status)| status.is_none()).for_each(|(child, _)| what(child));
}

/// Starts the process of a rank.
fn spawn(run: &Run, rank: usize, (rendezvous, secret): (&Rendezvous, &Secret), ranks: &mut Ranks) -> io::Result<()> {
    let mut command = Command::new(&run.program);
    command.args(&run.arguments).stdin(Stdio::null());
    let (count, address) = (run.mesh.ranks().to_string(), rendezvous.address());
    for name in OPEN_MPI.into_iter().chain(SLURM) {
        // Of a launcher around this one.
        command.env_remove(name);
    }
    command
        .envs(run.variables.iter().map(|(name, value)| (name, value)))
        .envs(TORCHRUN.into_iter().zip([rank.to_string(), count.clone(), rank.to_string()]))
        .env("LOCAL_WORLD_SIZE", count)
        .envs(MASTER.into_iter().zip([address.ip().to_string(), address.port().to_string()]))
        .env(RENDEZVOUS, address.to_string())
        .env(MESH, run.mesh.to_string())
        .env(SECRET, secret.text());
    // Signals of the terminal go to the launcher, which passes them on: each rank has them once.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    if rank > 0 {
        match &run.log_folder {
            Some(folder) => {
                let path = folder.join(format!("rank-{rank}.log"));
                let file = std::fs::create_dir_all(folder).and_then(|()| File::create(&path));
                let logs = |error: io::Error| io::Error::new(error.kind(), format!("'{}': {error}", path.display()));
                let file = file.map_err(logs)?;
                command.stdout(file.try_clone()?).stderr(file);
            }
            None => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
        }
    }
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    ranks.children.push((child, None));
    if let Some(out) = out {
        ranks.shown.push(output::show(rank, out, || stdout().lock())?);
    }
    if let Some(err) = err {
        ranks.shown.push(output::show(rank, err, || stderr().lock())?);
    }
    Ok(())
}
