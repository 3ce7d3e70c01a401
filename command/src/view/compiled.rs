//! Programs of operators and models for a page: compiled stage by stage.

use std::sync::Arc;

use fulgurite::compile::{Options, Reached, Stage, StageName, compile, loss_programs, stages_reached};
use fulgurite::device::Source;
use fulgurite::program::Program as Compiled;
use fulgurite::trace::Trace;
use fulgurite_view::{Order, Reordered, Shown, Subject};

use super::super::outcome::Failed;
use super::super::programs::{Part, Program};
use super::super::trace_sources::expect_sources;
use crate::cases::of_case;

/// What a page has beside the stages.
#[derive(Debug, Clone, Copy)]
pub struct Extras {
    /// The sources of kernels.
    pub sources: bool,
    /// What other orders of the executors change.
    pub orders: bool,
}

/// The program of an operator or a model, after every stage.
pub fn compiled(name: &str, program: &Program, with: Extras) -> Result<Subject, Failed> {
    let options = &program.options()?;
    let (trace, part) = program.trace(name, options)?;
    let mut subject = Subject { name: name.to_owned(), about: program.in_words(name, options), ..Subject::default() };
    if part == Some(Part::Loss) && program.backward {
        let programs = loss_programs(trace, options).map_err(of_case)?;
        subject.stages = shown("", programs.joint);
        subject.stages.extend(shown("forward: ", programs.forward));
        subject.stages.extend(shown("backward: ", programs.backward));
        return Ok(subject);
    }
    let Reached { stages, ending } = stages_reached(trace.clone(), options);
    if with.orders {
        subject.orders = orders(&trace, options, &stages);
    }
    subject.stages = shown("", stages);
    subject.ending = ending.map(|ending| format!("{}: {}", ending.place(), of_case(ending.error).message));
    // Where compilation fails the page shows the way there.
    if with.sources && subject.ending.is_none() {
        match compile(trace, options) {
            Ok((program, _)) => {
                let target = program.trace().target.to_string();
                subject.sources = program.sources();
                subject.kernels = kernels(&program, &subject.sources);
                expect_sources(&subject.sources, &target)?;
            }
            Err(error) => subject.ending = Some(format!("no kernels: {}", of_case(error).message)),
        }
    }
    Ok(subject)
}

/// Which sources the lines of a program run.
fn kernels(program: &Compiled, sources: &[Arc<Source>]) -> Vec<(String, Vec<usize>)> {
    let block = &program.trace().block;
    let number = |source: &Arc<Source>| sources.iter().position(|of| of == source);
    let one = |(symbol, of): (usize, Vec<Arc<Source>>)| {
        let name = block.symbols[symbol].results.first().map(|id| block.value(*id).name.to_string())?;
        Some((name, of.iter().filter_map(number).collect()))
    };
    program.sources_by_symbol().into_iter().filter_map(one).collect()
}

/// The lines once they are claimed.
fn claimed(stages: &[Stage]) -> Option<&Trace> {
    stages.iter().find(|stage| stage.is(StageName::Claim)).map(|stage| &stage.trace)
}

/// What changes if each executor, but the first, is asked first.
fn orders(trace: &Trace, options: &Options, usual: &[Stage]) -> Vec<Order> {
    let executors = options.executor_list(trace.target.kind());
    let one = |first: usize| {
        let mut order = executors.clone();
        order[..=first].rotate_right(1);
        let Reached { stages, ending } =
            stages_reached(trace.clone(), &Options { executors: Some(order), ..options.clone() });
        let outcome = match (ending, claimed(usual), claimed(&stages), usual.last(), stages.last()) {
            (None, Some(before), Some(after), Some(usual), Some(last)) => {
                Ok(Reordered::of([before, after], [&usual.trace, &last.trace]))
            }
            (Some(ending), ..) => Err(format!("{}: {}", ending.place(), of_case(ending.error).message)),
            _ => Err("the program is not compiled to its end".into()),
        };
        Order { first: executors[first].name.to_owned(), outcome }
    };
    (1..executors.len()).map(one).collect()
}

fn shown(before: &str, stages: Vec<Stage>) -> Vec<Shown> {
    stages.into_iter().map(|stage| Shown { name: format!("{before}{}", stage.name), trace: stage.trace }).collect()
}
