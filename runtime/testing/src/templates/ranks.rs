//! A collective on several ranks, each with data of its own, gives every rank what the reference says of the data of
//! all, and its gradients are those of the sum of all ranks' losses.

use std::cell::Cell;

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, Scalar};
use crate::array::Array;
use crate::device::find_kind;
use crate::executor_list::List;
use crate::generate::sampled_dtypes;
use crate::mesh::Mesh;
use crate::meta::{Device, Target};
use crate::operator::{OperatorDef, ParamKind};
use crate::problem::{Check, Problem, ensure};
use crate::program::Program;
use crate::ranks::{rank, simulate};
use crate::samples::{Random, Sample, SampleTensor};
use crate::subject::{Subject, accepted_samples, joint_trace, random_like};
use crate::test::{Context, Outcome, PASSED, nothing, selected_sample};
use crate::trace::Trace;
use crate::transforms::retarget::retarget_to;

/// How far each input moves for a difference.
const STEP: f64 = 1e-5;

/// See the module.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let def = context.def;
    let (Some(axis), Some(dtype)) = (def.effects.axis, context.dtype) else { return nothing("has no axis of a mesh") };
    decided(def, axis)?;
    let most = devices_of(context.list()?.device());
    let mut tried = 0;
    for (index, sample) in accepted_samples(def, dtype) {
        if selected_sample().is_some_and(|selected| selected != index) {
            continue;
        }
        for ranks in [2, 4].into_iter().filter(|ranks| *ranks <= most) {
            for sample in [sample.clone()].into_iter().chain(others(&sample)) {
                let subjects = of_ranks(def, (dtype, index), &sample, axis, ranks)?;
                // It cannot be divided among so many ranks, or 1 is no value of the attribute.
                if subjects[0].trace().is_err() {
                    continue;
                }
                tried += 1;
                let call = || format!("sample {index}, {}, on {ranks} ranks", subjects[0].describe());
                on_ranks(context, &subjects, ranks).map_err(|problem| problem.within(call()))?;
            }
        }
    }
    ensure!(tried > 0, "has no sample that 2 or 4 ranks can run");
    PASSED
}

const ZERO: Attribute = Attribute::Scalar(Scalar::Int(0));

/// The sample with 1 for an attribute that is 0: one rank alone has no other place than 0.
fn others(sample: &Sample) -> impl Iterator<Item = Sample> + '_ {
    (0..sample.arguments.len()).filter_map(|at| {
        let mut other = sample.clone();
        match &mut other.arguments[at] {
            Arg::Attribute(attribute) if *attribute == ZERO => *attribute = Attribute::Scalar(Scalar::Int(1)),
            _ => return None,
        }
        Some(other)
    })
}

/// Whether an attribute is the name of a device, which that of the test takes the place of.
fn names_device(value: &Arg<SampleTensor>) -> bool {
    matches!(value, Arg::Attribute(Attribute::Text(name)) if name.parse::<Device>().is_ok())
}

/// Every attribute but the axis and a device has two values among the samples of all element types, or is 0 and tried
/// as 1.
fn decided(def: &'static OperatorDef, axis: usize) -> Check {
    let all: Vec<Sample> = sampled_dtypes(def)
        .into_iter()
        .flat_map(|dtype| accepted_samples(def, dtype).into_iter().map(|(_, sample)| sample))
        .collect();
    for (at, param) in def.params.iter().enumerate() {
        let values = || all.iter().map(|sample| &sample.arguments[at]);
        let zero = values().next() == Some(&Arg::Attribute(ZERO));
        let is_tried = zero || values().any(|value| Some(value) != values().next());
        ensure!(
            at == axis || param.kind != ParamKind::Attribute || is_tried || values().all(names_device),
            "argument '{}' is the same in every sample, so that nothing would notice a kernel that ignores it; add a \
             sample with another value",
            param.name
        );
    }
    Ok(())
}

/// How many ranks can run on devices of a kind: as many as there are, and any number on the host.
pub(crate) fn devices_of(kind: &str) -> usize {
    if Device::is_host(kind) {
        return usize::MAX;
    }
    find_kind(kind).ok().and_then(|kind| kind.count().ok()).map_or(0, |count| count as usize)
}

/// The same call of each rank: along an axis of so many, with other values.
fn of_ranks(
    def: &'static OperatorDef,
    (dtype, index): (DType, usize),
    sample: &Sample,
    axis: usize,
    ranks: usize,
) -> Check<Vec<Subject>> {
    let made = |rank: usize| {
        let mut arguments: Vec<Arg<SampleTensor>> = sample.arguments.clone();
        arguments[axis] = Arg::Attribute(Attribute::Text(format!("data={ranks}").into()));
        // Other values of each tensor too, so that those of one shape are not taken for each other.
        let seeds = Cell::new(7919 * (rank as u64 + 1) + index as u64);
        let seed = |tensor: &SampleTensor| tensor.clone().reseeded(seeds.replace(seeds.get() + 104_729));
        let arguments = arguments.iter().map(|argument| argument.map(seed)).collect();
        Subject::new(def, dtype, index, Sample { arguments, ..sample.clone() })
    };
    (0..ranks).map(made).collect()
}

