//! Outputs are fully written, and nothing around them.

use super::{Context, Outcome, PASSED};
use crate::testing::problem::{Check, Problem};
use crate::testing::subject::{Ran, Subject};
use crate::testing::tolerance::same_bits;

/// Runs forward and backward with every value in fenced memory of its own, filled with NaN, and compares with the plain run: a
/// kernel that leaves an integer unwritten, or that reads what it should have written, differs.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let ran = subject.forward(&list);
    checked(ran.as_ref().as_ref().map_err(Problem::clone)?)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? {
            checked(ran).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    PASSED
}

fn checked(ran: &Ran) -> Check {
    let outputs = ran.program.run_checked(ran.inputs.clone())?;
    for (i, (output, expected)) in outputs.iter().zip(&ran.outputs).enumerate() {
        same_bits(output, expected).map_err(|problem| {
            problem.within(format!("result {i} differs when memory is filled with NaN beforehand"))
        })?;
    }
    Ok(())
}
