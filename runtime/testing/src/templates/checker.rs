//! Where the checker accepts, the executor runs and agrees: on samples, and on calls that are nearly samples.

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, Scalar, map_arguments};
use crate::executor::{ExecutorDef, find_implementation};
use crate::executor_list::List;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind};
use crate::problem::{Check, Problem};
use crate::samples::{Sample, SampleTensor};
use crate::subject::Subject;
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::{Expected, PLAIN, relative_error};

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let Some(executor) = context.executor else { return PASSED };
    if accepts(subject.def, executor, &on_device(executor, &subject.metas)) {
        agrees(context, subject)?;
    }
    for (what, near) in near_misses(&subject.sample) {
        let Ok(near) = subject.variant(near) else { continue };
        // A call that the operator itself refuses is none.
        if subject.def.check_arguments(&near.metas).is_err() || near.trace().is_err() {
            continue;
        }
        if accepts(subject.def, executor, &on_device(executor, &near.metas)) {
            agrees(context, &near).map_err(|problem| problem.within(format!("{what} ({})", near.describe())))?;
        }
    }
    PASSED
}

/// Metas of the host's, on the device that `executor` runs on.
fn on_device(executor: &ExecutorDef, metas: &[Arg<TensorMeta>]) -> Vec<Arg<TensorMeta>> {
    map_arguments(metas, |meta| meta.with_device(Device::new(executor.device, 0)))
}

fn accepts(def: &'static OperatorDef, executor: &ExecutorDef, metas: &[Arg<TensorMeta>]) -> bool {
    match def.kind {
        OperatorKind::Symbol(owners) => owners.contains(&executor.name),
        _ => match find_implementation(def.name, executor.name) {
            Some(implementation) => implementation.accepts(metas).is_ok(),
            None => executor.claims.is_some_and(|claims| claims(def, metas).is_ok()),
        },
    }
}

fn agrees(context: &Context, subject: &Subject) -> Check {
    let plain = subject.forward(&List::plain()?);
    let ran = subject.forward(&context.list()?);
    let ran = match (ran.as_ref(), plain.as_ref()) {
        (Ok(ran), _) => ran,
        // Data that the reference refuses may be refused.
        (Err(_), Err(_)) => return Ok(()),
        (Err(problem), Ok(_)) => {
            return Err(Problem(format!("the checker accepts it, but it does not run: {problem}")));
        }
    };
    if subject.compare(&ran.outputs, context.tolerance)? {
        return Ok(());
    }
    let Ok(plain) = plain.as_ref() else { return Ok(()) };
    for (i, (output, expected)) in ran.outputs.iter().zip(&plain.outputs).enumerate() {
        let error = relative_error(&output.to_f64()?, &expected.to_f64()?);
        Expected::rounded(expected.to_f64()?, expected.dtype())
            .with_relative((PLAIN * 16.0 * expected.dtype().epsilon()).min(error))
            .loosened(context.tolerance)
            .compare(output)
            .map_err(|problem| {
                problem.within(format!("{}, against the plain executors", subject.def.results.describe(i)))
            })?;
    }
    Ok(())
}

/// The sample with one tensor in another element type, and with each extent grown by one wherever it occurs.
fn near_misses(sample: &Sample) -> Vec<(String, Sample)> {
    let mut found = Vec::new();
    let tensors: usize = sample.arguments.iter().map(|argument| argument.tensors().len()).sum();
    if tensors > 1 {
        for which in 0..tensors {
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32] {
                let mut at = 0;
                let mut changed = false;
                let arguments = map_arguments(&sample.arguments, |tensor| {
                    at += 1;
                    if at == which + 1 && tensor.dtype() != dtype {
                        changed = true;
                        tensor.clone().cast(dtype)
                    } else {
                        tensor.clone()
                    }
                });
                if changed {
                    let forward_only = sample.forward_only;
                    found.push((
                        format!("with tensor {which} in {dtype}"),
                        Sample { arguments, forward_only, gradients: None },
                    ));
                }
            }
        }
    }
    let mut extents: Vec<usize> =
        sample.arguments.iter().flat_map(Arg::tensors).flat_map(|tensor| tensor.shape().to_vec()).collect();
    extents.sort_unstable();
    extents.dedup();
    for extent in extents.into_iter().filter(|extent| (2..=64).contains(extent)) {
        let arguments = sample.arguments.iter().map(|argument| grown(argument, extent)).collect();
        found.push((
            format!("with extents of {} instead of {extent}", extent + 1),
            Sample { arguments, forward_only: sample.forward_only, gradients: None },
        ));
    }
    found
}

fn grown(argument: &Arg<SampleTensor>, extent: usize) -> Arg<SampleTensor> {
    fn attribute(value: &Attribute, extent: usize) -> Attribute {
        match value {
            Attribute::List(items) => Attribute::List(items.iter().map(|item| attribute(item, extent)).collect()),
            Attribute::Scalar(Scalar::Int(value)) if *value == extent as i64 => {
                Attribute::Scalar(Scalar::Int(*value + 1))
            }
            other => other.clone(),
        }
    }
    match argument {
        // A number by itself is an axis or a count; only lists are shapes.
        Arg::Attribute(value @ Attribute::List(_)) => Arg::Attribute(attribute(value, extent)),
        other => other.map(|tensor| {
            let shape: Vec<usize> = tensor.shape().iter().map(|e| if *e == extent { e + 1 } else { *e }).collect();
            tensor.clone().reshaped(&shape)
        }),
    }
}
