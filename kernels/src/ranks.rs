//! Ranks of the host: the threads that run one program, each with data of its own, and what they give each other.
//!
//! A rank is a thread that [`simulate`] begins. Kernels of collectives ask [`exchange`] for what the ranks along an
//! axis of the mesh give. A thread that belongs to no simulation is the one rank of [`Mesh::ONE`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::buffer::OutOfMemory;
use crate::mesh::{Axis, Mesh};
use crate::scratch::try_copy;

/// Why ranks could not exchange anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// The axis is not one of the mesh that runs.
    #[error(
        "the program has the axis {axis}, and runs on {}; start as many ranks as it is compiled for",
        if mesh.axes().is_empty() { "one rank".to_owned() } else { format!("the mesh '{mesh}'") }
    )]
    OtherMesh {
        /// The axis of the program.
        axis: String,
        /// The mesh that runs.
        mesh: Mesh,
    },
    /// Two ranks of one group call different collectives.
    #[error("rank {rank} calls {called}, rank {other} calls {other_called}: all ranks must run the same program")]
    Differs {
        /// The rank that sees it.
        rank: usize,
        /// Its call, as `all_reduce along data=2 of f32[3]`.
        called: String,
        /// The first rank that calls something else.
        other: usize,
        /// The call of that rank.
        other_called: String,
    },
    /// A rank of the group has ended and will never call.
    #[error("rank {rank} waits in {called}, and rank {ended} has ended without calling it")]
    Ended {
        /// The rank that waits.
        rank: usize,
        /// Its call, as `all_reduce along data=2 of f32[3]`.
        called: String,
        /// The rank that is no longer there.
        ended: usize,
    },
    /// There is no memory for what is given.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// What a rank gives: what it calls, and its bytes.
#[derive(Clone)]
struct Given {
    called: Arc<str>,
    bytes: Arc<Vec<u8>>,
}

/// One exchange of a group.
struct Round {
    given: Vec<Option<Given>>,
    /// How many ranks have not yet taken what was given.
    left: usize,
}

#[derive(Default)]
struct State {
    /// By the group's first rank, its axis and the number of the exchange.
    rounds: HashMap<(usize, usize, u64), Round>,
    /// By rank and axis, how many exchanges it has begun.
    begun: HashMap<(usize, usize), u64>,
    /// The ranks that have ended.
    ended: Vec<usize>,
}

struct World {
    /// Its number among the simulations of this process.
    run: u64,
    mesh: Mesh,
    state: Mutex<State>,
    changed: Condvar,
}

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
        let world = &self.0.world;
        world.state.lock().unwrap_or_else(PoisonError::into_inner).ended.push(self.0.number);
        world.changed.notify_all();
    }
}

