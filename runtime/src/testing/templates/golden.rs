//! Agrees with stored PyTorch outputs and gradients.

use fulgurite_kernels::DType;

use super::{Context, Outcome, PASSED, nothing};
use crate::argument::map_arguments;
use crate::array::Array;
use crate::testing::generate::selected_sample;
use crate::testing::golden::Vector;
use crate::testing::problem::{Check, Problem, ensure};
use crate::testing::samples::Sample;
use crate::testing::subject::{Subject, execute, joint_trace};
use crate::testing::tolerance::Expected;

/// Compares every stored vector. An operator that mirrors a PyTorch function without vectors is listed, not failed.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let vectors = context.golden.of(context.def)?;
    if vectors.is_empty() {
        return nothing("no vectors are stored");
    }
    for (i, vector) in vectors.iter().enumerate() {
        if selected_sample().is_none_or(|selected| selected == i) {
            one(context, vector).map_err(|problem| problem.within(format!("vector {i}")))?;
        }
    }
    PASSED
}

fn one(context: &Context, vector: &Vector) -> Check {
    let metas = map_arguments(&vector.arguments, |array| array.meta().clone());
    let arrays: Vec<Array> = vector.arguments.iter().flat_map(|argument| argument.tensors().to_vec()).collect();
    let sample = Sample { arguments: Vec::new(), forward_only: None };
    let dtype = arrays.first().map_or(DType::F32, Array::dtype);
    let subject = Subject::with(context.def, dtype, 0, sample, metas, arrays);
    let list = context.list()?;
    let forward = subject.forward(&list);
    let ran = forward.as_ref().as_ref().map_err(Problem::clone)?;
    ensure!(
        ran.outputs.len() == vector.outputs.len(),
        "gives {} results, PyTorch {}",
        ran.outputs.len(),
        vector.outputs.len()
    );
    for (i, (output, stored)) in ran.outputs.iter().zip(&vector.outputs).enumerate() {
        near(context, output, stored).map_err(|problem| problem.within(format!("result {i} against PyTorch's")))?;
    }
    if vector.gradients.is_empty() {
        return Ok(());
    }
    let Some(joint) = joint_trace(subject.trace()?, &list.executors)? else { return Ok(()) };
    let wrt = crate::testing::subject::differentiable_inputs(subject.trace()?);
    let mut inputs = subject.arrays.clone();
    inputs.extend(vector.cotangents.iter().cloned());
    let ran = execute(joint, &list, inputs, ran.outputs.len())?;
    for (tensor, stored) in &vector.gradients {
        let at = wrt.iter().position(|input| input == tensor);
        let at = at.ok_or_else(|| Problem(format!("tensor {tensor} has no gradient here, but in PyTorch")))?;
        near(context, &ran.outputs[ran.own + at], stored).map_err(|problem| {
            problem.within(format!("{} against PyTorch's", ran.program.trace().outputs[ran.own + at].path))
        })?;
    }
    Ok(())
}

/// PyTorch computes in the element type itself, so that both sides have errors.
fn near(context: &Context, output: &Array, stored: &Array) -> Check {
    ensure!(output.meta() == stored.meta(), "is {}, PyTorch gives {}", output.meta(), stored.meta());
    if !output.dtype().is_floating() {
        return Expected::exact(stored.to_f64()).compare(output);
    }
    Expected::rounded(stored.to_f64(), stored.dtype())
        .with_relative(16.0 * stored.dtype().epsilon())
        .loosened(context.tolerance)
        .compare(output)
}
