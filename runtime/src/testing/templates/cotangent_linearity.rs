//! The vjp is linear in the cotangent: `vjp(a·g) = a·vjp(g)` and `vjp(0) = 0`.

use crate::array::Array;
use crate::testing::problem::{Check, Problem, ensure};
use crate::testing::subject::{Subject, coarsest};
use crate::testing::test::{Context, Outcome, PASSED, nothing};
use crate::testing::tolerance::{Expected, SAME_IN_F64};

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
    PASSED
}
