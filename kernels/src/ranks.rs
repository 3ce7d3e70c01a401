//! Ranks: the processes or threads that run one program, each with data of its own, and what they give each other.
//!
//! A rank is a thread that [`simulate`] begins, or a process that [`join`] has meet others at a rendezvous; then all
//! its threads are that rank. Kernels of collectives ask [`exchange`] for what the ranks along an axis of the mesh
//! give. A thread that belongs to neither is the one rank of [`Mesh::ONE`].
//!
//! Ranks that do not fit together get an error and do not wait for ever: where they call something else, where one has
//! ended or failed, and where all of them wait.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use crate::mesh::{Axis, Mesh};
use crate::scratch::try_copy;

mod connection;
pub mod environment;
mod error;
mod greeting;
#[cfg(test)]
mod process_tests;
mod rendezvous;
#[cfg(test)]
mod tests;
mod told;
mod wire;
mod world;

use connection::Connection;
pub use environment::{Member, environment};
pub use error::RankError;
pub use greeting::Secret;
pub use rendezvous::Rendezvous;
use world::World;

/// How long the ranks of a run wait for each other before it begins.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// What carries that which ranks give each other.
#[derive(Clone)]
enum Transport {
    Threads(Arc<World>),
    Processes(Arc<Connection>),
}

#[derive(Clone)]
struct Rank {
    transport: Transport,
    mesh: Mesh,
    number: usize,
    /// The run's number in this process.
    run: u64,
}

impl Rank {
    fn fail(&self) {
        match &self.transport {
            Transport::Threads(world) => {
                world.fail(self.number);
            }
            Transport::Processes(connection) => connection.fail(),
        }
    }
}

/// How many runs were begun, and one for threads that belong to none.
static RUNS: AtomicU64 = AtomicU64::new(1);

/// What this process is, if it has joined others.
static PROCESS: RwLock<Option<Rank>> = RwLock::new(None);

thread_local! {
    static RANK: RefCell<Option<Rank>> = const { RefCell::new(None) };
}

/// Tells the others that the thread of a rank has ended, however it did.
struct Ending {
    world: Arc<World>,
    rank: usize,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.world.end(self.rank);
    }
}

/// Runs `f` on every rank of `mesh`, each on a thread of its own that gets the rank's number, and gives what they
/// returned, in order. If some panic, the panic of the first of them is passed on after all have ended.
///
/// # Errors
/// [`RankError::NoThread`] if the system has not as many threads; the ranks that were begun have ended then.
pub fn simulate<T: Send>(mesh: &Mesh, f: impl Fn(usize) -> T + Sync) -> Result<Vec<T>, RankError> {
    let world = Arc::new(World::new(mesh.clone()));
    let (ranks, run) = (mesh.ranks(), RUNS.fetch_add(1, Ordering::Relaxed));
    let (outcomes, missing) = thread::scope(|scope| {
        let mut begun = Vec::new();
        let mut missing = None;
        for number in 0..ranks {
            let rank = Rank { transport: Transport::Threads(world.clone()), mesh: mesh.clone(), number, run };
            let ending = Ending { world: world.clone(), rank: number };
            let f = &f;
            let body = move || {
                let _ending = ending;
                RANK.set(Some(rank));
                f(number)
            };
            match thread::Builder::new().name(format!("rank {number}")).spawn_scoped(scope, body) {
                Ok(rank) => begun.push(rank),
                Err(error) => {
                    for absent in number..ranks {
                        world.end(absent);
                    }
                    missing = Some(RankError::NoThread { rank: number, ranks, reason: error.to_string() });
                    break;
                }
            }
        }
        (begun.into_iter().map(|rank| rank.join()).collect::<Vec<thread::Result<T>>>(), missing)
    });
    let returned = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic))).collect();
    missing.map_or(Ok(returned), Err)
}

/// A process among the ranks of its run. It leaves them when it is dropped.
#[derive(Debug)]
#[must_use = "the process leaves the ranks when this is dropped"]
pub struct Joined {
    /// The rendezvous, where this process serves it.
    rendezvous: Option<Rendezvous>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Threads that still exchange keep the connection until they are done.
        drop(PROCESS.write().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(rendezvous) = &self.rendezvous {
            rendezvous.wait();
        }
    }
}

/// Has this process meet the other ranks of its run, and waits for all of them, for `patience` at most. From then on
/// every thread of it is that rank, but for those of [`simulate`].
///
/// # Errors
/// [`RankError::Refused`] if the ranks do not have the same version, mesh and secret, or some do not come; if the
/// process has joined before.
pub fn join(member: &Member, patience: Duration) -> Result<Joined, RankError> {
    join_telling(member, patience, &|waits| tracing::warn!("{waits}"))
}

/// As [`join`]; `tell` gets a line where the ranks have waited for each other for 5 seconds, and every 30 seconds from
/// then on: how many have come, and which are missing. Of those that have come, one is told.
///
/// # Errors
/// As [`join`].
pub fn join_telling(member: &Member, patience: Duration, tell: &dyn Fn(&str)) -> Result<Joined, RankError> {
    let Member { rank, mesh, address, secret, .. } = member;
    let refused = |reason: String| RankError::Refused { rank: *rank, reason };
    if PROCESS.read().unwrap_or_else(PoisonError::into_inner).is_some() {
        return Err(refused("this process is a rank already".into()));
    }
    let rendezvous = if member.served_by_rank_0 && *rank == 0 {
        let served = Rendezvous::listen(*address, "rank 0", mesh, secret, patience);
        Some(served.map_err(|error| {
            let [host, port] = environment::MASTER;
            refused(format!("nothing can be served at {address} ({host}, {port}): {error}"))
        })?)
    } else {
        None
    };
    let host = member.served_by_rank_0.then_some(0);
    let connection = Connection::open(*rank, mesh, (*address, host), secret, patience, tell).map_err(refused)?;
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let transport = Transport::Processes(Arc::new(connection));
    let own = Rank { transport, mesh: mesh.clone(), number: *rank, run };
    *PROCESS.write().unwrap_or_else(PoisonError::into_inner) = Some(own);
    Ok(Joined { rendezvous })
}

