//! The gradient is the gradient: `<cotangent, J v> = <vjp(cotangent), v>`, with the directional derivative `J v` by
//! central differences in f64; in other element types it is near that of f64. The results beside it are those of the
//! reference. Where a sample states its gradients, they are these. With an input frozen the other gradients
//! are the same.

use crate::operator::RuleSet;
use crate::rules::TestRules;
use fulgurite_kernels::DType;

use crate::argument::Arg;
use crate::array::Array;
use crate::directives::Tolerance;
use crate::executor_list::{List, REFERENCE};
use crate::problem::{Check, Problem, ensure};
use crate::samples::Random;
use crate::subject::{
    Ran, Subject, differentiable_inputs, execute, joint_trace, perturbed, values_of, wide as widened,
};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::{CHAIN, DIFFERENCES, Expected, PLAIN, SAME_IN_F64, relative_error};
use crate::trace::{Block, ValueId};
use crate::transforms::autodiff::vjp;
use crate::transforms::dce;

/// Steps of the differences, relative to the size of the input. A kink or a curve that spoils one of them does not
/// spoil all; a wrong gradient agrees with none.
const STEPS: [f64; 4] = [1e-3, 1e-4, 1e-5, 1e-6];

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    if let Some(stated) = &subject.sample.gradients {
        as_stated(context, subject, stated)?;
    }
    if !subject.differentiable()? {
        return match subject.sample.gradients {
            Some(_) => PASSED,
            None => nothing("gradients are not checked here"),
        };
    }
    let joint = subject.joint(&context.list()?);
    let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? else { return nothing("no gradient") };
    // A rule for the gradient computes the results as well: training reads these, and nothing else does.
    subject
        .compare_plain(&ran.outputs[..ran.own], context.tolerance)
        .map_err(|problem| problem.within("as the rule of the gradient has it"))?;
    with_frozen_inputs(context, subject, ran)?;
    let exact =
        subject.arrays.iter().all(|array| !array.dtype().is_differentiable() || array.dtype().part() == DType::F64);
    // The differences of a large sample take minutes, and small ones have those: here its gradient is compared with
    // that of the prims' references.
    if exact && !(subject.is_large() && context.executor.is_some_and(|executor| executor.name != REFERENCE)) {
        by_differences(context, subject, ran)
    } else {
        near_f64(context, subject, ran)
    }
}

/// Where nobody reads the gradient by an input, a rule may choose another way: the other gradients are the same. Rules
/// that do not ask write the same lines, and are not run again.
fn with_frozen_inputs(context: &Context, subject: &Subject, ran: &Ran) -> Check {
    let list = context.list()?;
    let trace = list.placed(subject.trace()?)?;
    let wrt = differentiable_inputs(&trace);
    if wrt.len() < 2 {
        return Ok(());
    }
    let whole = vjp(&trace, &wrt, &list.executors)?;
    for frozen in 0..wrt.len() {
        let others: Vec<usize> = wrt.iter().copied().filter(|i| *i != wrt[frozen]).collect();
        let joint = vjp(&trace, &others, &list.executors)?;
        let mut left = whole.block.clone();
        left.results.remove(ran.own + frozen);
        let [left, right] = [left, joint.block.clone()].map(|block| dce::live(block).canonical());
        let lines = |block: &Block| -> Vec<(String, Vec<Arg<ValueId>>)> {
            block.symbols.iter().map(|symbol| (symbol.name().to_owned(), symbol.arguments.clone())).collect()
        };
        if lines(&left) == lines(&right) {
            continue;
        }
        let again = execute(joint, &list, ran.inputs.clone(), ran.own)?;
        let before = (0..wrt.len()).filter(|k| *k != frozen).map(|k| &ran.outputs[ran.own + k]);
        for (k, (before, again)) in before.zip(&again.outputs[ran.own..]).enumerate() {
            let relative =
                if before.dtype().part() == DType::F64 { SAME_IN_F64 } else { 64.0 * before.dtype().epsilon() };
            Expected::rounded(before.to_f64()?, before.dtype())
                .with_relative(relative)
                .loosened(context.tolerance)
                .compare(again)
                .map_err(|problem| {
                    let of = |i: usize| &trace.block.value(trace.block.parameters[i]).name;
                    problem.within(format!("gradient of {} where {} is frozen", of(others[k]), of(wrt[frozen])))
                })?;
        }
    }
    Ok(())
}

