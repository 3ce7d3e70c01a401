//! Metas equal what execution returns.

use crate::test::{Context, Outcome, PASSED};
use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, map_arguments};
use crate::meta::Device;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Subject, trace_call};

/// The sample's metas are accepted, as many as the signature says, follow the device of the arguments, and have the
/// shape and kind that the reference and the executor return.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let metas = subject.results()?;
    if let Some(n) = subject.def.results.count() {
        ensure!(metas.len() == n, "meta gives {} results, the signature has {n}", metas.len());
    }
    if let Some(results) = subject.reference()? {
        ensure!(
            results.len() == metas.len(),
            "the reference gives {} results, meta gives {}",
            results.len(),
            metas.len()
        );
        for (i, (result, meta)) in results.iter().zip(&metas).enumerate() {
            ensure!(
                result.shape() == meta.shape(),
                "{}: meta says {meta}, the reference has shape {:?}",
                subject.def.results.describe(i),
                result.shape()
            );
            // References compute integers and booleans in f64 where that is exact, booleans in integers too.
            let kind = |dtype: DType| (dtype.is_floating(), dtype == DType::Bool);
            let (computed, declared) = (kind(result.dtype()), kind(meta.dtype()));
            ensure!(
                computed == declared || computed.0 || (!computed.1 && !declared.0),
                "{}: meta says {meta}, the reference computes in {}",
                subject.def.results.describe(i),
                result.dtype()
            );
        }
    }
    let ran = subject.forward(&context.list()?);
    let ran = ran.as_ref().as_ref().map_err(Problem::clone)?;
    for (i, (output, meta)) in ran.outputs.iter().zip(&metas).enumerate() {
        let what = subject.def.results.describe(i);
        ensure!(output.meta() == meta, "{what}: meta says {meta}, execution returns {}", output.meta());
    }
    elsewhere(subject)?;
    PASSED
}

/// On another device the same call gives the same metas on that device.
fn elsewhere(subject: &Subject) -> Check {
    let device = Device::new("elsewhere", 1);
    let tensors = subject.metas.iter().any(|argument| !argument.tensors().is_empty());
    // A device that is an attribute decides for itself.
    let named = subject
        .def
        .params
        .iter()
        .zip(&subject.metas)
        .any(|(param, argument)| param.name == "device" && !matches!(argument, Arg::Attribute(Attribute::None)));
    if !tensors || named {
        return Ok(());
    }
    let moved = map_arguments(&subject.metas, |meta| crate::TensorMeta::new(meta.shape(), meta.dtype(), device));
    let trace = trace_call(subject.def, &moved).map_err(|error| Problem::from(error).within("on another device"))?;
    for (i, (id, meta)) in trace.block.results.iter().zip(subject.results()?).enumerate() {
        let there = trace.block.meta(*id);
        ensure!(
            there.device() == device && there.shape() == meta.shape() && there.dtype() == meta.dtype(),
            "{}: with arguments on {device} meta says {there}, expected {meta} on that device",
            subject.def.results.describe(i)
        );
    }
    Ok(())
}
