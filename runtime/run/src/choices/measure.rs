//! Candidates are run against each other.
//!
//! Their runs alternate, each with cold caches, and the medians count. Where the decomposition is a candidate, each is
//! measured twice: alone, and with neighbours that an executor may fuse with the decomposition, conversions of operands
//! and sums with results. Alone, the decomposition looks slower than it is in a program where it is fused with what is
//! beside it; with neighbours, a kernel looks slower than it is where nothing elementwise is beside it. Another
//! candidate takes the place of the list's only if it is faster in both, so that no program gets slower by a choice
//! that its neighbours decide.

use std::io;

use super::candidates::candidates;
use super::clock::{Clock, Untimed};
use super::entry::{DECOMPOSED, Times, Tried, rounded};
use super::journal::{Blame, Journal, What};
use super::program;
use super::ranking::Question;
use super::room::{Need, Residency, residency};
use super::rounds::rounds;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::meta::Device;
use crate::program::Program;
use crate::trace::Trace;

/// Why a candidate has no times that measuring did not come to.
const NOT_RUN: &str = "was not run";
/// Runs before anything is measured: the first ones launch, record a graph, and replay it.
const WARM_UP: usize = 3;
/// Times that differ by no more than this part are equal.
pub(super) const NOISE: f64 = 0.02;

/// What was measured of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) winner: String,
    pub(super) tried: Vec<Tried>,
    /// Whether it is a property of the device: not where a candidate lacked memory, which others may have used, or was
    /// skipped since a process ended in the middle of it, which the user may have wanted.
    pub(super) lasting: bool,
}

/// How measuring a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ended {
    /// The winner.
    Chosen(Measured),
    /// There is nothing to choose, or nobody could be run.
    Nothing,
    /// The time limit was reached.
    OutOfTime,
    /// Another thread records what the device does.
    Disturbed,
    /// The device runs nothing any more, after this candidate.
    Lost(String),
}

/// Where and how candidates are run.
pub(super) struct Means<'a> {
    pub(super) device: Device,
    /// What the program that the call is of needs of the device's memory, in bytes.
    pub(super) peak: Option<u64>,
    /// Whether time is up; asked before a candidate is compiled, and before each round.
    pub(super) late: &'a dyn Fn() -> bool,
    /// Where the candidates that are compiled and run are written down.
    pub(super) journal: Option<&'a Journal>,
    /// The name of the call's record.
    pub(super) record: &'a str,
    /// Whether candidates that ended a process are tried all the same.
    pub(super) again: bool,
}

impl Means<'_> {
    /// Why a candidate is not run, if an ended process says so.
    fn blame(&self, candidate: &str) -> Option<Blame> {
        let blame = self.journal.filter(|_| !self.again)?.blame(self.record, candidate)?;
        (!blame.is_tried_again()).then_some(blame)
    }

    /// Compiles or runs a candidate. Meanwhile the journal says so.
    fn noted<T, E>(
        &self,
        call: &str,
        candidate: &str,
        what: What,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(journal) = self.journal else { return work() };
        let number = written(journal.begin(self.record, call, candidate, what));
        let done = work();
        if let Some(number) = number {
            written(match done.is_err() && Clock::is_lost(self.device) {
                true => journal.fault(number),
                false => journal.end(number),
            });
        }
        done
    }
}

/// The candidates of a call, and why some were dropped.
struct Candidates<'a> {
    question: &'a Question<'a>,
    call: String,
    names: Vec<&'static str>,
    dropped: Vec<Option<String>>,
    /// Whether one of them was dropped for what is no property of the device.
    passing: bool,
}

/// Why no times were measured.
enum Stopped {
    OutOfTime,
    Disturbed,
    Lost(&'static str),
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped::Failed(error.into())
    }
}

/// Measures the candidates of a call.
///
/// # Errors
/// If the call itself cannot be traced, or the device has no memory for its operands.
pub(super) fn measure(question: &Question<'_>, means: &Means<'_>) -> Result<Ended> {
    // Measuring has threads of its own, and kernels are planned anew where a program was given back.
    let _given = question.options.enter();
    match measured(question, means) {
        Ok(ended) => Ok(ended),
        Err(Stopped::OutOfTime) => Ok(Ended::OutOfTime),
        Err(Stopped::Disturbed) => Ok(Ended::Disturbed),
        Err(Stopped::Lost(candidate)) => Ok(Ended::Lost(candidate.to_owned())),
        Err(Stopped::Failed(error)) => Err(error),
    }
}

