//! The vjp is linear in the cotangent: `vjp(a·g) = a·vjp(g)` and `vjp(0) = 0`; of several results, cotangents that do
//! not arrive are zero.

use crate::array::Array;
use crate::choices::Ranking;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Ran, Subject, coarsest, differentiable_inputs, execute};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::{Expected, SAME_IN_F64};
use crate::transforms::autodiff::{floating_outputs, vjp_of};

/// No power of two, and negative.
const FACTOR: f64 = -2.75;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    if !subject.differentiable()? {
        return nothing("gradients are not checked here");
    }
    let joint = subject.joint(&context.list()?);
    let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? else { return nothing("no gradient") };
    let inputs = subject.arrays.len();
    let scaled = |factor: f64| -> Check<Vec<Array>> {
        let mut all = ran.inputs.clone();
        for cotangent in &mut all[inputs..] {
            let values: Vec<f64> = cotangent.to_f64()?.iter().map(|v| v * factor).collect();
            *cotangent = Array::from_f64(cotangent.shape(), cotangent.dtype(), &values)?;
        }
        Ok(ran.program.run(all)?)
    };
    let names = &ran.program.trace().outputs;
    // A cotangent that passes through a lower precision is rounded to it.
    let rounding = 4.0 * coarsest(&ran.program.trace().block).epsilon();
    let times = scaled(FACTOR)?;
    let zero = scaled(0.0)?;
    for i in ran.own..ran.outputs.len() {
        let name = &names[i].path;
        let values = ran.outputs[i].to_f64()?.iter().map(|v| v * FACTOR).collect();
        Expected::rounded(values, ran.outputs[i].dtype())
            .with_relative((SAME_IN_F64 + rounding) * context.tolerance.factor)
            .with_relative(context.tolerance.scaled_of(ran.outputs[i].dtype()))
            .compare(&times[i])
            .map_err(|problem| problem.within(format!("{name} for {FACTOR} times the cotangent")))?;
        let left = zero[i].to_f64()?.into_iter().find(|v| *v != 0.0);
        ensure!(left.is_none(), "{name} for a cotangent of zeros: expected 0, got {:?}", left.unwrap_or(0.0));
    }
    alone(context, subject, ran, rounding)?;
    PASSED
}

/// The gradients for the cotangent of each of several results alone, as training has them that reads one result, are
/// those for zeros in the place of the others.
fn alone(context: &Context, subject: &Subject, ran: &Ran, rounding: f64) -> Check {
    let (list, trace) = (context.list()?, subject.trace()?);
    let results = floating_outputs(trace);
    if results.len() < 2 {
        return Ok(());
    }
    let placed = list.placed(trace)?;
    let ranking = Ranking::list(&list.executors, &placed.target);
    let tensors = subject.arrays.len();
    for (which, result) in results.iter().enumerate() {
        let joint = vjp_of(&placed, &differentiable_inputs(trace), &[*result], &ranking, &mut Vec::new())?;
        let mut inputs = ran.inputs[..tensors].to_vec();
        inputs.push(ran.inputs[tensors + which].clone());
        let single = execute(joint, &list, inputs, ran.own)?;
        let mut all = ran.inputs.clone();
        for (_, cotangent) in all[tensors..].iter_mut().enumerate().filter(|(other, _)| *other != which) {
            let zeros = vec![0.0; cotangent.meta().len() * cotangent.dtype().parts()];
            *cotangent = Array::from_f64(cotangent.shape(), cotangent.dtype(), &zeros)?;
        }
        let zeros = ran.program.run(all)?;
        for (i, gradient) in single.outputs.iter().enumerate().skip(ran.own) {
            let name = &ran.program.trace().outputs[i].path;
            Expected::rounded(zeros[i].to_f64()?, gradient.dtype())
                .with_relative((SAME_IN_F64 + rounding) * context.tolerance.factor)
                .compare(gradient)
                .map_err(|problem| problem.within(format!("{name} for the cotangent of result {result} alone")))?;
        }
    }
    Ok(())
}