/// Runs `f` on every rank of `mesh`, each on a thread of its own that gets the rank's number, and gives what they
/// returned, in order. If some panic, the panic of the first of them is passed on after all have ended.
pub fn simulate<T: Send>(mesh: &Mesh, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let world = Arc::new(World {
        run: RUNS.fetch_add(1, Ordering::Relaxed),
        mesh: mesh.clone(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let outcomes: Vec<thread::Result<T>> = thread::scope(|scope| {
        let start = |number: usize| {
            let (rank, f) = (Rank { world: world.clone(), number }, &f);
            scope.spawn(move || {
                let _ending = Ending(rank.clone());
                RANK.set(Some(rank));
                f(number)
            })
        };
        let ranks: Vec<_> = (0..mesh.ranks()).map(start).collect();
        ranks.into_iter().map(|rank| rank.join()).collect()
    });
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| resume_unwind(panic))).collect()
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

/// The place of this rank along an axis.
///
/// # Errors
/// If the mesh that runs has no such axis, or has it with another number of ranks.
pub fn place(axis: &Axis) -> Result<usize, RankError> {
    Ok(group(axis)?.map_or(0, |group| group.place))
}

/// The ranks along an axis from one of them.
struct Group {
    rank: Rank,
    axis: usize,
    ranks: Vec<usize>,
    place: usize,
}

/// `None` where this rank is the only one.
fn group(axis: &Axis) -> Result<Option<Group>, RankError> {
    let other_mesh = |mesh: Mesh| RankError::OtherMesh { axis: axis.to_string(), mesh };
    let Some(rank) = RANK.with_borrow(Clone::clone) else {
        return if axis.extent() == 1 { Ok(None) } else { Err(other_mesh(Mesh::ONE)) };
    };
    let mesh = &rank.world.mesh;
    match mesh.axis(axis.name()) {
        Some((at, own)) if own == axis => {
            let ranks = mesh.group(rank.number, at);
            let place = ranks.iter().position(|other| *other == rank.number).unwrap_or(0);
            Ok(Some(Group { rank, axis: at, ranks, place }))
        }
        None if axis.extent() == 1 => Ok(None),
        _ => Err(other_mesh(mesh.clone())),
    }
}

/// Gives `bytes` to the ranks along `axis` and waits for theirs: what each of them gave, in the order of the axis.
/// `called` says what is called, in the words of an error; it must be the same on all of them.
///
/// # Errors
/// If the mesh that runs has no such axis, another rank calls something else, or has ended.
pub fn exchange(axis: &Axis, called: &str, bytes: &[u8]) -> Result<Vec<Arc<Vec<u8>>>, RankError> {
    let own = Arc::new(try_copy(bytes)?);
    let Some(Group { rank: Rank { world, number }, axis, ranks, place }) = group(axis)? else { return Ok(vec![own]) };
    let mut state = world.state.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = state.begun.entry((number, axis)).or_default();
    let key = (ranks[0], axis, *begun);
    *begun += 1;
    let called: Arc<str> = called.into();
    let round = state.rounds.entry(key).or_insert_with(|| Round { given: vec![None; ranks.len()], left: ranks.len() });
    round.given[place] = Some(Given { called: called.clone(), bytes: own });
    world.changed.notify_all();
    let given = loop {
        let round = state.rounds.get_mut(&key).unwrap_or_else(|| unreachable!("kept until all have taken it"));
        if let Some(given) = round.given.iter().cloned().collect::<Option<Vec<Given>>>() {
            round.left -= 1;
            if round.left == 0 {
                state.rounds.remove(&key);
            }
            break given;
        }
        let absent: Vec<usize> =
            ranks.iter().zip(&round.given).filter(|(_, given)| given.is_none()).map(|(rank, _)| *rank).collect();
        if let Some(ended) = absent.into_iter().find(|rank| state.ended.contains(rank)) {
            return Err(RankError::Ended { rank: number, called: called.to_string(), ended });
        }
        state = world.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    };
    drop(state);
    match given.iter().position(|other| other.called != called) {
        Some(other) => Err(RankError::Differs {
            rank: number,
            called: called.to_string(),
            other: ranks[other],
            other_called: given[other].called.to_string(),
        }),
        None => Ok(given.into_iter().map(|given| given.bytes).collect()),
    }
}

/// The least of what all ranks of the mesh give.
///
/// # Errors
/// If another rank calls something else, or has ended.
pub fn least(own: u8) -> Result<u8, RankError> {
    let mut least = own;
    for axis in mesh().axes() {
        let given = exchange(axis, "an agreement", &[least])?;
        least = given.iter().map(|bytes| bytes[0]).fold(least, u8::min);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn axis(text: &str) -> Axis {
        text.parse().unwrap()
    }

    fn mesh(text: &str) -> Mesh {
        text.parse().unwrap()
    }

    #[test]
    fn each_rank_gets_what_its_group_gave() {
        let got = simulate(&mesh("data=2 tensor=3"), |rank| {
            let mut all = Vec::new();
            for round in 0..50u8 {
                for along in ["tensor=3", "data=2"] {
                    let bytes = exchange(&axis(along), "test", &[rank as u8, round]).unwrap();
                    all.push(bytes.iter().map(|bytes| bytes[0]).collect::<Vec<u8>>());
                    assert!(bytes.iter().all(|bytes| bytes[1] == round));
                }
            }
            assert_eq!(least(10 - rank as u8), Ok(5));
            (all, place(&axis("tensor=3")).unwrap(), super::rank(), super::mesh().ranks())
        });
        for (rank, (all, place, number, ranks)) in got.into_iter().enumerate() {
            assert_eq!((place, number, ranks), (rank % 3, rank, 6));
            let first = rank as u8 / 3 * 3;
            let (tensor, data) = (vec![first, first + 1, first + 2], vec![rank as u8 % 3, rank as u8 % 3 + 3]);
            assert!(all.chunks(2).all(|pair| pair == [tensor.clone(), data.clone()]), "{rank}: {all:?}");
        }
    }

    #[test]
    fn ranks_that_call_something_else_or_end_are_errors_and_nobody_waits_for_ever() {
        let outcomes = simulate(&mesh("data=2"), |rank| {
            exchange(&axis("data=2"), if rank == 0 { "all_reduce of f32[2]" } else { "all_gather of f32[2]" }, &[])
        });
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains(&format!("rank {rank} calls all_")), "{message}");
            assert!(message.contains(&format!("rank {} calls all_", 1 - rank)), "{message}");
        }
        let outcomes = simulate(&mesh("data=3"), |rank| match rank {
            1 => Ok(Vec::new()),
            _ => exchange(&axis("data=3"), "all_reduce", &[]),
        });
        let message = outcomes[2].clone().unwrap_err().to_string();
        assert_eq!(message, "rank 2 waits in all_reduce, and rank 1 has ended without calling it");
        let panic = catch_unwind(AssertUnwindSafe(|| {
            simulate(&mesh("data=2"), |rank| match rank {
                1 => panic!("rank 1 fails"),
                _ => exchange(&axis("data=2"), "barrier", &[]).unwrap_err(),
            })
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"rank 1 fails"));
    }

    #[test]
    fn another_mesh_than_the_programs_is_an_error() {
        assert_eq!(exchange(&axis("data=1"), "test", &[7]).unwrap()[0].as_slice(), &[7]);
        let alone = exchange(&axis("data=4"), "test", &[]).unwrap_err().to_string();
        assert!(alone.contains("the axis data=4, and runs on one rank"), "{alone}");
        let outcomes = simulate(&mesh("data=2"), |_| {
            assert!(place(&axis("tensor=1")).is_ok());
            ["data=4", "data=1", "tensor=2"].map(|along| exchange(&axis(along), "test", &[]).unwrap_err())
        });
        for error in outcomes.into_iter().flatten() {
            assert!(error.to_string().contains("runs on the mesh 'data=2'"), "{error}");
        }
    }
}