fn measured(question: &Question<'_>, means: &Means<'_>) -> Result<Ended, Stopped> {
    let names = candidates(question);
    if names.len() < 2 {
        return Ok(Ended::Nothing);
    }
    let call = question.call().to_string();
    let blames: Vec<Option<Blame>> = names.iter().map(|name| means.blame(name)).collect();
    for (name, _) in names.iter().zip(&blames).filter(|(_, blame)| blame.is_some_and(|blame| !blame.is_for_good())) {
        means.journal.and_then(|journal| written(journal.skip(means.record, &call, name)));
    }
    let passing = blames.iter().flatten().any(|blame| !blame.is_for_good());
    let dropped = blames.into_iter().map(|blame| blame.map(|blame| blame.to_string())).collect();
    let mut clock = Clock::new(means.device)?;
    let opens = names.contains(&DECOMPOSED) && !question.is_program;
    let mut candidates = Candidates { question, call, dropped, names, passing };
    let all: Vec<usize> = (0..candidates.names.len()).collect();
    let alone = candidates.medians(&mut clock, means, false, &all)?;
    // A candidate that is not faster alone does not win, whatever the neighbours: the list's and those that may win are
    // left.
    let listed = alone.iter().flatten().next().copied().unwrap_or(f64::INFINITY);
    let may_win = |at: &usize| alone[*at].is_some_and(|time| time < listed * (1.0 - NOISE));
    let first = all.iter().find(|at| alone[**at].is_some());
    let beside = match opens && all.iter().any(may_win) {
        true => {
            let some: Vec<usize> = all.iter().filter(|at| Some(*at) == first || may_win(at)).copied().collect();
            candidates.medians(&mut clock, means, true, &some)?
        }
        false => vec![None; alone.len()],
    };
    let Candidates { names, mut dropped, passing, .. } = candidates;
    let tried = |(at, name): (usize, &&'static str)| {
        let outcome = match (dropped[at].take(), alone[at]) {
            // As they are recorded.
            (None, Some(alone)) => Ok(Times { alone: rounded(alone), beside: beside[at].map(rounded) }),
            (reason, _) => Err(reason.unwrap_or_else(|| NOT_RUN.into())),
        };
        Tried { by: (*name).to_owned(), outcome }
    };
    let tried: Vec<Tried> = names.iter().enumerate().map(tried).collect();
    Ok(match winner(&tried) {
        Some(winner) => Ended::Chosen(Measured { winner, tried, lasting: !passing }),
        None => Ended::Nothing,
    })
}

/// A candidate that is run.
struct Running {
    /// Which of the candidates.
    at: usize,
    trace: Trace,
    /// Made ready, if it is resident.
    program: Option<Program>,
    /// Whether it was run before anything is measured.
    warm: bool,
}

