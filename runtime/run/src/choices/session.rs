//! Many calls measured one after the other, for a bounded time, while the kernels of those that follow are compiled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::budget::{Done, Worth, order, spend};
use super::call::Call;
use super::candidates::candidates;
use super::clock::Clock;
use super::entry::DECOMPOSED;
use super::floor::floor;
use super::journal::{Journal, What};
use super::measure::{Ended, Means, measure, written};
use super::program;
use super::ranking::{Choices, Found, Question, Wanted};
use super::records::Records;
use crate::device::find_kind;
use crate::meta::Device;

/// How long a measurement without a bound waits for another process that measures.
const PATIENCE: Duration = Duration::from_secs(600);

/// Records of a device for one compilation, which measures for a bounded time.
#[derive(Debug)]
pub struct Bounded {
    records: Arc<Records>,
    left: Mutex<Duration>,
}

impl Bounded {
    /// `most` is the time in all.
    pub fn new(records: Arc<Records>, most: Duration) -> Bounded {
        Bounded { records, left: Mutex::new(most) }
    }
}

impl Choices for Bounded {
    fn find(&self, question: &Question<'_>) -> Found {
        self.records.find(question)
    }

    fn measure(&self, wanted: &[Wanted], peak: Option<u64>) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        self.records.measure_for(wanted, peak, Some(*left), &mut |_| {});
        *left = left.saturating_sub(start.elapsed());
    }
}

impl Choices for Records {
    fn find(&self, question: &Question<'_>) -> Found {
        self.look_up(question)
    }

    fn measure(&self, wanted: &[Wanted], peak: Option<u64>) {
        self.measure_for(wanted, peak, None, &mut |_| {});
    }
}

