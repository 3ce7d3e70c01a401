//! Ranks of the host: the threads that run one program, each with data of its own, and what they give each other.
//!
//! A rank is a thread that [`simulate`] begins. Kernels of collectives ask [`exchange`] for what the ranks along an
//! axis of the mesh give. A thread that belongs to no simulation is the one rank of [`Mesh::ONE`].
//!
//! Ranks that do not fit together get an error and do not wait for ever: where they call something else, where one has
//! ended or failed, and where all of them wait.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::mesh::{Axis, Mesh};
use crate::scratch::try_copy;

mod error;
#[cfg(test)]
mod tests;
mod world;

pub use error::RankError;
use world::World;

#[derive(Clone)]
struct Rank {
    world: Arc<World>,
    number: usize,
}

/// How many simulations were begun, and one for threads that belong to none.
static RUNS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static RANK: RefCell<Option<Rank>> = const { RefCell::new(None) };
}

/// Tells the others that a rank has ended, however it did.
struct Ending(Rank);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.world.end(self.0.number);
    }
}

/// Runs `f` on every rank of `mesh`, each on a thread of its own that gets the rank's number, and gives what they
/// returned, in order. If some panic, the panic of the first of them is passed on after all have ended.
///
/// # Errors
/// [`RankError::NoThread`] if the system has not as many threads; the ranks that were begun have ended then.
pub fn simulate<T: Send>(mesh: &Mesh, f: impl Fn(usize) -> T + Sync) -> Result<Vec<T>, RankError> {
    let world = Arc::new(World::new(RUNS.fetch_add(1, Ordering::Relaxed), mesh.clone()));
    let ranks = mesh.ranks();
    let (outcomes, missing) = thread::scope(|scope| {
        let mut begun = Vec::new();
        let mut missing = None;
        for number in 0..ranks {
            let (rank, f) = (Rank { world: world.clone(), number }, &f);
            let body = move || {
                let _ending = Ending(rank.clone());
                RANK.set(Some(rank));
                f(number)
            };
            match thread::Builder::new().name(format!("rank {number}")).spawn_scoped(scope, body) {
                Ok(rank) => begun.push(rank),
                Err(error) => {
                    (number..ranks).for_each(|absent| world.end(absent));
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

/// The number of this rank: 0 outside of a simulation.
pub fn rank() -> usize {
    RANK.with_borrow(|rank| rank.as_ref().map_or(0, |rank| rank.number))
}

/// The mesh that runs, to which this thread belongs.
pub fn mesh() -> Mesh {
    RANK.with_borrow(|rank| rank.as_ref().map_or(Mesh::ONE, |rank| rank.world.mesh.clone()))
}

/// A number that the ranks of one simulation share and no others: 0 outside of a simulation. What ranks made together
/// is kept by it.
pub fn run_number() -> u64 {
    RANK.with_borrow(|rank| rank.as_ref().map_or(0, |rank| rank.world.run))
}

/// A rank that has ended or failed, if that is known here: no exchange with it will come about.
pub fn ended() -> Option<usize> {
    RANK.with_borrow(|rank| rank.as_ref().and_then(|rank| rank.world.ended()))
}

/// Says that a program of this rank failed, which others may wait for: they get an error, and so does every later
/// exchange of this rank. Which exchange of theirs its next one would meet is not known.
pub fn fail() {
    RANK.with_borrow(|rank| rank.iter().for_each(|rank| rank.world.end(rank.number)));
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
    let Some(rank) = RANK.with_borrow(Clone::clone) else {
        return if axis.extent() == 1 { Ok(None) } else { Err(other_mesh(Mesh::ONE)) };
    };
    let mesh = &rank.world.mesh;
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
    let own = Arc::new(try_copy(bytes)?);
    match group(axis)? {
        None => Ok(vec![own]),
        Some((rank, at, ranks)) => rank.world.exchange(rank.number, (at, ranks), called, own),
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
