//! Agrees with stored PyTorch outputs and gradients.

use crate::array::Array;
use crate::golden::{cotangent, digest, tensor_names};
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Subject, differentiable_inputs, execute, joint_trace};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::{Expected, root_mean_square};

/// Compares a sample with its stored vector, if it has one.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let digest = digest(context.def, &subject.sample);
    let Some(id) = context.golden.case(context.def.name, subject.dtype, digest)? else {
        return nothing("no vector is stored");
    };
    let list = context.list()?;
    let forward = subject.forward(&list);
    let ran = forward.as_ref().as_ref().map_err(Problem::clone)?;
    for (i, output) in ran.outputs.iter().enumerate() {
        let stored = context.golden.tensor(&format!("{id}/out{i}"))?;
        let stored = stored.ok_or_else(|| Problem(format!("gives {} results, PyTorch {i}", ran.outputs.len())))?;
        near(context, output, &stored, &subject.arrays)
            .map_err(|problem| problem.within(format!("{} against PyTorch's", subject.def.results.describe(i))))?;
    }
    let own = ran.outputs.len();
    let more = context.golden.tensor(&format!("{id}/out{own}"))?;
    ensure!(more.is_none(), "gives {own} results, PyTorch more");

    let trace = subject.trace()?;
    let mut gradients = Vec::new();
    let names = tensor_names(context.def, &subject.sample.arguments);
    for (i, input) in differentiable_inputs(trace).into_iter().enumerate() {
        let name = &names[input];
        gradients.extend(context.golden.tensor(&format!("{id}/grad/{name}"))?.map(|stored| (i, stored)));
    }
    if gradients.is_empty() {
        return PASSED;
    }
    let Some(joint) = joint_trace(&list.placed(trace)?, &list.executors)? else { return PASSED };
    let mut inputs = subject.arrays.clone();
    let floating =
        trace.block.results.iter().map(|id| trace.block.meta(*id)).filter(|meta| meta.dtype().is_differentiable());
    for (number, meta) in floating.enumerate() {
        inputs.push(cotangent(meta, digest, number)?);
    }
    let ran = execute(joint, &list, inputs.clone(), own)?;
    for (i, stored) in &gradients {
        near(context, &ran.outputs[own + i], stored, &inputs).map_err(|problem| {
            problem.within(format!("{} against PyTorch's", ran.program.trace().outputs[own + i].path))
        })?;
    }
    PASSED
}

/// PyTorch computes in the element type itself, so that both sides have errors: those of the coarsest type that takes
/// part, and, where results cancel, those of what was put in.
fn near(context: &Context, output: &Array, stored: &Array, inputs: &[Array]) -> Check {
    ensure!(output.meta() == stored.meta(), "is {}, PyTorch gives {}", output.meta(), stored.meta());
    if !output.dtype().is_differentiable() {
        return Expected::exact(stored.to_f64()?).compare(output);
    }
    let floating = || inputs.iter().filter(|array| array.dtype().is_differentiable());
    let unit = floating().map(|array| array.dtype().epsilon()).fold(stored.dtype().epsilon(), f64::max);
    let mut size = 0.0f64;
    for array in floating() {
        size = size.max(root_mean_square(array.to_f64()?.into_iter()));
    }
    Expected::rounded(stored.to_f64()?, stored.dtype())
        .with_relative(16.0 * unit)
        .with_floor(2.0 * unit * size)
        .loosened(context.tolerance)
        .compare(output)
}