impl Candidates<'_> {
    /// The median time in microseconds of each candidate of `some`, alone or with a neighbour; `None` of the others and
    /// of those that were dropped.
    fn medians(
        &mut self,
        clock: &mut Clock,
        means: &Means<'_>,
        neighbour: bool,
        some: &[usize],
    ) -> Result<Vec<Option<f64>>, Stopped> {
        let trace = program::trace(self.question, neighbour)?;
        let mut running: Vec<Running> = Vec::new();
        let mut needs: Vec<Need> = Vec::new();
        // Those that are the same program as one before them.
        let mut same: Vec<(usize, usize)> = Vec::new();
        for at in some.iter().copied() {
            if self.dropped[at].is_some() {
                continue;
            }
            if (means.late)() {
                return Err(Stopped::OutOfTime);
            }
            let name = self.names[at];
            let compiled = || program::compiled(self.question, &trace, name);
            match means.noted(&self.call, name, What::Compiling, compiled) {
                Ok(program) => match running.iter().find(|other| runs_the_same(&other.trace, program.trace())) {
                    Some(other) => same.push((at, other.at)),
                    None => {
                        needs.push(Need::of(&program));
                        let trace = program.trace().clone();
                        running.push(Running { at, trace, program: Some(program), warm: false });
                    }
                },
                Err(error) => {
                    self.passing |= is_lack_of_memory(&error);
                    self.dropped[at] = Some(reason(&error));
                }
            }
        }
        let room = Clock::room(means.device);
        let Residency { lacking, one_at_a_time } = residency(&needs, room, means.peak);
        for (i, reason) in lacking {
            self.dropped[running[i].at] = Some(reason);
            self.passing = true;
        }
        running.retain(|one| self.dropped[one.at].is_none());
        let Some(first) = running.first().and_then(|one| one.program.as_ref()) else {
            return Ok(vec![None; self.names.len()]);
        };
        let inputs = program::inputs(first, means.device)?;
        let (count, mut stopped) = (running.len(), None);
        let mut run = |i: usize| -> std::result::Result<f64, String> {
            let name = self.names[running[i].at];
            if stopped.is_none() && !running[i].warm && (means.late)() {
                stopped = Some(Stopped::OutOfTime);
            }
            if stopped.is_some() {
                return Err(NOT_RUN.into());
            }
            if one_at_a_time {
                running.iter_mut().enumerate().filter(|(other, _)| *other != i).for_each(|(_, other)| other.leave());
                Clock::release(means.device);
            }
            let one = &mut running[i];
            let loaded = match one.warm {
                true => Ok(()),
                false => means.noted(&self.call, name, What::Compiling, || one.load()),
            };
            let time = loaded
                .map_err(Untimed::Failed)
                .and_then(|()| means.noted(&self.call, name, What::Running, || one.time(clock, &inputs)));
            if let Err(Untimed::Failed(error)) = &time
                && Clock::is_lost(means.device)
            {
                tracing::error!("{}: {name} ended the work of the device: {error}", self.call);
                stopped = Some(Stopped::Lost(name));
            }
            match time {
                Ok(time) => Ok(time),
                Err(Untimed::Disturbed) => {
                    stopped = Some(Stopped::Disturbed);
                    Err(NOT_RUN.into())
                }
                Err(Untimed::Failed(error)) => {
                    self.passing |= is_lack_of_memory(&error);
                    Err(reason(&error))
                }
            }
        };
        let times = rounds(count, means.late, &mut run);
        if let Some(stopped) = stopped {
            return Err(stopped);
        }
        let times = times.ok_or(Stopped::OutOfTime)?;
        let mut medians = vec![None; self.names.len()];
        for (one, time) in running.iter().zip(times) {
            match time {
                Ok(time) => medians[one.at] = Some(time),
                Err(reason) => self.dropped[one.at] = Some(reason),
            }
        }
        for (at, other) in same {
            medians[at] = medians[other];
            self.dropped[at] = self.dropped[other].clone();
        }
        Ok(medians)
    }
}

impl Running {
    /// Makes the program ready, if it is not.
    fn load(&mut self) -> Result<()> {
        match &self.program {
            Some(program) => program.load(),
            None => self.program.insert(Program::trusted(self.trace.clone(), None)?).load(),
        }
    }

    /// The time of one run in microseconds. The program was loaded.
    fn time(&mut self, clock: &mut Clock, inputs: &[Array]) -> Result<f64, Untimed> {
        let Some(program) = &self.program else { unreachable!("it was loaded") };
        if !self.warm {
            (0..WARM_UP).try_for_each(|_| clock.run(program, inputs))?;
            self.warm = true;
        }
        clock.microseconds(program, inputs)
    }

    /// Gives the program's memory back.
    fn leave(&mut self) {
        (self.program, self.warm) = (None, false);
    }
}

/// Whether two planned programs have the same lines, run by the same executors.
fn runs_the_same(a: &Trace, b: &Trace) -> bool {
    let executors = |trace: &Trace| trace.block.symbols.iter().map(|symbol| symbol.executor).collect::<Vec<_>>();
    executors(a) == executors(b) && a.to_string() == b.to_string()
}

/// A journal that cannot be written is a warning: measuring goes on without it.
pub(super) fn written<T>(done: io::Result<T>) -> Option<T> {
    done.inspect_err(|error| tracing::warn!("what is measured cannot be written down: {error}")).ok()
}

/// Whether another process, or another size, may be why it failed.
fn is_lack_of_memory(error: &Error) -> bool {
    // The code of a kernel of the host that lacks memory is the same as that of the device.
    matches!(error, Error::PlanTooLarge { .. }) || error.code() == "OutOfMemory"
}

