//! Choices are confirmed by whole programs: what a call gains alone may be lost where its neighbours were fused with
//! it.
//!
//! The choices of one operator are taken together. Each operator's are kept only if the program with them is faster
//! than without, in most of its runs, which alternate. What is not kept goes to who has it by the list. Candidates that
//! were faster in one way of measuring only are tried after that.

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
/// Runs before anything is measured.
const WARM_UP: usize = 3;

/// These records.
#[derive(Debug, Clone, Default)]
struct Given(FxHashMap<Call, Arc<Entry>>);

impl Choices for Given {
    fn find(&self, question: &Question<'_>) -> Found {
        self.0.get(&question.call()).map_or(Found::Nothing, |entry| Found::Entry(entry.clone()))
    }
}

/// What was found of an operator's choices in a whole program.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirmed {
    /// The operator.
    pub operator: String,
    /// What for.
    pub purpose: Purpose,
    /// A candidate that was not chosen, since it is faster alone or with neighbours, and not both; `None` for the
    /// winners.
    pub contender: Option<String>,
    /// The medians of the program's times in microseconds: without and with these choices.
    pub times: [f64; 2],
    /// Whether they are kept.
    pub kept: bool,
}

/// The records of `entries`, with those left to the list that make the program of `trace` no faster on `device`. Then
/// candidates that are faster than the list's alone or with neighbours, and not both, take its place if they make the
/// program faster. `each` is called after each operator, and each such candidate.
///
/// # Errors
/// If the program cannot be compiled as the list has it, or not be run.
pub fn confirm(
    trace: &Trace,
    options: &Options,
    device: Device,
    entries: &[Arc<Entry>],
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
        let [before, after] = times.medians;
        let helps = times.faster >= MOST && after < before;
        let is_contender = contender.is_some();
        each(&Confirmed { operator, purpose, contender, times: times.medians, kept: helps });
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

/// Two programs compared.
struct Compared {
    /// In how many rounds the second was faster.
    faster: usize,
    medians: [f64; 2],
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
