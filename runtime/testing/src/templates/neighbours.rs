//! Calls beside the samples: with one extent of 1 where a sample has a larger one, and with other numbers, flags and
//! lists of numbers for its attributes. A bound or a constant of a rule decides about extents and numbers that no
//! author thought of; the reference says what comes out there as well.
//!
//! What the operator refuses says nothing, and neither do data on which the reference fails: samples say what is
//! accepted, error samples what is refused.

use std::collections::BTreeSet;

use fulgurite_kernels::DType;

use super::gradient::{Along, dot};
use crate::argument::{Arg, Attribute, Scalar};
use crate::array::Array;
use crate::error::Error;
use crate::executor_list::REFERENCE;
use crate::fuzz::resized_attributes;
use crate::generate::guarded;
use crate::interpret::{Interpreter, Moved};
use crate::operator::{OperatorDef, OperatorKind, ParamKind, RuleSet};
use crate::problem::{Check, Problem};
use crate::reference::ReferenceTensor;
use crate::rules::TestRules;
use crate::samples::{Sample, SampleTensor};
use crate::subject::{
    Subject, accepted_samples, coarsest, differentiable_inputs, joint_trace, perturbed, random_like, trace_call,
    values_of,
};
use crate::test::Context;
use crate::tolerance::{DIFFERENCES, Expected};
use crate::transforms::decompose::decompose;

/// Numbers at which rules change their way, and those beside them that a wrong constant becomes.
const NUMBERS: [f64; 8] = [0.0, 0.25, 0.5, 0.875, 1.0, 1.5, 2.0, 2.75];
const INTEGERS: [i64; 4] = [0, 1, 2, -1];
/// Elements of a list that are changed.
const LISTED: usize = 3;

/// Relative difference that says nothing: a wrong bound or constant is far off, and what nobody looked at may be
/// ill-conditioned.
const NEAR: f64 = 1e-6;

/// How often a call's inputs are moved by a rounding, to see what is at a step.
const MOVED: u64 = 6;

/// Whether the calls beside the samples are asked about here: in one element type, by the operator's own rules.
fn applies(context: &Context, subject: &Subject) -> bool {
    let none = |dtype| accepted_samples(context.def, dtype).is_empty();
    let in_one = || match context.dtype {
        Some(DType::F64) => true,
        Some(DType::I64) => none(DType::F64),
        Some(DType::Bool) => none(DType::F64) && none(DType::I64),
        _ => false,
    };
    let interprets = context.executor.is_some_and(|executor| executor.name == REFERENCE);
    interprets && !subject.is_large() && !context.def.effects.collective && in_one()
}

/// The results of the calls beside a sample are those of the reference.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check {
    if !applies(context, subject) {
        return Ok(());
    }
    let [sized, alone] = with_extents(context.def, subject);
    // Kernel symbols are called where executors have looked at the arguments.
    let strict = !matches!(context.def.kind, OperatorKind::Symbol(_));
    each(subject, sized, strict, agree)?;
    let others = alone.into_iter().chain(with_attributes(context.def, subject));
    each(subject, others.collect(), false, agree)
}

fn agree(neighbour: &Subject, results: &[ReferenceTensor]) -> Check {
    let trace = neighbour.trace()?;
    if coarsest(&decompose(trace, |_| true).block) != DType::F64 {
        return Ok(());
    }
    let values = match Interpreter::new(trace).values(&neighbour.arrays) {
        Ok(values) => values,
        // Integers may be positions.
        Err(_) if neighbour.arrays.iter().any(|array| array.dtype().is_integer()) => return Ok(()),
        Err(problem) => return Err(problem),
    };
    for (i, (values, meta)) in values.iter().zip(neighbour.results()?).enumerate() {
        let expected = values_of(&results[i], meta.dtype());
        // What is no number, and what of it a kernel makes, no author has looked at.
        if expected.iter().all(|value| value.is_finite()) {
            let wrong = near(&expected, meta.dtype()).compare_values(values, meta.shape(), meta.dtype());
            let Err(problem) = wrong else { continue };
            let steady = with_jumps(neighbour, i, &expected, values)?;
            near(&steady, meta.dtype())
                .compare_values(values, meta.shape(), meta.dtype())
                .map_err(|_| problem.within(format!("result {i}")))?;
        }
    }
    Ok(())
}

