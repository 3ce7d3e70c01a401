//! Looks after runs in which a device waits for other ranks: one that waits for ever is told of and ended.
//!
//! Waits of the host ask it ([`Guard`]), so that there is no thread of its own, and what a rank knows of the others is
//! known there. Time counts from when a run is enqueued, which all ranks do together: what they compile before that
//! takes as long as it takes.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use fulgurite_kernels::ranks;

use super::super::context::Guard;
use super::super::error::{CudaError, Result};
use super::super::event::Event;
use super::super::stream::Stream;

/// Seconds without a run that ends, after which a run that waits for other ranks has failed; 0 for no limit.
const LIMIT_VARIABLE: &str = "FULGURITE_RANKS_SECONDS";
const LIMIT: Duration = Duration::from_secs(30);
/// How long a run goes on after another rank has ended, which may have been in good order, behind its part of the run.
const AFTER_AN_END: Duration = Duration::from_secs(10);

fn limit() -> Option<Duration> {
    static SET: OnceLock<Duration> = OnceLock::new();
    let set = *SET.get_or_init(|| match std::env::var(LIMIT_VARIABLE).map(|set| set.parse::<u32>()) {
        Ok(Ok(seconds)) => Duration::from_secs(seconds.into()),
        Ok(Err(_)) => {
            tracing::warn!("{LIMIT_VARIABLE} is not a number of seconds; the limit is {} s", LIMIT.as_secs());
            LIMIT
        }
        Err(_) => LIMIT,
    });
    (!set.is_zero()).then_some(set)
}

/// What a device waits in.
pub(crate) trait Waiting: Debug + Send + Sync {
    /// An error that occurred behind a call: a connection to another rank is lost.
    fn asynchronous_error(&self) -> Result<()>;

    /// Has the device's work end without the other ranks, which know by now that this one has failed.
    fn abort(&self);
}

/// A program, or a step of one, in which a device waits for other ranks.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Its name, and its collectives, in the words of an error.
    pub(crate) waits: String,
    /// What it waits in.
    pub(crate) groups: Vec<Weak<dyn Waiting>>,
}

/// What is enqueued of it, by a mark behind it.
#[derive(Debug)]
struct Enqueued {
    watched: Arc<Watched>,
    end: Event,
    at: Instant,
    rank: usize,
    run: u64,
}

#[derive(Debug)]
struct State {
    /// In the order in which they were enqueued.
    enqueued: VecDeque<Enqueued>,
    spare: Vec<Event>,
    /// When one ended last.
    ended: Instant,
    /// Since when another rank is known to have ended, without any end here since.
    other: Option<(usize, Instant)>,
    /// The run of ranks whose device waited in vain, and why.
    failed: Option<(u64, CudaError)>,
}

/// See the module. A device has one.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    on: AtomicBool,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let state =
            State { enqueued: VecDeque::new(), spare: Vec::new(), ended: Instant::now(), other: None, failed: None };
        Watch { state: Mutex::new(state), on: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches what was enqueued on `stream` by now.
    pub(crate) fn mark(&self, stream: &Stream, watched: &Arc<Watched>) -> Result<()> {
        let mut state = self.state();
        state.known()?;
        if let Some(reason) = state.doubt() {
            return Err(state.fail(reason));
        }
        state.look()?;
        let end = state.spare.pop().map_or_else(|| Event::new(stream.context()), Ok)?;
        end.record(stream)?;
        let (rank, run) = (ranks::rank(), ranks::run_number());
        if state.failed.as_ref().is_some_and(|(failed, _)| *failed != run) {
            state.failed = None;
        }
        state.enqueued.push_back(Enqueued { watched: watched.clone(), end, at: Instant::now(), rank, run });
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    /// Fails if this device waited in vain in the run of ranks that this thread belongs to.
    pub(crate) fn check_known(&self) -> Result<()> {
        self.state().known()
    }
}

impl Guard for Watch {
    fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<()> {
        let mut state = self.state();
        state.known()?;
        if let Some(reason) = state.doubt() {
            return Err(state.fail(reason));
        }
        if let Err(fault) = state.look() {
            return Err(state.fail(fault.to_string()));
        }
        let Some(first) = state.enqueued.front() else {
            self.on.store(state.failed.is_some(), Ordering::Release);
            return Ok(());
        };
        let (own, since) = (first.rank, first.at.max(state.ended));
        state.other = ranks::ended()
            .filter(|other| *other != own)
            .map(|other| state.other.filter(|(known, _)| *known == other).unwrap_or((other, Instant::now())));
        let Some(reason) = state.reason(since) else { return Ok(()) };
        Err(state.fail(reason))
    }
}

impl State {
    fn known(&self) -> Result<()> {
        match &self.failed {
            Some((run, error)) if *run == ranks::run_number() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Why the results of a run that has ended by now may be wrong: a rank that gives up says so before its device goes
    /// on without having waited, and sends what it has to others that wait for it.
    fn doubt(&self) -> Option<String> {
        let first = self.enqueued.front()?;
        let other = ranks::failed().filter(|other| *other != first.rank && first.run == ranks::run_number())?;
        let ended = first.end.is_reached().unwrap_or(false);
        ended.then(|| format!("rank {other} has failed, and what came from it may be wrong"))
    }

    /// Takes out what has ended.
    fn look(&mut self) -> Result<()> {
        while let Some(first) = self.enqueued.front() {
            if !first.end.is_reached()? {
                break;
            }
            self.spare.extend(self.enqueued.pop_front().map(|first| first.end));
            (self.ended, self.other) = (Instant::now(), None);
        }
        Ok(())
    }

    /// Why the first run that is enqueued will not end, which goes on since `since`.
    fn reason(&self, since: Instant) -> Option<String> {
        let first = self.enqueued.front()?;
        let mut groups = first.watched.groups.iter().filter_map(Weak::upgrade);
        if let Some(error) = groups.find_map(|group| group.asynchronous_error().err()) {
            return Some(error.to_string());
        }
        if let Some((other, known)) = self.other
            && known.elapsed() >= AFTER_AN_END
        {
            return Some(format!("rank {other} has ended or failed"));
        }
        let limit = limit().filter(|limit| since.elapsed() >= *limit)?;
        Some(format!(
            "the other ranks have not come for {} s; one of them hangs, or the run takes longer, and {LIMIT_VARIABLE} \
             sets the limit",
            limit.as_secs()
        ))
    }

    /// Ends all that is enqueued, and tells the other ranks.
    fn fail(&mut self, reason: String) -> CudaError {
        let enqueued = std::mem::take(&mut self.enqueued);
        let (rank, run, waits) = match enqueued.front() {
            Some(first) => (first.rank, first.run, first.watched.waits.clone()),
            None => (ranks::rank(), ranks::run_number(), String::new()),
        };
        // Before the device goes on without them: what it sends then is wrong.
        ranks::fail();
        for group in enqueued.iter().flat_map(|one| &one.watched.groups).filter_map(Weak::upgrade) {
            group.abort();
        }
        tracing::error!(rank, waits, reason, "collectives aborted");
        let error = CudaError::Waited { rank, waits, reason };
        self.failed = Some((run, error.clone()));
        error
    }
}
