//! Planned traces to be changed.

use super::planned::Planned;
use crate::array::Array;
use crate::compile::stages;
use crate::executor::default_executors;
use crate::executor_list::List;
use crate::operator::OperatorKind;
use crate::problem::{Check, Problem};
use crate::samples::Random;
use crate::subject::{differentiable_inputs, joint_trace, random_like, sample_metas, subjects, trace_call};
use crate::templates::programs::random_trace;
use crate::trace::Trace;
use crate::{DType, Device};
use fulgurite_ir::registry::operators;

/// The most elements of a value of a sample.
const LARGEST: usize = 1 << 12;

/// A planned trace of `trace` for a kind of device. Outputs that have the form of an input are written into it where
/// the plan can do so.
///
/// # Errors
/// If it does not compile.
pub fn planned(name: &str, trace: Trace, inputs: Vec<Array>, donate: bool, kind: &str) -> Result<Planned, String> {
    made(name, trace, inputs, donate, kind).map_err(|Problem(message)| format!("{name}: {message}"))
}

/// The executors that are asked by default on a kind of device.
pub(super) fn default_list(kind: &str) -> Check<List> {
    let first = default_executors(kind).into_iter().find(|executor| executor.device == kind);
    Ok(List::of(first.ok_or_else(|| Problem(format!("no executor runs on '{kind}' by default")))?))
}

fn made(name: &str, mut trace: Trace, inputs: Vec<Array>, donate: bool, kind: &str) -> Check<Planned> {
    if donate {
        let block = &trace.block;
        for (result, output) in block.results.iter().zip(&mut trace.outputs) {
            let fits = |i: &usize| {
                let parameter = block.parameters[*i];
                !trace.inputs[*i].donated && parameter != *result && block.meta(parameter) == block.meta(*result)
            };
            // The last one: cotangents, which are read once, come last.
            if let Some(i) = (0..block.parameters.len()).rev().find(fits) {
                trace.inputs[i].donated = true;
                output.path = block.value(block.parameters[i]).name.to_string();
            }
        }
    }
    let list = default_list(kind)?;
    let last = stages(list.placed(&trace)?, &list.options())?.pop();
    let trace = last.map(|stage| stage.trace).ok_or_else(|| Problem("no stage was made".into()))?;
    Ok(Planned { name: name.to_owned(), trace, inputs })
}

/// One sample of each operator that runs on this kind of device, with its gradients where there are any: the one of
/// that number, counted anew from the first behind the last.
///
/// # Errors
/// If a sample does not compile.
pub fn sampled_programs(number: usize, kind: &str) -> Result<Vec<Planned>, String> {
    let mut all = Vec::new();
    for def in operators().into_iter().filter(|def| !matches!(def.kind, OperatorKind::Symbol(_))) {
        for dtype in [DType::F32, DType::I64] {
            let within = |Problem(message)| format!("{}: {message}", def.name);
            let subjects = subjects(def, dtype).map_err(within)?;
            let fit: Vec<_> = (subjects.iter())
                .filter(|subject| {
                    let metas = sample_metas(&subject.sample, Device::CPU);
                    let mut tensors = metas.iter().flat_map(crate::argument::Arg::tensors);
                    tensors.all(|meta| meta.len() <= LARGEST && !meta.is_empty())
                })
                .collect();
            let Some(subject) = fit.get(number % fit.len().max(1)) else { continue };
            let Ok(trace) = trace_call(def, &subject.metas) else { continue };
            let small = trace.block.values.iter().all(|value| value.meta.len() <= 16 * LARGEST);
            let list = default_list(kind).map_err(within)?;
            let name = format!("{} sample {} in {dtype}", def.name, subject.index);
            let Ok(trace) = list.placed(&trace) else { continue };
            let joint = subject.differentiable().map_err(within)?.then(|| joint_trace(&trace, &list.executors));
            let mut inputs = subject.arrays.clone();
            let trace = match joint {
                Some(Ok(Some(joint))) => {
                    for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
                        let random = random_like(joint.block.meta(*id), i as u64).and_then(|array| array.to_host());
                        inputs.push(random.map_err(|error| error.to_string())?);
                    }
                    joint
                }
                _ => trace,
            };
            // What no executor of the device takes is for others.
            if let (true, Ok(made)) = (small, planned(&name, trace, inputs, true, kind)) {
                all.push(made);
            }
        }
    }
    Ok(all)
}

/// Random programs of a dozen operators, with the gradients of all inputs.
///
/// # Errors
/// If one does not compile.
pub fn random_programs(seeds: std::ops::Range<u64>, kind: &str) -> Result<Vec<Planned>, String> {
    let make = |seed: u64| -> Check<Option<Planned>> {
        let Some((trace, mut inputs)) = random_trace(seed)? else { return Ok(None) };
        let list = default_list(kind)?;
        let trace = list.placed(&trace)?;
        let gradients = !differentiable_inputs(&trace).is_empty() && !Random::new(seed).next().is_multiple_of(3);
        let trace = match gradients.then(|| joint_trace(&trace, &list.executors)).transpose()?.flatten() {
            Some(joint) => {
                for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
                    inputs.push(random_like(joint.block.meta(*id), i as u64)?.to_host()?);
                }
                joint
            }
            None => trace,
        };
        made(&format!("random program {seed}"), trace, inputs, true, kind).map(Some)
    };
    let made = seeds.map(|seed| make(seed).map_err(|Problem(message)| format!("random program {seed}: {message}")));
    Ok(made.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect())
}