/// What the reference expects, but for elements that a rounding of the inputs, or of a value on the way, moves far:
/// there it is what came.
fn with_jumps(neighbour: &Subject, i: usize, expected: &[f64], got: &[f64]) -> Check<Vec<f64>> {
    let Some(rule) = TestRules::of(neighbour.def).reference else { return Ok(expected.to_vec()) };
    let dtype = neighbour.results()?[i].dtype();
    let mut steady = expected.to_vec();
    for seed in 0..MOVED {
        let moved = perturbed(&neighbour.arrays, seed, None)?;
        let Ok(moved) = guarded(|| Ok(rule(&neighbour.reference_arguments(&moved)?)?)) else { continue };
        for ((steady, got), (moved, own)) in
            steady.iter_mut().zip(got).zip(values_of(&moved[i], dtype).into_iter().zip(expected))
        {
            if (moved - own).abs() > NEAR * (1.0 + own.abs()) {
                *steady = *got;
            }
        }
    }
    let steps = Interpreter::new(neighbour.trace()?).steps(&neighbour.arrays, Moved::All)?;
    for (((steady, got), own), step) in steady.iter_mut().zip(got).zip(expected).zip(&steps[i]) {
        if *step > NEAR * (1.0 + own.abs()) {
            *steady = *got;
        }
    }
    Ok(steady)
}

fn near(values: &[f64], dtype: DType) -> Expected {
    match dtype.is_differentiable() {
        true => Expected::rounded(values.to_vec(), dtype).with_relative(NEAR).with_floor(NEAR),
        false => Expected::exact(values.to_vec()),
    }
}

/// The gradients of the calls beside a sample with other extents are those of the reference, by central differences.
pub(crate) fn gradients(context: &Context, subject: &Subject) -> Check {
    let floating = |array: &Array| !array.dtype().is_differentiable() || array.dtype() == DType::F64;
    if !applies(context, subject) || !subject.arrays.iter().all(floating) || !subject.differentiable()? {
        return Ok(());
    }
    let Some(rule) = TestRules::of(context.def).reference else { return Ok(()) };
    each(subject, with_extents(context.def, subject).concat(), false, |neighbour, _| {
        if !neighbour.differentiable()? {
            return Ok(());
        }
        let trace = neighbour.trace()?;
        let wrt = differentiable_inputs(trace);
        // A form of the operator that has no gradient.
        let Ok(Some(joint)) = joint_trace(trace, &[]) else { return Ok(()) };
        let own = trace.block.results.len();
        let mut inputs = neighbour.arrays.clone();
        for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
            inputs.push(random_like(joint.block.meta(*id), i as u64)?);
        }
        let values = Interpreter::new(&joint).values(&inputs)?;
        if values.iter().flatten().any(|value| !value.is_finite()) {
            return Ok(());
        }
        let results = neighbour.results()?;
        let cotangents = inputs[neighbour.arrays.len()..].iter().map(Array::to_f64).collect::<Result<Vec<_>, _>>()?;
        for (k, input) in wrt.iter().enumerate() {
            let array = &neighbour.arrays[*input];
            let at = |moved: &[f64]| -> Check<f64> {
                let mut arrays = neighbour.arrays.clone();
                arrays[*input] = Array::from_f64(array.shape(), array.dtype(), moved)?;
                let outputs = rule(&neighbour.reference_arguments(&arrays)?)?;
                let outputs = outputs.iter().zip(&results).filter(|(_, meta)| meta.dtype().is_differentiable());
                Ok(outputs.zip(&cotangents).map(|((out, meta), c)| dot(&values_of(out, meta.dtype()), c)).sum())
            };
            let (own_values, gradient) = (array.to_f64()?, &values[own + k]);
            let seed = 3000 * (k as u64 + 1);
            let along = Along { values: &own_values, gradient, seed, allowed: DIFFERENCES * context.tolerance.factor };
            let name = &trace.block.value(trace.block.parameters[*input]).name;
            along.check(&at, true).map_err(|problem| problem.within(format!("gradient of {name}")))?;
        }
        Ok(())
    })
}