/// The first line of an error.
fn reason(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// What part of the list's times a candidate takes where it is slowest. `unknown` is that with neighbours, where only
/// the list's was measured with them.
pub(super) fn slowest_part(times: Times, listed: Times, unknown: f64) -> f64 {
    let beside = match (times.beside, listed.beside) {
        (Some(other), Some(own)) => other / own,
        (None, Some(_)) => unknown,
        (_, None) => 0.0,
    };
    (times.alone / listed.alone).max(beside)
}

/// The winner; `None` if no candidate could be run. The first of `tried` that could be run is the list's.
pub(super) fn winner(tried: &[Tried]) -> Option<String> {
    let run: Vec<(&str, Times)> =
        tried.iter().filter_map(|one| Some((one.by.as_str(), one.outcome.clone().ok()?))).collect();
    let (listed, own) = *run.first()?;
    // A candidate that was not measured with neighbours, where the list's was, is not faster alone.
    let part = |times: &Times| slowest_part(*times, own, f64::INFINITY);
    let least = run.iter().map(|(_, times)| part(times)).fold(1.0, f64::min);
    if least >= 1.0 - NOISE {
        return Some(listed.to_owned());
    }
    // Of those that are as fast as the fastest, the first.
    let first = run.iter().find(|(_, times)| part(times) <= least * (1.0 + NOISE));
    first.map(|(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use fulgurite_kernels::buffer::OutOfMemory;

    use super::*;
    use crate::device::{Category, DeviceError};
    use crate::error::{CallStack, Failure};

    fn tried(all: &[(&str, Option<(f64, f64)>)]) -> Vec<Tried> {
        let one = |(by, times): &(&str, Option<(f64, f64)>)| Tried {
            by: (*by).to_owned(),
            outcome: times.map(|(alone, beside)| Times { alone, beside: Some(beside) }).ok_or("no".to_owned()),
        };
        all.iter().map(one).collect()
    }

    fn who(all: &[(&str, Option<(f64, f64)>)]) -> Option<String> {
        winner(&tried(all))
    }

    #[test]
    fn the_fastest_wins_and_a_tie_goes_to_the_order_of_the_list() {
        let won = |all: &[(&str, Option<(f64, f64)>)]| who(all).unwrap();
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((9.0, 11.0)))]), "b");
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((9.9, 11.9)))]), "a", "within the noise");
        let close = [("a", Some((10.0, 12.0))), ("b", Some((5.05, 6.05))), ("c", Some((5.0, 6.0)))];
        assert_eq!(won(&close), "b", "both are faster than the list's, and as fast as one another");
    }

    #[test]
    fn who_wins_with_or_without_a_neighbour_alone_does_not_win() {
        let won = |all: &[(&str, Option<(f64, f64)>)]| who(all).unwrap();
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((8.0, 13.0)))]), "a");
        assert_eq!(won(&[("a", Some((10.0, 12.0))), ("b", Some((11.0, 9.0)))]), "a");
    }

    #[test]
    fn who_was_not_measured_with_neighbours_does_not_win() {
        let all = [("a", Some((10.0, 12.0))), ("b", Some((9.75, 0.0))), ("c", Some((9.7, 11.0)))];
        let mut tried = tried(&all);
        tried[1].outcome = Ok(Times { alone: 9.75, beside: None });
        assert_eq!(winner(&tried).as_deref(), Some("c"), "b is as fast as c alone");
    }

    #[test]
    fn candidates_that_were_dropped_do_not_count() {
        assert_eq!(who(&[("a", None), ("b", Some((9.0, 11.0)))]).as_deref(), Some("b"));
        assert_eq!(who(&[("a", None)]), None);
    }

    #[test]
    fn a_kernel_of_the_host_that_lacks_memory_may_have_it_later() {
        let lack = OutOfMemory { bytes: 1 << 40 };
        let failures = [(Failure::from(lack.clone()), true), (Failure::new("KernelLayout", "strided"), false)];
        for (failure, passes) in failures {
            let (operator, line) = ("prims::sort".to_owned(), "t1 = sort(t0)".into());
            let traced =
                Error::Operator { operator: operator.clone(), failure: failure.clone(), stack: CallStack::default() };
            assert_eq!(is_lack_of_memory(&traced), passes, "{traced}");
            let run = Error::Run { operator, failure, line, stack: CallStack::default() };
            assert_eq!(is_lack_of_memory(&run), passes, "{run}");
        }
        assert!(is_lack_of_memory(&Error::OutOfMemory(lack)));
        let device = |category| Error::Device(DeviceError::new(category, "no"));
        assert!(is_lack_of_memory(&device(Category::OutOfMemory)));
        assert!(!is_lack_of_memory(&device(Category::Other)));
    }
}
