//! Programs compiled to be run: from the trace to what is ready, with the records of the machine.

use std::borrow::Cow;
use std::sync::Arc;

use crate::choices::{Bounded, CHOOSE_VARIABLE, Choices, Records};
use crate::device::find_kind;
use crate::error::{Error, Result};
use crate::fuel::Fuel;
use crate::meta::{Device, Target};
use crate::program::Program;
use crate::registered;
use crate::trace::Trace;
use fulgurite_compile::compile::{Choose, Options, Programs, Stage, all, reached, split_stages};

/// Compiles a trace, from whatever stage it is at.
///
/// # Errors
/// Those of every stage, and of the verifier, which looks at the trace whatever the options say: a program trusts what
/// it is made of.
pub fn compile(trace: Trace, options: &Options) -> Result<(Program, Vec<Stage>)> {
    let options = &*with_records(options, &trace.target);
    compiled(trace, options, true)
}

/// As [`compile`], of a trace that comes from the tracer: its calls have the metas that the operators' rules give.
pub fn compile_traced(trace: Trace, options: &Options) -> Result<(Program, Vec<Stage>)> {
    let options = &*with_records(options, &trace.target);
    compiled(trace, options, false)
}

/// As [`split_stages`], of programs that are to be run.
pub fn compile_split(trace: Trace, wrt: &[usize], of: &[usize], options: &Options) -> Result<Programs> {
    let options = with_records(options, &trace.target);
    let programs = split_stages(trace, wrt, of, &options)?;
    tell_choices(&options, [&programs.joint, &programs.forward, &programs.backward].into_iter().flatten());
    Ok(programs)
}

/// The two programs of a split, ready to run.
///
/// # Errors
/// If a stage does not verify, or a program cannot be prepared.
pub fn prepare(programs: &Programs, options: &Options) -> Result<(Program, Program)> {
    // The verifier asks checkers, which read options.
    let _given = options.executor_options.enter();
    // The caller may have changed the stages.
    [&programs.forward, &programs.backward].into_iter().try_for_each(|stages| last_of(stages)?.verify())?;
    prepare_trusted(programs, options)
}

/// As [`prepare`], of unchanged stages.
pub(crate) fn prepare_trusted(programs: &Programs, options: &Options) -> Result<(Program, Program)> {
    Ok((program_of(&programs.forward, options)?, program_of(&programs.backward, options)?))
}

/// Tells where recorded winners come from what was found for the calls of a program that is to be run.
fn tell_choices<'a>(options: &Options, stages: impl Iterator<Item = &'a Stage>) {
    if let Some(choices) = &options.choices {
        choices.compiled(&stages.flat_map(|stage| stage.choices.iter().cloned()).collect::<Vec<_>>());
    }
}

/// The program that the last stage is, which the transforms made.
fn program_of(stages: &[Stage], options: &Options) -> Result<Program> {
    let _given = options.executor_options.enter();
    let program = Program::trusted(last_of(stages)?.clone(), options.memory_limit)?;
    Ok(if options.graph { program } else { program.without_graph() })
}

fn last_of(stages: &[Stage]) -> Result<&Trace> {
    let last = stages.last().map(|stage| &stage.trace);
    last.ok_or_else(|| Error::Argument { argument: "trace".into(), message: "no stage was made".into() })
}

fn compiled(trace: Trace, options: &Options, foreign: bool) -> Result<(Program, Vec<Stage>)> {
    let _pinned = registered::pin();
    let stages = all(reached(trace, options, foreign))?;
    tell_choices(options, stages.iter());
    let program = program_of(&stages, options)?;
    Ok((program, stages))
}

/// The options of a program that is to be run on a target: with the records of its device, if they are wanted and the
/// device is here. [`compile`] does this by itself; stages that are looked at or differentiated before it need it.
pub fn with_records<'a>(options: &'a Options, target: &Target) -> Cow<'a, Options> {
    let device = options.device.filter(|device| device.kind() == target.kind()).unwrap_or_else(|| target.device());
    if options.choices.is_some() || !wanted(options, device) {
        return Cow::Borrowed(options);
    }
    match Records::of(device) {
        Ok(records) if records.target() == target => {
            let choices: Arc<dyn Choices> = Arc::new(Bounded::new(records, options.choose_for));
            Cow::Owned(Options { choices: Some(choices), ..options.clone() })
        }
        Ok(_) => Cow::Borrowed(options),
        Err(error) => {
            tracing::debug!("nothing is measured: {error}");
            Cow::Borrowed(options)
        }
    }
}

/// Whether the fastest implementations are wanted. By default not where a list was made, or what was asked for is not
/// the usual program: the caller is looking for a fault.
fn wanted(options: &Options, device: Device) -> bool {
    let usual = || {
        options.executors.is_none()
            && options.fuse
            && options.batch
            && options.pad
            && options.channels
            && options.fuel == Fuel::UNLIMITED
    };
    let by_kind = || find_kind(device.kind()).is_ok_and(|kind| kind.chooses());
    let off = || std::env::var_os(CHOOSE_VARIABLE).is_some_and(|value| value == "0");
    match options.choose {
        Choose::Never => false,
        Choose::Always => !off(),
        Choose::Auto => usual() && by_kind() && !off(),
    }
}