fn on_ranks(context: &Context, subjects: &[Subject], ranks: usize) -> Check {
    // Another axis of the mesh must make no difference.
    let mesh: Mesh = format!("data={ranks} other=1").parse().map_err(Problem)?;
    let list = context.list()?;
    let outcomes = simulate(&mesh, |rank| on_rank(&subjects[rank], &mesh, &list, context))
        .map_err(|error| Problem(error.to_string()))?;
    let moved = first_failure(outcomes)?;
    let total = |of: fn(&Moved) -> f64| moved.iter().flatten().map(of).sum::<f64>();
    let (difference, product, size) = (total(|m| m.difference), total(|m| m.product), total(|m| m.size));
    ensure!(
        (difference - product).abs() <= 1e-6 * size.max(1.0),
        "the sum of all losses moves by {difference} where every rank's input moves, its gradients say {product}"
    );
    Ok(())
}

/// What all ranks gave; if some failed, why the first of them did that did not fail because another had ended.
fn first_failure<T>(outcomes: Vec<Check<T>>) -> Check<Vec<T>> {
    let follows = ["has ended or failed without calling it", "and what came from it may be wrong"];
    let is_cause = |problem: &Problem| !follows.iter().any(|text| problem.0.contains(text));
    let causes = outcomes.iter().enumerate().filter_map(|(rank, outcome)| Some((rank, outcome.as_ref().err()?)));
    let cause = causes.min_by_key(|(_, problem)| !is_cause(problem));
    match cause {
        Some((rank, problem)) => Err(problem.clone().within(format!("rank {rank}"))),
        None => outcomes.into_iter().collect(),
    }
}

/// What a move of a rank's inputs does to its part of the loss, and what its gradients say of the loss of all.
struct Moved {
    difference: f64,
    product: f64,
    /// The size of what is added up for both.
    size: f64,
}

fn on_rank(subject: &Subject, mesh: &Mesh, list: &List, context: &Context) -> Check<Option<Moved>> {
    let trace = on_own_device(list.placed(subject.trace()?)?, mesh)?;
    let outputs = list.compile(&trace)?.run(subject.arrays.clone())?;
    let outputs = outputs.iter().map(Array::to_host).collect::<Result<Vec<Array>, _>>()?;
    ensure!(subject.compare(&outputs, context.tolerance)?, "there is no reference");
    if subject.dtype != DType::F64 || !subject.differentiable()? {
        return Ok(None);
    }
    let Some(joint) = joint_trace(&trace, &list.executors)? else { return Ok(None) };
    moved(subject, &list.compile(&joint)?, outputs.len()).map(Some)
}

/// The trace for the ranks of a mesh, with this rank's values on its device.
fn on_own_device(trace: Trace, mesh: &Mesh) -> Check<Trace> {
    let kind = trace.target.device();
    if kind.is_cpu() {
        return Ok(Trace { target: trace.target.clone().on_mesh(mesh.clone()), ..trace });
    }
    let device = Device::new(kind.kind(), rank() as u32);
    let moved = retarget_to(&trace, &Target::of(device)?.on_mesh(mesh.clone()), device);
    // Where all ranks are on one device, only a library of collectives may say so, in words of its own.
    let elsewhere = moved.block.values.iter().find(|value| value.meta.device() != device);
    ensure!(elsewhere.is_none(), "the program of rank {} is not on {device}", rank());
    Ok(moved)
}

fn moved(subject: &Subject, joint: &Program, own: usize) -> Check<Moved> {
    let seed = subject.arrays.first().map_or(0, |array| array.meta().len() as u64);
    let block = &joint.trace().block;
    let tensors = subject.arrays.len();
    let cotangents = block.parameters[tensors..].iter().enumerate();
    let cotangents =
        cotangents.map(|(i, id)| random_like(block.meta(*id), seed + 31 * i as u64)).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::new(seed);
    let mut directions: Vec<Vec<f64>> = Vec::new();
    for array in &subject.arrays {
        let direction =
            (0..array.meta().len()).map(|_| if array.dtype().is_floating() { random.normal() } else { 0.0 });
        directions.push(direction.collect());
    }
    let run = |by: f64| -> Check<Vec<Array>> {
        let mut inputs = Vec::new();
        for (array, direction) in subject.arrays.iter().zip(&directions) {
            let moved: Vec<f64> = array.to_f64()?.iter().zip(direction).map(|(x, d)| x + by * d).collect();
            inputs.push(Array::from_f64(array.shape(), array.dtype(), &moved)?);
        }
        inputs.extend(cotangents.iter().cloned());
        Ok(joint.run(inputs)?)
    };
    let (low, here, high) = (run(-STEP)?, run(0.0)?, run(STEP)?);
    let mut sums = Moved { difference: 0.0, product: 0.0, size: 0.0 };
    for ((low, high), cotangent) in low.iter().zip(&high).take(own).zip(&cotangents) {
        for ((low, high), cotangent) in low.to_f64()?.iter().zip(high.to_f64()?).zip(cotangent.to_f64()?) {
            let term = cotangent * (high - low) / (2.0 * STEP);
            sums.difference += term;
            sums.size += term.abs();
        }
    }
    let floating = directions.iter().zip(&subject.arrays).filter(|(_, array)| array.dtype().is_floating());
    for (gradient, (direction, _)) in here[own..].iter().zip(floating) {
        sums.product += gradient.to_f64()?.iter().zip(direction).map(|(g, d)| g * d).sum::<f64>();
    }
    Ok(sums)
}