/// Whether the interpreter and the reference say the same of the data: no number says what becomes of NaN, and the
/// interpreter has integers of 64 bits alone, which do not wrap.
fn is_told(neighbour: &Subject) -> Check<bool> {
    for array in &neighbour.arrays {
        let own = !array.dtype().is_integer() || matches!(array.dtype(), DType::I64 | DType::Bool);
        if !own || array.to_f64()?.iter().any(|value| value.is_nan()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Asks about each call that the operator takes and that its reference has results for. If they are `strict`,
/// a part of the operator refuses none of them.
fn each(
    subject: &Subject,
    samples: Vec<Sample>,
    strict: bool,
    ask: impl Fn(&Subject, &[ReferenceTensor]) -> Check,
) -> Check {
    for sample in samples {
        let neighbour = subject.variant(sample)?;
        if !is_told(&neighbour)? {
            continue;
        }
        let call = || format!("beside the samples, of ({})", neighbour.describe());
        let refused = match guarded(|| Ok(trace_call(neighbour.def, &neighbour.metas).err())) {
            Ok(refused) => refused,
            Err(problem) => return Err(problem.within(call())),
        };
        // What the operator refuses by itself says nothing.
        let by_a_part =
            |error: &Error| matches!(error, Error::Operator { operator, .. } if operator != neighbour.def.name);
        if refused.as_ref().is_some_and(|error| Problem::from(error.clone()).is_panic()) {
            return Err(refused.map(Problem::from).unwrap_or_else(|| "it panics".into()).within(call()));
        }
        if refused.as_ref().is_some_and(|error| !by_a_part(error)) {
            continue;
        }
        // It is made for samples: of other data it may refuse more than the operator, or panic.
        let Ok(Some(results)) = guarded(|| neighbour.reference()) else { continue };
        if let Some(error) = refused {
            let values = || results.iter().flat_map(ReferenceTensor::numbers);
            if strict && values().all(f64::is_finite) {
                let problem =
                    Problem::from(error).within("the reference has results, and a part of the operator refuses it");
                return Err(problem.within(call()));
            }
            continue;
        }
        ask(&neighbour, results).map_err(|problem| problem.within(call()))?;
    }
    Ok(())
}

/// Adds a call, unless it is the sample or known.
fn add(found: &mut Vec<Sample>, sample: &Sample, arguments: Vec<Arg<SampleTensor>>) {
    let other = Sample { arguments, gradients: None, ..sample.clone() };
    if other.arguments != sample.arguments && !found.contains(&other) {
        found.push(other);
    }
}

/// The sample with one of its extents changed to 1: in attributes that are sizes as well, and in tensors alone.
fn with_extents(def: &'static OperatorDef, subject: &Subject) -> [Vec<Sample>; 2] {
    let sample = &subject.sample;
    let [mut sized, mut alone] = [Vec::new(), Vec::new()];
    let tensors = || sample.arguments.iter().flat_map(Arg::tensors);
    let extents: BTreeSet<usize> = tensors().flat_map(|tensor| tensor.shape().to_vec()).collect();
    for own in extents.into_iter().filter(|own| *own > 1) {
        let resize = |extent: usize| if extent == own { 1 } else { extent };
        let resized = |arguments: &[Arg<SampleTensor>]| -> Vec<Arg<SampleTensor>> {
            let one = |tensor: &SampleTensor| tensor.clone().resized(&resize);
            arguments.iter().map(|argument| argument.map(one)).collect()
        };
        // Integers that an author wrote down may be positions in the dimension.
        let beyond = |tensor: &SampleTensor| {
            let most = tensor.clone().resized(&resize).values().into_iter().map(f64::abs).fold(0.0, f64::max);
            tensor.dtype().is_integer() && most >= 1.0 && most <= own as f64
        };
        if subject.dtype.is_differentiable() && tensors().any(beyond) {
            continue;
        }
        add(&mut sized, sample, resized(&resized_attributes(def, &sample.arguments, &resize)));
        add(&mut alone, sample, resized(&sample.arguments));
    }
    alone.retain(|call| !sized.contains(call));
    [sized, alone]
}

/// The sample with another value of one attribute.
fn with_attributes(def: &'static OperatorDef, subject: &Subject) -> Vec<Sample> {
    let sample = &subject.sample;
    let mut found: Vec<Sample> = Vec::new();
    for (at, param) in def.params.iter().enumerate() {
        let (ParamKind::Attribute, Arg::Attribute(own)) = (param.kind, &sample.arguments[at]) else { continue };
        let kind = (param.type_name)();
        for value in others(own, &kind).into_iter().filter(|value| (param.accepts)(value)) {
            let mut arguments = sample.arguments.clone();
            arguments[at] = Arg::Attribute(value);
            add(&mut found, sample, arguments);
        }
    }
    found
}

/// Other values of an attribute of such a type.
fn others(own: &Attribute, kind: &str) -> Vec<Attribute> {
    let scalar = Attribute::Scalar;
    match own {
        Attribute::Scalar(Scalar::Bool(own)) => vec![scalar(Scalar::Bool(!own))],
        Attribute::Scalar(Scalar::Int(own)) if kind.starts_with("int") => {
            let beside = [own + 1, own - 1].into_iter().chain(INTEGERS);
            beside.map(|value| scalar(Scalar::Int(value))).collect()
        }
        Attribute::Scalar(Scalar::Float(_) | Scalar::Int(_)) => {
            NUMBERS.into_iter().map(|value| scalar(Scalar::Float(value))).collect()
        }
        Attribute::None if kind.starts_with("float") => {
            NUMBERS.into_iter().map(|value| scalar(Scalar::Float(value))).collect()
        }
        Attribute::None if kind == "int?" => INTEGERS.into_iter().map(|value| scalar(Scalar::Int(value))).collect(),
        Attribute::List(items) => {
            let mut found = Vec::new();
            for at in 0..items.len().min(LISTED) {
                let Attribute::Scalar(Scalar::Int(item)) = items[at] else { continue };
                for value in [item + 1, item - 1, 1] {
                    let mut items = items.to_vec();
                    items[at] = scalar(Scalar::Int(value));
                    found.push(Attribute::List(items.into()));
                }
            }
            found
        }
        _ => Vec::new(),
    }
}
