//! Declared meta and grad agree with the decomposition; the reference does, in f64 and in integers.

use crate::executor_list::List;
use crate::operator::RuleSet;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Subject, execute, joint_trace, random_like, trace_of};
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::{Expected, SAME_IN_F64};
use crate::tracer::decompose;
use crate::transforms::autodiff::rules::GradientRules;
use fulgurite_kernels::DType;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let def = subject.def;
    let declared = subject.results()?;
    let body = decompose(def, &subject.metas).map_err(|error| Problem::from(error).within("its decomposition"))?;
    let derived: Vec<_> = body.results.iter().map(|id| body.meta(*id).clone()).collect();
    ensure!(declared == derived, "meta says {declared:?}, its decomposition gives {derived:?}");
    let exact =
        subject.arrays.iter().all(|array| !array.dtype().is_differentiable() || array.dtype().part() == DType::F64);
    if !exact {
        return PASSED;
    }
    let plain = List::plain()?;
    let opened = trace_of(def.short_name(), (*body).clone());
    let ran = execute(opened.clone(), &plain, subject.arrays.clone(), derived.len())?;
    subject.compare_plain(&ran.outputs, context.tolerance).map_err(|p| p.within("decomposition against reference"))?;
    if GradientRules::of(def).grad.is_some() && subject.differentiable()? {
        let declared = subject.joint(&plain);
        let Some(declared) = declared.as_ref().as_ref().map_err(Problem::clone)? else { return PASSED };
        let Some(joint) = joint_trace(&opened, &plain.executors)? else { return PASSED };
        let mut inputs = subject.arrays.clone();
        for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
            inputs.push(random_like(joint.block.meta(*id), i as u64)?);
        }
        let derived = execute(joint, &plain, inputs, declared.own)?;
        let names = &declared.program.trace().outputs;
        for (i, (declared, derived)) in declared.outputs.iter().zip(&derived.outputs).enumerate() {
            Expected::rounded(derived.to_f64()?, derived.dtype())
                .with_relative(SAME_IN_F64 * context.tolerance.factor)
                .with_relative(context.tolerance.scaled_of(derived.dtype()))
                // Cotangents are of the size of one.
                .with_floor(8.0 * DType::F64.epsilon())
                .compare(declared)
                .map_err(|problem| {
                    problem.within(format!("declared grad against that of the decomposition: {}", names[i].path))
                })?;
        }
    }
    PASSED
}
