//! Mixed element types: with any one tensor of a call in another type, the call is refused, or meta, decomposition and
//! gradients agree on the types of everything. Nothing is computed.

use crate::operator::RuleSet;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use std::collections::BTreeSet;

use fulgurite_kernels::DType;

use crate::argument::{Arg, map_arguments};
use crate::executor::default_executors;
use crate::generate::ELEMENT_TYPES;
use crate::meta::TensorMeta;
use crate::operator::OperatorKind;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{describe, differentiable_inputs, joint_trace, subjects, trace_call};
use crate::test::{Context, Outcome, nothing};
use crate::tracer::META_DIFFERS;

/// Tries every form of call that there are samples of.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let Some(dtype) = context.dtype else { return nothing("a template of samples needs an element type") };
    let (mut seen, mut probes) = (BTreeSet::new(), 0);
    for subject in subjects(context.def, dtype)?.iter() {
        if !seen.insert(form(&subject.metas)) {
            continue;
        }
        let tensors = subject.metas.iter().map(|argument| argument.tensors().len()).sum();
        for which in 0..tensors {
            for other in ELEMENT_TYPES {
                probes += usize::from(probe(context, &retyped(&subject.metas, which, other)).map_err(|problem| {
                    problem.within(format!(
                        "{}({})",
                        context.def.name,
                        describe(&retyped(&subject.metas, which, other))
                    ))
                })?);
            }
        }
    }
    if probes == 0 { nothing("no call of several element types is accepted") } else { Ok(Outcome::Passed) }
}

/// The arguments without their extents: calls that differ in extents alone have the same types.
fn form(metas: &[Arg<TensorMeta>]) -> String {
    let of = |argument: &Arg<TensorMeta>| match argument {
        Arg::Attribute(attribute) => attribute.to_string(),
        _ => argument.tensors().iter().map(|meta| format!("{}[{}]", meta.dtype(), meta.rank())).collect(),
    };
    metas.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The arguments with the tensor of that number in another type.
fn retyped(metas: &[Arg<TensorMeta>], which: usize, dtype: DType) -> Vec<Arg<TensorMeta>> {
    let mut at = 0;
    map_arguments(metas, |meta| {
        at += 1;
        if at - 1 == which { meta.with_dtype(dtype) } else { meta.clone() }
    })
}

/// Whether the call is accepted; an error where it is and its types disagree.
fn probe(context: &Context, metas: &[Arg<TensorMeta>]) -> Check<bool> {
    let def = context.def;
    let trace = match trace_call(def, metas) {
        Ok(trace) => trace,
        Err(error) if error.code() == META_DIFFERS => return Err(error.into()),
        // What the operator itself refuses; where it has no rule for that, a part of its decomposition does.
        // What the operator itself refuses; where it has no rule for that, a part of its decomposition does.
        Err(error) => {
            let accepted = || matches!(TracingRules::of(def).declared_meta(metas), Ok(Some(_)));
            return match def.check_arguments(metas).is_ok() && accepted() {
                true => Err(Problem::from(error).within("meta accepts it, but its decomposition does not")),
                false => Ok(false),
            };
        }
    };
    trace.verify().map_err(|error| Problem::from(error).within("it is accepted, but does not verify"))?;
    if GradientRules::of(def).no_grad.is_some() || matches!(def.kind, OperatorKind::Symbol(_)) {
        return Ok(true);
    }
    let joint = joint_trace(&trace, &default_executors("cpu"))
        .map_err(|error| Problem::from(error).within("it is accepted, but has no gradient"))?;
    let Some(joint) = joint else { return Ok(true) };
    joint.verify().map_err(|error| Problem::from(error).within("its gradient does not verify"))?;
    let own = trace.block.results.len();
    for (input, gradient) in differentiable_inputs(&trace).into_iter().zip(&joint.block.results[own..]) {
        let (input, gradient) = (trace.block.meta(trace.block.parameters[input]), joint.block.meta(*gradient));
        ensure!(input == gradient, "a gradient is {gradient}, its input is {input}");
    }
    Ok(true)
}
