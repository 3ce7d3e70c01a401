//! Outputs are fully written, and nothing around them or between their elements.

use crate::interpret::compare_rounded_below;
use crate::problem::{Check, Problem};
use crate::subject::{Ran, Subject, joint_trace};
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::{Expected, same_bits, same_numbers};
use crate::trace::Trace;

/// Runs forward and backward with every value in fenced memory of its own, filled with NaN, and where the plan has it,
/// and compares with the plain run: a kernel that leaves an integer unwritten, or that reads what it should have
/// written, differs, and so does a plan that gives memory away too early. On the host a kernel that takes any strides
/// is run once more with NaN between the elements of its results, where it must stay. On a device all is run once more
/// with every value on a multiple of an element and of no more: a kernel that loads several elements at once, whatever
/// it was told of the address, faults or differs, and so does one whose order of sums depends on the address.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let ran = subject.forward(&list);
    checked(context, subject.trace()?, ran.as_ref().as_ref().map_err(Problem::clone)?)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? {
            let trace = joint_trace(&list.placed(subject.trace()?)?, &list.executors)?;
            let Some(trace) = trace else { return PASSED };
            checked(context, &trace, ran).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    PASSED
}

/// As [`check`], of a program that `ran`, whose trace before its compilation is `trace`.
fn checked(context: &Context, trace: &Trace, ran: &Ran) -> Check {
    let outputs = ran.program.run_checked(ran.inputs.clone())?;
    for (i, (output, expected)) in outputs.iter().zip(&ran.outputs).enumerate() {
        same_bits(output, expected).map_err(|problem| {
            problem.within(format!("result {i} differs when memory is filled with NaN beforehand"))
        })?;
    }
    let outputs = ran.program.run_planned(ran.inputs.clone())?;
    for (i, (output, expected)) in outputs.iter().zip(&ran.outputs).enumerate() {
        same_bits(output, expected).map_err(|problem| {
            problem
                .within(format!("result {i} differs when planned memory is filled with NaN before and after its use"))
        })?;
    }
    let within = |problem: Problem| problem.within("with operands aligned to an element alone");
    let Some(program) = ran.program.least_aligned().map_err(Problem::from).map_err(within)? else { return Ok(()) };
    let outputs = program.run_checked(ran.inputs.clone()).map_err(Problem::from).map_err(within)?;
    for (i, (output, expected)) in outputs.iter().zip(&ran.outputs).enumerate() {
        let Err(differing) = same_numbers(output, expected) else { continue };
        // Shapes and strides alone decide the order of sums. A library's algorithm for a product depends on the
        // alignment of its operands as well: each of the two may be off by what one result may, so they may differ by
        // twice that.
        let near = if program.has_library_work() {
            let expected = Expected::rounded(expected.to_f64()?, expected.dtype())
                .with_relative(2.0 * context.tolerance.factor * 8.0 * expected.dtype().epsilon())
                .with_relative(2.0 * context.tolerance.scaled_of(expected.dtype()));
            compare_rounded_below(trace, &ran.inputs, i, &expected, output)
        } else {
            Err(differing)
        };
        near.map_err(|problem| within(problem.within(format!("result {i}"))))?;
    }
    Ok(())
}
