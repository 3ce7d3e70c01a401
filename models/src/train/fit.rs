//! The programs of a run, with as much of the logits as fits into memory.

use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Error, Result};

use super::agreement::fewest;
use super::chunks::{Chunks, fitting};
use super::options::TrainOptions;
use super::programs::Programs;
use super::run::Run;
use crate::argument_error::wrong;
use crate::head::Logits;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::step::TrainState;

/// A device's memory less one part of so many is for what plans do not count: code, graphs, libraries.
const UNPLANNED_PART: u64 = 64;

/// The programs of a run, and why its logits are in chunks, if they are and nobody asked for it. Notes in the run
/// what of the logits exists. `validates` is whether the run computes validation losses.
pub(super) fn programs<'a>(
    options: &'a TrainOptions,
    config: &'a dyn Model,
    run: &mut Run,
    validates: bool,
) -> Result<(Programs<'a>, Option<Chunks>)> {
    let (programs, chunks) = fitted(options, config, run, validates)?;
    run.logits = programs.logits;
    Ok((programs, chunks))
}

/// As [`programs`], which notes the result in the run.
fn fitted<'a>(
    options: &'a TrainOptions,
    config: &'a dyn Model,
    run: &mut Run,
    validates: bool,
) -> Result<(Programs<'a>, Option<Chunks>)> {
    // The classes of images are few.
    let whole = options.family.images().map(|_| Logits::Whole);
    let asked = options.logits.or(run.chunks.map(|_| Logits::Chunked)).or(whole);
    let unlimited = options.compile.memory_limit.is_none() && options.device().is_cpu();
    if asked.is_some() || unlimited {
        return Ok((Programs::new(options, config, asked.unwrap_or_default())?, run.chunks));
    }
    let Run { state, batches, validation, .. } = run;
    let state = state.get()?;
    fitting(None, |logits| {
        let programs = Programs::new(options, config, logits)?;
        // What does not fit into the limit of a program is its error.
        let step = programs.of_batch(options, state, batches, |program, _| program.memory())?;
        if options.device().is_cpu() {
            return Ok((programs, step.peak()));
        }
        // A device's programs keep their memory, and the moments wait for the update beside those of the batches.
        let moments = match options.accumulate {
            1 => 0,
            _ => bytes(&state.exp_avg, |_| true) + bytes(&state.exp_avg_sq, |_| true),
        };
        let validation = match validation.first().filter(|_| validates) {
            Some(batch) => {
                let compiled =
                    programs.validation_loss.compile(&(state.params.clone(), state.buffers.clone(), batch.clone()))?;
                compiled.program().memory().transient
            }
            None => 0,
        };
        let (resident, transient) = (step.inputs + step.outputs + moments, step.transient + validation);
        let predicted = resident + transient;
        match room(options, state)?.filter(|limit| predicted > *limit) {
            Some(limit) => Err(Error::PlanTooLarge { predicted, resident, transient, limit, tried: String::new() }),
            None => Ok((programs, predicted)),
        }
    })
}

/// What a run of this state may use of its device's memory: what is free, but for a part, and what the state has there;
/// `None` where that is not known.
fn room(options: &TrainOptions, state: &TrainState<Array>) -> Result<Option<u64>> {
    let held: u64 = [&state.params, &state.exp_avg, &state.exp_avg_sq, &state.copies]
        .map(|tree| bytes(tree, |array| !array.device().is_cpu()))
        .iter()
        .sum();
    let free = DeviceState::of(options.device())?.memory_free();
    let own = free.map(|free| free - free / UNPLANNED_PART + held);
    // All ranks have the same programs.
    let least = fewest("the free memory of a rank", own.unwrap_or(u64::MAX)).map_err(|error| wrong("ranks", error))?;
    Ok(own.map(|own| own.min(least)))
}

/// The bytes of those arrays.
fn bytes(tree: &Parameters<Array>, of: impl Fn(&Array) -> bool) -> u64 {
    tree.leaves().into_iter().filter(|(_, array)| of(array)).map(|(_, array)| array.meta().bytes() as u64).sum()
}
