//! What the ranks of one run share: the exchanges that are under way, and the ranks that wait or have ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::RankError;
use crate::mesh::Mesh;

/// What a rank gives: its call, and bytes.
#[derive(Debug, Clone)]
struct Given {
    called: Arc<str>,
    bytes: Arc<Vec<u8>>,
}

/// One exchange of a group.
#[derive(Debug)]
struct Round {
    given: Vec<Option<Given>>,
    /// How many ranks have not yet taken what was given.
    left: usize,
}

/// The group's first rank, its axis, and the number of the exchange.
type Key = (usize, usize, u64);

/// A rank that waits for others.
#[derive(Debug, Clone)]
struct Waiting {
    key: Key,
    called: Arc<str>,
    /// The ranks of its group.
    ranks: Vec<usize>,
}

#[derive(Debug, Default)]
struct State {
    rounds: HashMap<Key, Round>,
    /// By rank and axis, how many exchanges it has begun.
    begun: HashMap<(usize, usize), u64>,
    /// The ranks that have ended or failed.
    ended: BTreeSet<usize>,
    /// Those of them that have said that they failed.
    failed: BTreeSet<usize>,
    waiting: BTreeMap<usize, Waiting>,
    /// Whether all ranks were found to wait for each other. Nothing is exchanged any more.
    stuck: bool,
}

impl State {
    /// The ranks of a group that have not given anything yet.
    fn absent<'a>(&'a self, of: &'a Waiting) -> impl Iterator<Item = usize> + 'a {
        let given = self.rounds.get(&of.key).map_or(&[][..], |round| &round.given);
        of.ranks.iter().zip(given).filter(|(_, given)| given.is_none()).map(|(rank, _)| *rank)
    }

    /// Whether each of `ranks` ranks has ended or waits for one that waits too.
    fn is_stuck(&self, ranks: usize) -> bool {
        let goes_on = |of: &Waiting| {
            let mut absent = self.absent(of).peekable();
            // A full round is taken, and a wait for a rank that has ended is an error.
            absent.peek().is_none() || absent.any(|rank| self.ended.contains(&rank))
        };
        // A process may end while it waits.
        let waiting = || self.waiting.iter().filter(|(rank, _)| !self.ended.contains(rank)).map(|(_, of)| of);
        waiting().count() + self.ended.len() == ranks && !waiting().any(goes_on)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct World {
    pub(super) mesh: Mesh,
    state: Mutex<State>,
    changed: Condvar,
}

impl World {
    pub(super) fn new(mesh: Mesh) -> World {
        World { mesh, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has nobody wait for a rank any more; whether that is new.
    pub(super) fn end(&self, rank: usize) -> bool {
        let new = self.state().ended.insert(rank);
        self.changed.notify_all();
        new
    }

    /// As [`World::end`], for a rank of which a program failed.
    pub(super) fn fail(&self, rank: usize) -> bool {
        self.state().failed.insert(rank);
        self.end(rank)
    }

    /// A rank that has said that it failed, if one has.
    pub(super) fn failed(&self) -> Option<usize> {
        self.state().failed.first().copied()
    }

    /// A rank that has ended or failed, if one has.
    pub(super) fn ended(&self) -> Option<usize> {
        self.state().ended.first().copied()
    }

    /// Gives `bytes` to the ranks of a group along an axis, among which `rank` is, and waits for theirs.
    pub(super) fn exchange(
        &self,
        rank: usize,
        (axis, ranks): (usize, Vec<usize>),
        called: &str,
        bytes: Arc<Vec<u8>>,
    ) -> Result<Vec<Arc<Vec<u8>>>, RankError> {
        let mut state = self.state();
        if state.ended.contains(&rank) {
            return Err(RankError::Failed { rank, called: called.to_owned() });
        }
        let begun = state.begun.entry((rank, axis)).or_default();
        let key = (ranks[0], axis, *begun);
        *begun += 1;
        let called: Arc<str> = called.into();
        let place = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        let new = || Round { given: vec![None; ranks.len()], left: ranks.len() };
        state.rounds.entry(key).or_insert_with(new).given[place] = Some(Given { called: called.clone(), bytes });
        self.changed.notify_all();
        let own = Waiting { key, called: called.clone(), ranks };
        let given = loop {
            if let Some(given) = taken(&mut state, key) {
                state.waiting.remove(&rank);
                break given;
            }
            // Before those that have ended: a rank that was told of it may have ended since.
            if state.stuck {
                return Err(stuck(&state, rank, &own));
            }
            // A process may be lost while it waits.
            if state.ended.contains(&rank) {
                return Err(RankError::Failed { rank, called: called.to_string() });
            }
            let ended = state.absent(&own).find(|other| state.ended.contains(other));
            if let Some(ended) = ended {
                state.waiting.remove(&rank);
                return Err(RankError::Ended { rank, called: called.to_string(), ended });
            }
            state.waiting.insert(rank, own.clone());
            if state.is_stuck(self.mesh.ranks()) {
                state.stuck = true;
                self.changed.notify_all();
                return Err(stuck(&state, rank, &own));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        match given.iter().position(|other| other.called != called) {
            Some(other) => Err(RankError::Differs {
                rank,
                called: called.to_string(),
                other: own.ranks[other],
                other_called: given[other].called.to_string(),
            }),
            None => Ok(given.into_iter().map(|given| given.bytes).collect()),
        }
    }
}

/// What all ranks gave, if they did. The last rank to take it removes it.
fn taken(state: &mut State, key: Key) -> Option<Vec<Given>> {
    let round = state.rounds.get_mut(&key)?;
    let given = round.given.iter().cloned().collect::<Option<Vec<Given>>>()?;
    round.left -= 1;
    if round.left == 0 {
        state.rounds.remove(&key);
    }
    Some(given)
}

fn stuck(state: &State, rank: usize, own: &Waiting) -> RankError {
    let other = state.absent(own).next().unwrap_or(rank);
    let other_called = state.waiting.get(&other).map_or(&*own.called, |other| &*other.called).to_owned();
    RankError::Stuck { rank, called: own.called.to_string(), other, other_called }
}