impl Records {
    /// Has calls measured of which nothing is known, those with the most to win first, for as long as `most`; `each` is
    /// called after each of them. What is left then follows the list in this process, with a warning. `peak` is as for
    /// [`Choices::measure`].
    pub fn measure_for(
        &self,
        wanted: &[Wanted],
        peak: Option<u64>,
        most: Option<Duration>,
        each: &mut (dyn FnMut(&Call) + Send),
    ) {
        // As many threads as the program's own runs have.
        let threads = rayon::current_num_threads();
        let session = Session { records: self, device: self.device(), peak, most, threads, each };
        // On a thread of its own: that of a compilation may be tracing.
        let done = std::thread::scope(|scope| scope.spawn(move || session.run(wanted)).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Calls to be measured.
struct Session<'a> {
    records: &'a Records,
    device: Device,
    /// What the program that asks needs of the device's memory, in bytes.
    peak: Option<u64>,
    /// For how long is measured.
    most: Option<Duration>,
    /// Threads of each pool that measures and compiles.
    threads: usize,
    /// Called after each call.
    each: &'a mut (dyn FnMut(&Call) + Send),
}

impl Session<'_> {
    /// Measures calls that nothing is known of. Afterwards something is known of each, unless another thread begins to
    /// record what the device does.
    fn run(self, wanted: &[Wanted]) {
        let start = Instant::now();
        let left = || self.most.map(|most| most.saturating_sub(start.elapsed()));
        let late = || left().is_some_and(|left| left.is_zero());
        let alone = Alone::wait(left());
        let turn = match &alone {
            Some(_) if late() => Turn::Ours(None),
            Some(_) => Turn::of(self.records, left().unwrap_or(PATIENCE)),
            None => Turn::Threads,
        };
        // Others may have measured meanwhile.
        let open: Vec<&Wanted> = wanted.iter().filter(|one| !self.records.is_known(&one.question())).collect();
        let journal = match turn {
            Turn::Ours(journal) => journal,
            Turn::Processes => {
                self.leave(&open, "another process measures");
                return;
            }
            Turn::Threads => {
                self.leave(&open, "the time for measuring was up: another thread measured");
                return;
            }
        };
        if open.is_empty() {
            return;
        }
        if !late() {
            self.records.tell();
        }
        // Workers of the pool that the compilation runs in may all wait for this.
        let pool = match pool(self.threads) {
            Ok(pool) => pool,
            Err(error) => {
                self.leave(&open, &format!("there are no threads to measure on: {error}"));
                return;
            }
        };
        pool.install(move || self.run_open(&open, journal.as_ref(), start));
    }

    /// Measures calls, on a thread of a pool of its own.
    fn run_open(self, open: &[&Wanted], journal: Option<&Journal>, start: Instant) {
        let late = || self.most.is_some_and(|most| start.elapsed() >= most);
        let worth: Vec<Worth> = open.iter().map(|one| worth(one)).collect();
        let (stop, records) = (AtomicBool::new(false), self.records);
        let (each, threads) = (self.each, self.threads);
        let (mut lost, mut disturbed) = (None, false);
        let left = std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            let order = order(&worth);
            // Where a candidate is blamed, nothing else is compiled beside it, so that a second line is its own.
            let blames = |journal: &Journal| open.iter().any(|one| journal.blames(&records.file(&one.call)));
            if !self.device.is_cpu() && !late() && !journal.is_some_and(blames) {
                let ahead = Ahead { records, device: self.device, journal, stop: &stop };
                // The first call compiles its own. Few candidates are run with neighbours.
                scope.spawn(move || {
                    let all = || {
                        for neighbour in [false, true] {
                            order.iter().skip(1).for_each(|at| ahead.compile(open[*at], neighbour));
                        }
                    };
                    // Without them, each candidate is compiled when it is first run.
                    if let Ok(pool) = pool(threads) {
                        pool.install(all);
                    }
                });
            }
            spend(&worth, self.most, &|| start.elapsed(), &mut |at| {
                let one = open[at];
                disturbed |= Clock::is_recorded(self.device);
                if disturbed {
                    return Done::Over;
                }
                let record = records.file(&one.call);
                let (device, peak, again) = (self.device, self.peak, records.is_again());
                let means = Means { device, peak, late: &late, journal, record: &record, again };
                let done = match measure(&one.question(), &means) {
                    Ok(Ended::Chosen(measured)) => records.keep(&one.call, measured, journal),
                    Ok(Ended::Nothing) => records.leave(&one.call, "no two candidates could be run".into()),
                    Ok(Ended::OutOfTime) => return Done::OutOfTime,
                    Ok(Ended::Disturbed) => {
                        disturbed = true;
                        return Done::Over;
                    }
                    Ok(Ended::Lost(candidate)) => {
                        lost = Some(candidate);
                        return Done::Over;
                    }
                    Err(error) => {
                        tracing::warn!("{} cannot be measured: {error}", one.call);
                        records.leave(&one.call, format!("it cannot be measured: {error}"))
                    }
                };
                Clock::release(self.device);
                each(&one.call);
                done
            })
        });
        Clock::release(self.device);
        let left: Vec<&Wanted> = left.into_iter().map(|at| open[at]).collect();
        let reason = match &lost {
            Some(candidate) => format!("{candidate} ended the work of the device"),
            None if disturbed => "another thread records what the device does".to_owned(),
            None => "the time for measuring was up".to_owned(),
        };
        if !left.is_empty() {
            tracing::warn!(
                "{} of {} costly calls are left to the list of executors: {reason}; the next process measures them, or \
                 `fulgurite tune`",
                left.len(),
                open.len()
            );
        }
        // A request while no profiler records has them measured.
        for one in left.into_iter().filter(|_| !disturbed) {
            records.leave(&one.call, reason.clone());
        }
    }

    fn leave(&self, open: &[&Wanted], reason: &str) {
        if !open.is_empty() {
            tracing::warn!("{} costly calls are left to the list of executors: {reason}", open.len());
        }
        for one in open {
            self.records.leave(&one.call, reason.into());
        }
    }
}

/// Threads for what measuring does side by side: kernels of the host, and compilations.
fn pool(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    let name = |at: usize| format!("fulgurite-choices-{at}");
    ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build()
}