/// The gradients for cotangents of 1, 2, 3, ... are those that the sample states, within the roundings of a short
/// chain.
fn as_stated(context: &Context, subject: &Subject, stated: &[Vec<f64>]) -> Check {
    let (list, trace) = (context.list()?, subject.trace()?);
    let Some(joint) = joint_trace(&list.placed(trace)?, &list.executors)? else {
        return Err("the sample states gradients, there are none".into());
    };
    let mut inputs = subject.arrays.clone();
    for id in joint.block.parameters.iter().skip(inputs.len()) {
        let meta = joint.block.meta(*id);
        let counted: Vec<f64> = (1..=meta.len() * meta.dtype().parts()).map(|i| i as f64).collect();
        inputs.push(Array::from_f64(meta.shape(), meta.dtype(), &counted)?);
    }
    let ran = execute(joint, &list, inputs, trace.block.results.len())?;
    let gradients = &ran.outputs[ran.own..];
    ensure!(gradients.len() == stated.len(), "the sample states {} gradients of {}", stated.len(), gradients.len());
    for (i, (gradient, values)) in gradients.iter().zip(stated).enumerate() {
        let name = &ran.program.trace().outputs[ran.own + i].path;
        Expected::rounded(values.clone(), gradient.dtype())
            .with_signs_of_zeros()
            .loosened(Tolerance::new(CHAIN as f64, 0.0))
            .loosened(context.tolerance)
            .compare(gradient)
            .map_err(|problem| problem.within(format!("{name} for cotangents of 1, 2, 3, ...")))?;
    }
    Ok(())
}

/// Without elements that are infinite or not a number: padding, say, which no input moves.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).filter(|(a, _)| a.is_finite()).map(|(a, b)| a * b).sum()
}

fn by_differences(context: &Context, subject: &Subject, ran: &Ran) -> Check<Outcome> {
    // Differences are taken of the independent reference where there is one, so that a wrong execution hides nothing.
    let plain = subject.forward(&List::plain()?);
    let floating: Vec<usize> = (0..ran.own).filter(|i| ran.outputs[*i].dtype().is_differentiable()).collect();
    let evaluate = |arrays: &[Array]| -> Check<Vec<Vec<f64>>> {
        if let Some(rule) = TestRules::of(subject.def).reference {
            let results = rule(&subject.reference_arguments(arrays)?)?;
            return Ok(floating.iter().map(|i| values_of(&results[*i], ran.outputs[*i].dtype())).collect());
        }
        let plain = plain.as_ref().as_ref().map_err(Problem::clone)?;
        let outputs = plain.program.run(arrays.to_vec())?;
        Ok(floating.iter().map(|i| outputs[*i].to_f64()).collect::<Result<_, _>>()?)
    };
    let cotangents = ran.inputs[subject.arrays.len()..].iter().map(Array::to_f64).collect::<Result<Vec<_>, _>>()?;
    let wrt: Vec<usize> =
        (0..subject.arrays.len()).filter(|i| subject.arrays[*i].dtype().is_differentiable()).collect();
    let names = &ran.program.trace().outputs;
    // Each input by itself, so that the message names the one that is wrong; two directions each.
    for (k, input) in wrt.iter().enumerate() {
        let array = &subject.arrays[*input];
        let gradient = ran.outputs[ran.own + k].to_f64()?;
        let values = array.to_f64()?;
        if values.is_empty() || cotangents.iter().all(Vec::is_empty) {
            ensure!(
                gradient.iter().all(|g| *g == 0.0),
                "{}: no output depends on it, got {gradient:?}",
                names[ran.own + k].path
            );
            continue;
        }
        let allowed = DIFFERENCES * context.tolerance.factor + context.tolerance.scaled_of(DType::F64);
        let at = |moved: &[f64]| -> Check<f64> {
            let mut arrays = subject.arrays.clone();
            arrays[*input] = Array::from_f64(array.shape(), array.dtype(), moved)?;
            Ok(evaluate(&arrays)?.iter().zip(&cotangents).map(|(out, c)| dot(out, c)).sum())
        };
        let along = Along { values: &values, gradient: &gradient, seed: 1000 * (k as u64 + 1), allowed };
        along.check(&at, false).map_err(|problem| Problem(format!("{}: {problem}", names[ran.own + k].path)))?;
    }
    PASSED
}

/// A gradient, compared with differences along random directions.
pub(super) struct Along<'a> {
    /// Where the gradient is taken.
    pub values: &'a [f64],
    /// The gradient.
    pub gradient: &'a [f64],
    /// The seed of the directions.
    pub seed: u64,
    /// The relative error that is allowed.
    pub allowed: f64,
}

