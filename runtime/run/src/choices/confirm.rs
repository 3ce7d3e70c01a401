//! Choices are confirmed by whole programs: what a call gains alone may be lost where its neighbours were fused with
//! it.
//!
//! The choices of one operator are taken together. Each operator's are kept only if the program with them is faster
//! than without, in most of its runs, which alternate. Calls of the other choices go to the executors that the list
//! gives them. Candidates that were faster in one way of measuring only are tried after that.
//!
//! What was recorded before is kept unless the runs say clearly that it should not: a program that takes as long with
//! choices as without is faster with them in most of a few runs by chance, now and then.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::call::{Call, Purpose};
use super::clock::Clock;
use super::entry::{Entry, Times, Tried};
use super::measure::NOISE;
use super::program;
use super::ranking::{Choices, Found, Question};
use crate::array::Array;
use crate::compile::{Choose, Options, stages};
use crate::error::{Error, Result};
use crate::meta::Device;
use crate::program::Program;
use crate::trace::Trace;

/// Runs of the program with and without an operator's choices.
const RUNS: usize = 15;
/// Of these, so many must be faster with them.
const MOST: usize = 10;
/// Of these, so many must be faster the other way for a record to be changed. Of two programs that take equally long,
/// one is faster so often by chance once in 270 times, and [`MOST`] times once in 7.
const CLEAR: usize = 13;
/// Runs before anything is measured.
const WARM_UP: usize = 3;

/// Records that are given in memory.
#[derive(Debug, Clone, Default)]
struct Given(FxHashMap<Call, Arc<Entry>>);

impl Choices for Given {
    fn find(&self, question: &Question<'_>) -> Found {
        let call = question.call();
        let found = self.0.get(&call).or_else(|| self.0.get(&call.elsewhere()));
        found.map_or(Found::Nothing, |entry| Found::Entry(entry.clone()))
    }
}

/// What was found of an operator's choices in a whole program.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmed {
    /// The operator.
    pub operator: String,
    /// The purpose of the record: forward, or forward and backward.
    pub purpose: Purpose,
    /// A candidate that was not chosen, since it is faster alone or with neighbours, and not both; `None` for the
    /// winners.
    pub contender: Option<String>,
    /// The medians of the program's times in microseconds: without and with these choices.
    pub times: [f64; 2],
    /// In how many runs the program with them was faster, and of how many.
    pub faster: [usize; 2],
    /// Whether they are kept.
    pub kept: bool,
    /// Whether that is so since it was recorded, and the runs do not clearly say otherwise.
    pub stands: bool,
}

/// What is recorded of choices that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// Nothing, or one thing of some calls and another of others.
    Nothing,
    /// That these candidates win.
    Kept,
    /// That the list's do.
    Left,
}

impl Recorded {
    /// Of a group of choices that are tried together.
    fn of(group: &[Arc<Entry>], recorded: &dyn Fn(&Call) -> Option<String>) -> Recorded {
        let winners: Vec<Option<String>> = group.iter().map(|entry| recorded(&entry.call)).collect();
        let all = |who: &dyn Fn(&Entry) -> Option<String>| {
            group.iter().zip(&winners).all(|(entry, winner)| winner.is_some() && *winner == who(entry))
        };
        if all(&|entry| Some(entry.winner.clone())) {
            Recorded::Kept
        } else if all(&|entry| entry.listed().map(str::to_owned)) {
            Recorded::Left
        } else {
            Recorded::Nothing
        }
    }
}

/// The records of `entries`, with those left to the list that make the program of `trace` no faster on `device`. Then
/// candidates that are faster than the list's alone or with neighbours, and not both, take its place if they make the
/// program faster. `each` is called after each operator, and each such candidate. `recorded` tells the winner that an
/// earlier record of a call has, if there is one.
///
/// # Errors
/// If the program cannot be compiled as the list has it, or not be run.
pub fn confirm(
    trace: &Trace,
    options: &Options,
    device: Device,
    entries: &[Arc<Entry>],
    recorded: &dyn Fn(&Call) -> Option<String>,
    each: &mut dyn FnMut(&Confirmed),
) -> Result<Vec<Entry>> {
    let mut kept: Vec<Entry> = entries.iter().filter(|entry| !changes(entry)).map(|entry| (**entry).clone()).collect();
    let proposals = proposals(entries);
    if proposals.is_empty() {
        return Ok(kept);
    }
    let mut trace = trace.clone();
    // Each run has the same inputs.
    trace.inputs.iter_mut().for_each(|input| input.donated = false);
    let name = trace.name.clone();
    let compiled = |choices: &Given| -> Result<Program> {
        let choices: Option<Arc<dyn Choices>> = Some(Arc::new(choices.clone()));
        let options = Options { choices, choose: Choose::Never, ..options.clone() };
        let _given = options.executor_options.enter();
        let last = stages(trace.clone(), &options)?.into_iter().last().map(|stage| stage.trace);
        let none = || Error::Argument { argument: "trace".into(), message: "no stage was made".into() };
        Program::new(last.ok_or_else(none)?, options.memory_limit)
    };
    let mut accepted = Given::default();
    let mut without = compiled(&accepted)?;
    let inputs = program::inputs(&without, device)?;
    let mut clock = Clock::new(device)?;
    for Proposal { operator, purpose, contender, entries: group } in proposals {
        let mut more = accepted.clone();
        more.0.extend(group.iter().map(|entry| (entry.call.clone(), entry.clone())));
        let compared = compiled(&more).and_then(|with| {
            let times = compare(&mut clock, [&without, &with], &inputs)?;
            Ok((with, times))
        });
        let (with, times) = match compared {
            Ok((with, times)) => (Some(with), times),
            Err(error) => {
                tracing::warn!("{operator}, {}: the program with its choices fails: {error}", purpose.name());
                (None, Compared { faster: 0, medians: [f64::NAN; 2] })
            }
        };
        let (helps, stands) = match with {
            Some(_) => times.decide(Recorded::of(&group, recorded)),
            None => (false, false),
        };
        let is_contender = contender.is_some();
        let faster = [times.faster, RUNS];
        each(&Confirmed { operator, purpose, contender, times: times.medians, faster, kept: helps, stands });
        match (with.filter(|_| helps), is_contender) {
            (Some(with), false) => {
                (accepted, without) = (more, with);
                kept.extend(group.iter().map(|entry| (**entry).clone()));
            }
            (Some(with), true) => {
                (accepted, without) = (more, with);
                for entry in &group {
                    let note = Some(format!("{} is faster in the program {name}", entry.winner));
                    kept.retain(|other| other.call != entry.call);
                    kept.push(Entry { note, ..(**entry).clone() });
                }
            }
            (None, false) => kept.extend(group.iter().map(|entry| {
                let note = format!("{} won alone; no gain in the program {name}", entry.winner);
                entry.left_to_the_list(note)
            })),
            (None, true) => {}
        }
    }
    drop((without, inputs, clock));
    Clock::release(device);
    kept.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(kept)
}