/// Whose turn it is to measure.
enum Turn {
    /// This process's, with the journal if there is a folder for it.
    Ours(Option<Journal>),
    /// Another process's, for all the time there was.
    Processes,
    /// Another thread's, for all the time there was.
    Threads,
}

impl Turn {
    /// The journal of the records, when it is this process's turn.
    fn of(records: &Records, patience: Duration) -> Turn {
        let Some(folder) = records.folder() else { return Turn::Ours(None) };
        match Journal::open(folder, patience) {
            Ok(Some(journal)) => Turn::Ours(Some(journal)),
            Ok(None) => Turn::Processes,
            Err(error) => {
                tracing::warn!("{}: what is measured cannot be written down: {error}", folder.display());
                Turn::Ours(None)
            }
        }
    }
}

/// One session of this process at a time has it: what is measured at once disturbs one another.
struct Alone;

static MEASURING: Mutex<bool> = Mutex::new(false);
static MEASURED: Condvar = Condvar::new();

impl Alone {
    /// Waits for it, without a bound or so long; `None` if that was not enough.
    fn wait(patience: Option<Duration>) -> Option<Alone> {
        let mut measuring = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        while *measuring {
            let left = patience.map_or(PATIENCE, |patience| patience.saturating_sub(start.elapsed()));
            if left.is_zero() {
                return None;
            }
            (measuring, _) = MEASURED.wait_timeout(measuring, left).unwrap_or_else(PoisonError::into_inner);
        }
        *measuring = true;
        Some(Alone)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        *MEASURING.lock().unwrap_or_else(PoisonError::into_inner) = false;
        MEASURED.notify_one();
    }
}

/// Says that nothing more is to be compiled, when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What there is to win by measuring a call.
fn worth(wanted: &Wanted) -> Worth {
    let question = wanted.question();
    let names = candidates(&question);
    let floor = program::trace(&question, false).ok().and_then(|trace| floor(&question, &names, &trace));
    Worth { floor: floor.unwrap_or_default(), count: wanted.count, candidates: names.len() }
}

/// Compiles the kernels of calls that are measured later.
struct Ahead<'a> {
    records: &'a Records,
    device: Device,
    journal: Option<&'a Journal>,
    stop: &'a AtomicBool,
}

impl Ahead<'_> {
    /// Has the kernels of a call's candidates compiled, alone or with neighbours, so that they are in the cache when
    /// the candidates are run. Errors are returned when a candidate is compiled to be run.
    fn compile(&self, wanted: &Wanted, neighbour: bool) {
        use rayon::prelude::*;
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let question = wanted.question();
        let names = candidates(&question);
        if neighbour && (!names.contains(&DECOMPOSED) || question.is_program) {
            return;
        }
        let Ok(trace) = program::trace(&question, neighbour) else { return };
        let Ok(kind) = find_kind(self.device.kind()) else { return };
        let Some(architecture) = question.target.architecture() else { return };
        let (record, call) = (self.records.file(&wanted.call), wanted.call.to_string());
        names.par_iter().for_each(|name| {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let begin = |journal: &Journal| written(journal.begin(&record, &call, name, What::Compiling));
            let number = self.journal.and_then(begin);
            let sources = program::compiled(&question, &trace, name).map(|program| program.sources());
            sources.unwrap_or_default().par_iter().for_each(|source| {
                if !self.stop.load(Ordering::Relaxed) {
                    let _ = kind.entries(architecture, source);
                }
            });
            if let Some((journal, number)) = self.journal.zip(number) {
                written(journal.end(number));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_another_thread_waits_no_longer_than_it_may() {
        let alone = Alone::wait(None).unwrap();
        let start = Instant::now();
        assert!(Alone::wait(Some(Duration::ZERO)).is_none());
        assert!(Alone::wait(Some(Duration::from_millis(30))).is_none());
        assert!(start.elapsed() >= Duration::from_millis(30));
        let next = std::thread::spawn(|| Alone::wait(None).is_some());
        drop(alone);
        assert!(next.join().unwrap());
        assert!(Alone::wait(Some(Duration::ZERO)).is_some());
    }
}
