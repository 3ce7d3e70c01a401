//! Programs compiled to be run: from the trace to what is ready, with the records of the machine.

use std::borrow::Cow;
use std::sync::Arc;

use super::gather::{Gathered, settled};
use super::{Choose, Options, Programs, Stage, all, program_of, reached, split_stages};
use crate::choices::{Bounded, CHOOSE_VARIABLE, Choices, Records};
use crate::device::find_kind;
use crate::error::Result;
use crate::fuel::Fuel;
use crate::meta::{Device, Target};
use crate::program::Program;
use crate::registered;
use crate::trace::Trace;
use crate::transforms::{VJP, vjp_by};

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
pub(crate) fn compile_traced(trace: Trace, options: &Options) -> Result<(Program, Vec<Stage>)> {
    let options = &*with_records(options, &trace.target);
    compiled(trace, options, false)
}

/// As [`split_stages`], of programs that are to be run.
pub(crate) fn compile_split(trace: Trace, wrt: &[usize], of: &[usize], options: &Options) -> Result<Programs> {
    let options = with_records(options, &trace.target);
    let programs = split_stages(trace, wrt, of, &options)?;
    tell_choices(&options, [&programs.joint, &programs.forward, &programs.backward].into_iter().flatten());
    Ok(programs)
}

/// Tells where recorded winners come from what was found for the calls of a program that is to be run.
fn tell_choices<'a>(options: &Options, stages: impl Iterator<Item = &'a Stage>) {
    if let Some(choices) = &options.choices {
        choices.compiled(&stages.flat_map(|stage| stage.choices.iter().cloned()).collect::<Vec<_>>());
    }
}

/// A program with its vector-Jacobian product for the inputs `wrt`, as [`vjp_by`] makes it. The rules are those of the
/// implementations that run: calls of which nothing is recorded are measured first, if the options have records.
///
/// # Errors
/// Those of [`vjp_by`].
pub fn with_gradients(trace: Trace, wrt: &[usize], options: &Options) -> Result<Trace> {
    gradients_stage(trace, wrt, options).map(|stage| stage.trace)
}

/// As [`with_gradients`]: a stage that has beside the program who supplied the rule of each call, and what was recorded
/// of the calls.
///
/// # Errors
/// Those of [`vjp_by`].
pub fn gradients_stage(trace: Trace, wrt: &[usize], options: &Options) -> Result<Stage> {
    let list = options.executor_list(trace.target.kind());
    let once = |trace: Trace| {
        let ranking = options.ranking(&list, &trace.target, &trace);
        let mut gradients = Vec::new();
        let made = vjp_by(&trace, wrt, &ranking, &mut gradients);
        let made = made.map(|trace| Stage { name: VJP.into(), trace, gradients, choices: ranking.told() });
        let wanted = ranking.wanted().into_iter().map(|one| (one.call.clone(), one)).collect();
        (made, Gathered { wanted, peak: None })
    };
    settled(trace, options.choices.as_deref(), once)
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
/// the usual program: somebody is looking for something.
fn wanted(options: &Options, device: Device) -> bool {
    let usual = || {
        options.executors.is_none() && options.fuse && options.batch && options.pad && options.fuel == Fuel::UNLIMITED
    };
    let by_kind = || find_kind(device.kind()).is_ok_and(|kind| kind.chooses());
    let off = || std::env::var_os(CHOOSE_VARIABLE).is_some_and(|value| value == "0");
    match options.choose {
        Choose::Never => false,
        Choose::Always => !off(),
        Choose::Auto => usual() && by_kind() && !off(),
    }
}