/// Choices that are tried together.
struct Proposal {
    operator: String,
    purpose: Purpose,
    contender: Option<String>,
    entries: Vec<Arc<Entry>>,
}

/// Whether a record has a call run by another than the list would.
fn changes(entry: &Entry) -> bool {
    entry.listed().is_some_and(|listed| listed != entry.winner)
}

/// Candidates that are faster than the list's alone or with neighbours.
fn contenders(entry: &Entry) -> Vec<&str> {
    let run = |tried: &Tried| tried.outcome.clone().ok();
    let Some(own) = entry.tried.iter().find_map(run) else { return Vec::new() };
    let faster = |time: f64, own: f64| time < own * (1.0 - NOISE);
    let contends = |times: Times| {
        faster(times.alone, own.alone) || times.beside.zip(own.beside).is_some_and(|(time, own)| faster(time, own))
    };
    entry.tried.iter().filter(|tried| run(tried).is_some_and(contends)).map(|tried| tried.by.as_str()).collect()
}

/// The winners of each operator, then each contender of calls that were left to the list.
fn proposals(entries: &[Arc<Entry>]) -> Vec<Proposal> {
    let mut winners: BTreeMap<(String, Purpose), Vec<Arc<Entry>>> = BTreeMap::new();
    let mut others: BTreeMap<(String, Purpose, String), Vec<Arc<Entry>>> = BTreeMap::new();
    for entry in entries {
        let (operator, purpose) = (entry.call.operator.clone(), entry.call.purpose);
        if changes(entry) {
            winners.entry((operator, purpose)).or_default().push(entry.clone());
            continue;
        }
        for by in contenders(entry) {
            let other = Arc::new(Entry { winner: by.to_owned(), ..(**entry).clone() });
            others.entry((operator.clone(), purpose, by.to_owned())).or_default().push(other);
        }
    }
    let won = winners.into_iter().map(|((operator, purpose), entries)| (operator, purpose, None, entries));
    let may = others.into_iter().map(|((operator, purpose, by), entries)| (operator, purpose, Some(by), entries));
    let proposal = |(operator, purpose, contender, entries)| Proposal { operator, purpose, contender, entries };
    won.chain(may).map(proposal).collect()
}

struct Compared {
    /// In how many rounds the second was faster.
    faster: usize,
    medians: [f64; 2],
}

impl Compared {
    /// Whether the second is taken, and whether that is only since it is recorded so.
    fn decide(&self, recorded: Recorded) -> (bool, bool) {
        let [before, after] = self.medians;
        let usual = self.faster >= MOST && after < before;
        let decided = match recorded {
            Recorded::Nothing => usual,
            Recorded::Left => self.faster >= CLEAR && after < before,
            Recorded::Kept => !(RUNS - self.faster >= CLEAR && after > before),
        };
        (decided, decided != usual)
    }
}

fn compare(clock: &mut Clock, programs: [&Program; 2], inputs: &[Array]) -> Result<Compared> {
    for program in programs {
        (0..WARM_UP).try_for_each(|_| clock.run(program, inputs))?;
    }
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..RUNS {
        for (program, times) in programs.iter().zip(&mut times) {
            times.push(clock.microseconds(program, inputs)?);
        }
    }
    let faster = times[0].iter().zip(&times[1]).filter(|(without, with)| with < without).count();
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    });
    Ok(Compared { faster, medians })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_changes_only_if_the_runs_are_clear() {
        let decide = |faster, medians, recorded| Compared { faster, medians }.decide(recorded);
        let (gains, loses) = ([100.0, 99.0], [99.0, 100.0]);
        for (faster, medians, recorded, expected) in [
            (10, gains, Recorded::Nothing, (true, false)),
            (9, gains, Recorded::Nothing, (false, false)),
            (10, gains, Recorded::Left, (false, true)),
            (13, gains, Recorded::Left, (true, false)),
            (13, loses, Recorded::Left, (false, false)),
            (3, loses, Recorded::Kept, (true, true)),
            (2, loses, Recorded::Kept, (false, false)),
            (2, gains, Recorded::Kept, (true, true)),
            (12, gains, Recorded::Kept, (true, false)),
        ] {
            assert_eq!(decide(faster, medians, recorded), expected, "{faster} {medians:?} {recorded:?}");
        }
    }
}