impl Along<'_> {
    /// Compares with central differences of `evaluate` along two directions. Directions along which the function has a
    /// kink or jumps say nothing if `smooth_alone` is set.
    pub fn check(&self, evaluate: &dyn Fn(&[f64]) -> Check<f64>, smooth_alone: bool) -> Check {
        let Along { values, gradient, allowed, .. } = *self;
        for seed in 0..2u64 {
            let mut random = Random::new(seed + self.seed);
            // In proportion to each element, so that no step leaves the domain of the sample.
            let direction: Vec<f64> = values
                .iter()
                .map(|v| random.normal().clamp(-2.0, 2.0) * if *v == 0.0 { 1.0 } else { v.abs().min(1.0) })
                .collect();
            let ours = dot(gradient, &direction);
            let at = |step: f64| -> Check<f64> {
                let moved: Vec<f64> = values.iter().zip(&direction).map(|(v, d)| v + step * d).collect();
                evaluate(&moved)
            };
            let size: f64 = gradient.iter().zip(&direction).map(|(g, d)| (g * d).powi(2)).sum::<f64>().sqrt();
            let mut best: Option<(f64, f64, f64)> = None;
            for step in STEPS {
                // The five-point rule: its error falls with the fourth power of the step.
                let slope = (8.0 * (at(step)? - at(-step)?) - (at(2.0 * step)? - at(-2.0 * step)?)) / (12.0 * step);
                let scale = size + slope.abs() + 1e-6;
                let error = (slope - ours).abs() / scale;
                if best.is_none_or(|(least, ..)| error < least) || error.is_nan() {
                    best = Some((error, slope, scale));
                }
                if error <= allowed {
                    break;
                }
            }
            let (error, slope, scale) = best.unwrap_or((0.0, 0.0, 1.0));
            if error > allowed && smooth_alone && has_kink(&at)? {
                continue;
            }
            ensure!(
                error <= allowed,
                "along a random direction expected {slope:?} by central differences, got {ours:?} (off by {:.3e}, \
                 allowed {:.3e})",
                (slope - ours).abs(),
                allowed * scale,
            );
        }
        Ok(())
    }
}

/// Whether the slopes on both sides differ however near they are taken. Those of a smooth function approach each other
/// with the step.
fn has_kink(at: &dyn Fn(f64) -> Check<f64>) -> Check<bool> {
    let middle = at(0.0)?;
    for step in [1e-4, 1e-5] {
        let (right, left) = ((at(step)? - middle) / step, (middle - at(-step)?) / step);
        if (right - left).abs() <= 1e-2 * (right.abs() + left.abs()) + 1e-6 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// In element types other than f64: near the gradient in f64, at the same inputs and cotangents, by the plain
/// executors; as near as the plain executors in this type, up to a factor, and by the conditioning of the gradient.
fn near_f64(context: &Context, subject: &Subject, ran: &Ran) -> Check<Outcome> {
    let Some(twin) = subject.twin() else { return nothing("the operator is not declared for f64") };
    let plain = List::plain()?;
    let wide = twin.joint(&plain);
    let Some(wide) = wide.as_ref().as_ref().map_err(Problem::clone)? else { return nothing("no gradient in f64") };
    // The twin draws cotangents of its own; these are the ones at hand.
    let at = |inputs: &[Array]| -> Check<Vec<Vec<f64>>> {
        let inputs = inputs.iter().map(widened).collect::<Result<Vec<Array>, _>>()?;
        if inputs.iter().zip(&wide.inputs).any(|(a, b)| a.meta() != b.meta()) {
            return Ok(Vec::new());
        }
        Ok(wide.program.run(inputs)?.iter().map(Array::to_f64).collect::<Result<_, _>>()?)
    };
    let values = at(&ran.inputs)?;
    if values.is_empty() {
        return nothing("its cotangents in f64 are of another dtype");
    }
    let responses = [at(&perturbed(&ran.inputs, 1, None)?)?, at(&perturbed(&ran.inputs, 2, None)?)?];
    let low = subject.joint(&plain);
    let low = low.as_ref().as_ref().map_err(Problem::clone)?;
    let depth = ran.program.trace().block.symbols.len();
    for i in ran.own..ran.outputs.len() {
        let output = &ran.outputs[i];
        let moved: Vec<Vec<f64>> = responses.iter().map(|response| response[i].clone()).collect();
        let mut expected = Expected::rounded(values[i].clone(), output.dtype())
            .with_responses(&moved)
            .of_chain(depth, output.dtype())
            // Cotangents are of the size of one.
            .with_floor(output.dtype().epsilon());
        if let Some(low) = low {
            expected = expected.with_relative(PLAIN * relative_error(&low.outputs[i].to_f64()?, &values[i]));
        }
        let name = &ran.program.trace().outputs[i].path;
        expected.loosened(context.tolerance).compare(output).map_err(|p| p.within(format!("{name} against f64")))?;
    }
    PASSED
}