/// The rank that this thread belongs to.
fn current() -> Option<Rank> {
    RANK.with_borrow(Clone::clone).or_else(|| PROCESS.read().unwrap_or_else(PoisonError::into_inner).clone())
}

/// The number of this rank: 0 where it is the only one.
pub fn rank() -> usize {
    current().map_or(0, |rank| rank.number)
}

/// The mesh that runs, to which this thread belongs.
pub fn mesh() -> Mesh {
    current().map_or(Mesh::ONE, |rank| rank.mesh)
}

/// A number that the threads of one run share, in this process, and no others: 0 outside of a run. What ranks made
/// together is kept by it.
pub fn run_number() -> u64 {
    current().map_or(0, |rank| rank.run)
}

/// A rank that has ended or failed, if that is known here: no exchange with it will come about. It is this rank itself
/// where it is cut off from all others.
pub fn ended() -> Option<usize> {
    match current()?.transport {
        Transport::Threads(world) => world.ended(),
        Transport::Processes(connection) => connection.ended(),
    }
}

/// A rank that has said that a program of it failed, if that is known here: what its device sent since then may be
/// wrong. One that only ended is none.
pub fn failed() -> Option<usize> {
    match current()?.transport {
        Transport::Threads(world) => world.failed(),
        Transport::Processes(connection) => connection.failed(),
    }
}

/// Says that a program of this rank failed, which others may wait for: they get an error, and so does every later
/// exchange of this rank. Which exchange of theirs its next one would meet is not known.
pub fn fail() {
    if let Some(rank) = current() {
        rank.fail();
    }
}

/// Says that this rank computes from now on: what could refuse the run has not. A launcher starts a run again only
/// then.
pub fn begun() {
    if let Some(Rank { transport: Transport::Processes(connection), .. }) = current() {
        connection.begun();
    }
}

/// The place of this rank along an axis.
///
/// # Errors
/// If the mesh that runs has no such axis, or has it with another number of ranks.
pub fn place(axis: &Axis) -> Result<usize, RankError> {
    let of = |(rank, _, ranks): (Rank, usize, Vec<usize>)| ranks.iter().position(|other| *other == rank.number);
    Ok(group(axis)?.and_then(of).unwrap_or(0))
}

/// This rank, the axis' place in the mesh, and the ranks along it; `None` where this rank is the only one.
fn group(axis: &Axis) -> Result<Option<(Rank, usize, Vec<usize>)>, RankError> {
    let other_mesh = |mesh: Mesh| RankError::OtherMesh { axis: axis.to_string(), mesh };
    let Some(rank) = current() else {
        return if axis.extent() == 1 { Ok(None) } else { Err(other_mesh(Mesh::ONE)) };
    };
    let mesh = &rank.mesh;
    match mesh.axis(axis.name()) {
        Some((at, own)) if own == axis => {
            let ranks = mesh.group(rank.number, at);
            Ok(Some((rank, at, ranks)))
        }
        None if axis.extent() == 1 => Ok(None),
        _ => Err(other_mesh(mesh.clone())),
    }
}

/// Gives `bytes` to the ranks along `axis` and waits for theirs: what each of them gave, in the order of the axis.
/// `called` is the call with everything that must be the same on all ranks, in the words of an error.
///
/// # Errors
/// If the mesh that runs has no such axis, another rank calls something else or has ended, or no rank can go on.
pub fn exchange(axis: &Axis, called: &str, bytes: &[u8]) -> Result<Vec<Arc<Vec<u8>>>, RankError> {
    let own = || Ok::<_, RankError>(Arc::new(try_copy(bytes)?));
    match group(axis)? {
        None => Ok(vec![own()?]),
        Some((rank, at, ranks)) => match &rank.transport {
            Transport::Threads(world) => world.exchange(rank.number, (at, ranks), called, own()?),
            Transport::Processes(connection) => connection.exchange(at, called, bytes),
        },
    }
}

/// The least of what all ranks of the mesh give.
///
/// # Errors
/// As [`exchange`].
pub fn least(called: &str, own: u8) -> Result<u8, RankError> {
    let mut least = own;
    for axis in mesh().axes() {
        let given = exchange(axis, called, &[least])?;
        least = given.iter().map(|bytes| bytes[0]).fold(least, u8::min);
    }
    Ok(least)
}

/// Compares a text, line by line, with those of all ranks of the mesh.
///
/// # Errors
/// As [`exchange`]; [`RankError::Differs`] with the first line that another rank has otherwise.
pub fn same(called: &str, text: &str) -> Result<(), RankError> {
    for axis in mesh().axes() {
        let given = exchange(axis, called, text.as_bytes())?;
        let Some((own, _, ranks)) = group(axis)? else { continue };
        let Some(at) = given.iter().position(|other| other.as_slice() != text.as_bytes()) else { continue };
        let other = String::from_utf8_lossy(&given[at]).into_owned();
        let longest = text.lines().count().max(other.lines().count());
        let line = |text: &str, at: usize| text.lines().nth(at).unwrap_or("nothing more").to_owned();
        let differs = (0..longest).find(|at| line(text, *at) != line(&other, *at)).unwrap_or(0);
        let (called, other_called) = (line(text, differs), line(&other, differs));
        return Err(RankError::Differs { rank: own.number, called, other: ranks[at], other_called });
    }
    Ok(())
}
