//! The derivative of the gradient, which the gradient's own lines have by their rules, agrees with central differences
//! of the gradient in f64; or there is none, because an operator in the gradient declares that it has no gradient.

use crate::operator::RuleSet;
use crate::transforms::autodiff::rules::GradientRules;
use fulgurite_kernels::DType;

use super::gradient::{Along, dot};
use crate::array::Array;
use crate::choices::Ranking;
use crate::error::Error;
use crate::executor_list::List;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Subject, joint_trace, random_like};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::DIFFERENCES;
use crate::transforms::autodiff::vjp_of;
use fulgurite_ir::registry::find_operator;

/// The first samples are enough: they are the typical ones.
const SAMPLES: usize = 4;
/// Differences run the gradient again for each step.
const ELEMENTS: usize = 20_000;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    if !subject.differentiable()? {
        return nothing("gradients are not checked here");
    }
    let exact =
        subject.arrays.iter().all(|array| !array.dtype().is_differentiable() || array.dtype().part() == DType::F64);
    let elements: usize = subject.arrays.iter().map(|array| array.meta().len()).sum();
    if !exact || subject.index >= SAMPLES || elements > ELEMENTS {
        return nothing("the first samples in f64 are enough");
    }
    let plain = List::plain()?;
    let trace = plain.placed(subject.trace()?)?;
    let own = trace.block.results.len();
    // By the operators' own rules: what executors make of gradients has none.
    let Some(joint) = joint_trace(&trace, &[])? else { return nothing("no gradient") };
    let wrt: Vec<usize> = (0..joint.block.parameters.len())
        .filter(|i| joint.block.meta(joint.block.parameters[*i]).dtype().is_differentiable())
        .collect();
    let gradients: Vec<usize> = (own..joint.block.results.len()).collect();
    let twice = match vjp_of(&joint, &wrt, &gradients, &Ranking::list(&[], &joint.target), &mut Vec::new()) {
        Ok(twice) => twice,
        Err(Error::NoGradient { operator, reason, .. }) => {
            let declared =
                find_operator(&operator).is_ok_and(|def| GradientRules::of(def).no_grad == Some(reason.as_str()));
            ensure!(declared, "its gradient uses '{operator}', which has no gradient and gives no reason: {reason}");
            return nothing(&format!("its gradient uses {operator}, which has none: {reason}"));
        }
        Err(error) => return Err(Problem::from(error).within("the derivative of its gradient")),
    };
    let once = plain.compile(&joint)?;
    let twice_program = plain.compile(&twice)?;
    let mut inputs = subject.arrays.clone();
    for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
        inputs.push(random_like(joint.block.meta(*id), i as u64)?);
    }
    let mut cotangents: Vec<Array> = Vec::new();
    for (i, id) in twice.block.parameters.iter().enumerate().skip(inputs.len()) {
        cotangents.push(random_like(twice.block.meta(*id), 50 + i as u64)?);
    }
    let weights = cotangents.iter().map(Array::to_f64).collect::<Result<Vec<_>, _>>()?;
    let outputs = twice_program.run(inputs.iter().chain(&cotangents).cloned().collect())?;
    let allowed = DIFFERENCES * context.tolerance.factor + context.tolerance.scaled_of(DType::F64);
    for (k, input) in wrt.iter().enumerate() {
        let name = &joint.block.value(joint.block.parameters[*input]).name;
        let (array, gradient) = (&inputs[*input], outputs[joint.block.results.len() + k].to_f64()?);
        let evaluate = |moved: &[f64]| -> Check<f64> {
            let mut inputs = inputs.clone();
            inputs[*input] = Array::from_f64(array.shape(), array.dtype(), moved)?;
            let outputs = once.run(inputs)?;
            let mut sum = 0.0;
            for (output, weight) in outputs[own..].iter().zip(&weights) {
                sum += dot(&output.to_f64()?, weight);
            }
            Ok(sum)
        };
        let along = Along { values: &array.to_f64()?, gradient: &gradient, seed: 7000 * (k as u64 + 1), allowed };
        along
            .check(&evaluate, true)
            .map_err(|problem| problem.within(format!("the derivative of its gradient with respect to {name}")))?;
    }
    PASSED
}
