//! Gradients of elementwise operators at single numbers: 0, ends of domains and whatever else a sample leaves out of
//! the gradient template for one of its elements. Where the function is smooth at an element, its gradient there is the
//! slope of the reference, or no number, as in PyTorch where 0 is divided by 0.

use fulgurite_kernels::DType;

use crate::array::Array;
use crate::exact::is_elementwise;
use crate::interpret::Interpreter;
use crate::operator::RuleSet;
use crate::problem::{Check, ensure};
use crate::rules::TestRules;
use crate::subject::{Subject, differentiable_inputs, joint_trace, values_of};
use crate::transforms::autodiff::rules::GradientRules;

/// How far an element is moved, relative to its size where that is more than one.
const STEP: f64 = 1e-4;
/// How far slopes on both sides of a smooth point may be apart, and a gradient from their mean.
const APART: f64 = 1e-2;
const NEAR: f64 = 1e-4;

/// The gradients of a sample that is run forward only.
pub(super) fn check(subject: &Subject) -> Check {
    let left_out = subject.sample.forward_only.is_some() && subject.sample.gradients.is_none() && !subject.is_large();
    let rule = TestRules::of(subject.def).reference.filter(|_| left_out && subject.dtype == DType::F64);
    let (Some(rule), None) = (rule, GradientRules::of(subject.def).no_grad) else { return Ok(()) };
    let trace = subject.trace()?;
    let [result] = &subject.results()?[..] else { return Ok(()) };
    let alike = subject.arrays.iter().all(|array| array.shape() == result.shape());
    if result.dtype() != DType::F64 || !alike || !is_elementwise(trace) {
        return Ok(());
    }
    let Some(joint) = joint_trace(trace, &[])? else { return Ok(()) };
    let ones = Array::from_f64(result.shape(), DType::F64, &vec![1.0; result.len()])?;
    let inputs: Vec<Array> = subject.arrays.iter().cloned().chain([ones]).collect();
    ensure!(inputs.len() == joint.block.parameters.len(), "an elementwise operator has one cotangent");
    let all = subject.arrays.iter().map(Array::to_f64).collect::<Result<Vec<_>, _>>()?;
    let gradients = Interpreter::new(&joint).values(&inputs)?;
    for (k, input) in differentiable_inputs(trace).into_iter().enumerate() {
        let array = &subject.arrays[input];
        if array.dtype() != DType::F64 {
            continue;
        }
        let values = &all[input];
        let step = |value: &f64| STEP * value.abs().max(1.0);
        // All elements at once: none of them moves the result of another.
        let at = |steps: f64| -> Check<Vec<f64>> {
            let moved: Vec<f64> = values.iter().map(|value| value + steps * step(value)).collect();
            let mut arrays = subject.arrays.clone();
            arrays[input] = Array::from_f64(array.shape(), array.dtype(), &moved)?;
            Ok(values_of(&rule(&subject.reference_arguments(&arrays)?)?[0], DType::F64))
        };
        let (Ok(middle), Ok(right), Ok(left)) = (at(0.0), at(1.0), at(-1.0)) else { continue };
        let (Ok(further), Ok(back)) = (at(2.0), at(-2.0)) else { continue };
        for (i, value) in values.iter().enumerate() {
            let slopes = [
                (right[i] - middle[i]) / step(value),
                (middle[i] - left[i]) / step(value),
                (further[i] - right[i]) / step(value),
                (left[i] - back[i]) / step(value),
            ];
            let slope = (8.0 * (right[i] - left[i]) - (further[i] - back[i])) / (12.0 * step(value));
            let finite = all.iter().all(|values| values[i].is_finite());
            let smooth = finite && slopes.iter().all(|own| (own - slope).abs() <= APART * slope.abs() + 1e-3);
            let gradient = gradients[1 + k][i];
            ensure!(
                !smooth
                    || !gradient.is_finite()
                    || (gradient - slope).abs() <= NEAR * (1.0 + slope.abs()) * size_of(&middle, i),
                "gradient of {} at {value:?}: expected {slope:?} by central differences, got {gradient:?}",
                trace.block.value(trace.block.parameters[input]).name,
            );
        }
    }
    Ok(())
}

/// The size of a result, whose roundings differences divide by the step.
fn size_of(results: &[f64], i: usize) -> f64 {
    results[i].abs().max(1.0)
}
