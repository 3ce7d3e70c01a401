//! Forward and backward as two compiled programs, with the values that the first saves for the second.

use std::sync::Arc;

use super::gather::{Gathered, settled};
use super::passes::{Made, Part, rows};
use super::{Ending, Options, Setting, Stage, Stages, Step};
use crate::error::{Error, Result};
use crate::meta::TensorMeta;
use crate::registered;
use crate::trace::{InputRole, StageName, Trace};
use crate::transforms;
use crate::transforms::autodiff::{split_programs, vjp_of};
use crate::transforms::fsdp::FSDP;
use crate::transforms::tensor_parallel::TENSOR_PARALLEL;

/// The stages of a function and its derivative: up to where they are one program, and those of the two that it is split
/// into.
#[derive(Debug, Clone)]
pub struct Programs {
    /// From the acquired trace on, by way of `vjp`, to the last stage before the split.
    pub joint: Vec<Stage>,
    /// From `split` to the planned program: the function's arguments in, its results and the saved values out.
    pub forward: Vec<Stage>,
    /// From `split` to the planned program: the saved values and cotangents in, gradients out.
    pub backward: Vec<Stage>,
}

/// A value that the forward program saves for the backward program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its name in both programs.
    pub name: Arc<str>,
    /// Shape, element type, device.
    pub meta: TensorMeta,
    /// Whether it is an argument of the function, which is there in any case.
    pub argument: bool,
}

impl Programs {
    /// The saved values, in the order in which the backward program takes them.
    pub fn saved(&self) -> Vec<Saved> {
        let (Some(forward), Some(backward)) = (self.forward.first(), self.backward.first()) else { return Vec::new() };
        let block = &backward.trace.block;
        let inputs = block.parameters.iter().zip(&backward.trace.inputs);
        let own = &forward.trace.block;
        let argument = |name: &str| own.parameters.iter().any(|id| &*own.value(*id).name == name);
        let saved = inputs.filter(|(_, input)| input.role == InputRole::Saved).map(|(id, _)| {
            let value = block.value(*id);
            Saved { name: value.name.clone(), meta: value.meta.clone(), argument: argument(&value.name) }
        });
        saved.collect()
    }
}

/// Takes a trace and its derivative through every transform, as two programs. Gradients are those of the inputs `wrt`,
/// cotangents those of the outputs `of`; both must be of floating-point types.
///
/// # Errors
/// Those of every stage: an operator without a gradient, a symbol that no executor takes. Arguments that are parts:
/// what is computed on parts, and becomes a mean, is decided by the `value_and_grad` lines of a program.
pub fn split_stages(trace: Trace, wrt: &[usize], of: &[usize], options: &Options) -> Result<Programs> {
    let divides = options.sharding.is_some().then_some(FSDP).or(options.division.is_some().then_some(TENSOR_PARALLEL));
    if let Some(strategy) = divides {
        let message = "takes no program whose gradients are taken outside of it: use `value_and_grad` in it".to_owned();
        return Err(Error::Argument { argument: strategy.into(), message });
    }
    let _pinned = registered::pin();
    let _given = options.executor_options.enter();
    settled(trace, options.choices.as_deref(), |trace| match split_once(trace, wrt, of, options) {
        Ok((programs, gathered)) => (Ok(programs), gathered),
        Err(error) => (Err(error), Gathered::default()),
    })
}

/// As [`split_stages`], for a loss, the first output of `loss`, and its gradients with respect to all inputs of
/// floating-point types. The backward program takes the loss's cotangent.
///
/// # Errors
/// Those of [`split_stages`].
pub fn loss_programs(loss: Trace, options: &Options) -> Result<Programs> {
    let block = &loss.block;
    let floating = (0..block.parameters.len()).filter(|i| block.meta(block.parameters[*i]).dtype().is_differentiable());
    let floating: Vec<usize> = floating.collect();
    split_stages(loss, &floating, &[0], options)
}

/// As [`split_stages`], and what it would have measured.
fn split_once(trace: Trace, wrt: &[usize], of: &[usize], options: &Options) -> Result<(Programs, Gathered)> {
    let setting = Setting::new(options, &trace, true);
    let outputs = trace.block.results.len();
    let mut joint = Stages::new(options.verify, options.fuel);
    let ended = |ending: Box<Ending>| ending.error;
    if !joint.begin(trace, options).map_err(ended)? {
        let message = "is split or claimed already, expected one that was not differentiated".to_owned();
        return Err(Error::Argument { argument: "trace".into(), message });
    }
    let differentiate = |stages: &mut Stages| -> Step {
        stages.run(rows(Part::Written), &setting)?;
        let target = stages.last().target.clone();
        let given = setting.given(&target, stages.last());
        stages.make(StageName::Vjp, &given, |given, trace, _| {
            let mut gradients = Vec::new();
            let mut next = vjp_of(trace, wrt, of, &given.ranking, &mut gradients)?;
            transforms::name_vjp(&mut next);
            Ok(Some(Made { trace: next, gradients, choices: given.ranking.told() }))
        })?;
        stages.run(rows(Part::Simplified), &setting)
    };
    differentiate(&mut joint).map_err(ended)?;
    let (forward, backward) = split_programs(joint.last(), outputs);
    let mut fuel = joint.fuel;
    let mut gathered = joint.gathered();
    let mut placed = |half: Trace| -> Result<Vec<Stage>> {
        let mut stages = Stages::new(options.verify, fuel);
        stages
            .push(StageName::Split.name(), half)
            .and_then(|()| stages.run(rows(Part::Placed), &setting))
            .map_err(ended)?;
        fuel = stages.fuel;
        gathered = std::mem::take(&mut gathered).and(stages.gathered());
        Ok(stages.made)
    };
    let (forward, backward) = (placed(forward)?, placed(backward)?);
    Ok((Programs { joint: joint.made, forward, backward }, gathered))
}
