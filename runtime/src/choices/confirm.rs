//! Choices are confirmed by whole programs: what a call gains alone may be lost where its neighbours were fused with
//! it.
//!
//! The choices of one operator are taken together. Each operator's are kept only if the program with them is faster
//! than without, in most of its runs, which alternate. What is not kept goes to who has it by the list.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::call::{Call, Purpose};
use super::clock::Clock;
use super::entry::Entry;
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
    /// The medians of the program's times in microseconds: without and with these choices.
    pub times: [f64; 2],
    /// Whether they are kept.
    pub kept: bool,
}

/// The records of `entries`, with those left to the list that make the program of `trace` no faster on `device`.
/// `each` is called after each operator.
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
    let changes = |entry: &Entry| entry.listed().is_some_and(|listed| listed != entry.winner);
    let mut groups: BTreeMap<(String, Purpose), Vec<Arc<Entry>>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| changes(entry)) {
        groups.entry((entry.call.operator.clone(), entry.call.purpose)).or_default().push(entry.clone());
    }
    let mut kept: Vec<Entry> = entries.iter().filter(|entry| !changes(entry)).map(|entry| (**entry).clone()).collect();
    if groups.is_empty() {
        return Ok(kept);
    }
    let mut trace = trace.clone();
    // Each run has the same inputs.
    trace.inputs.iter_mut().for_each(|input| input.donated = false);
    let name: Arc<str> = trace.name.as_str().into();
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
    for ((operator, purpose), group) in groups {
        let mut more = accepted.clone();
        more.0.extend(group.iter().map(|entry| (entry.call.clone(), entry.clone())));
        let compared = compiled(&more).and_then(|with| {
            let times = compare(&mut clock, [&without, &with], &inputs, &name)?;
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
        each(&Confirmed { operator, purpose, times: times.medians, kept: helps });
        match with.filter(|_| helps) {
            Some(with) => {
                (accepted, without) = (more, with);
                kept.extend(group.iter().map(|entry| (**entry).clone()));
            }
            None => kept.extend(group.iter().map(|entry| {
                let note = format!("{} won alone; no gain in the program {name}", entry.winner);
                entry.left_to_the_list(note)
            })),
        }
    }
    drop((without, inputs, clock));
    Clock::release(device);
    kept.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(kept)
}

/// Two programs compared.
struct Compared {
    /// In how many rounds the second was faster.
    faster: usize,
    medians: [f64; 2],
}

fn compare(clock: &mut Clock, programs: [&Program; 2], inputs: &[Array], name: &Arc<str>) -> Result<Compared> {
    for program in programs {
        (0..WARM_UP).try_for_each(|_| clock.run(program, inputs))?;
    }
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..RUNS {
        for (program, times) in programs.iter().zip(&mut times) {
            times.push(clock.microseconds(program, inputs, name)?);
        }
    }
    let faster = times[0].iter().zip(&times[1]).filter(|(without, with)| with < without).count();
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    });
    Ok(Compared { faster, medians })
}
