//! What an operator's samples say of it: the element types it takes, the executors that take it, its traces.

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::executor::{Claim, ExecutorDef, VIEW, find_implementation};
use fulgurite::kernel::KernelRules;
use fulgurite::operator::RuleSet;
use fulgurite::operator::{OperatorDef, OperatorKind};
use fulgurite::strided::LayoutRules;
use fulgurite::testing::samples::{Sample, SampleTensor, Samples};
use fulgurite::trace::Trace;
use fulgurite::transforms::autodiff::rules::GradientRules;
use fulgurite::{DType, Device, Result, Target, TensorMeta};

use crate::cases::{Call, trace_call};

/// The samples of `def` in `dtype` that it accepts on `target`, with their numbers and traces.
pub fn accepted(def: &'static OperatorDef, dtype: DType, target: &Target) -> Vec<(usize, Sample, Trace)> {
    Samples::of_operator(def, dtype)
        .into_iter()
        .enumerate()
        .filter_map(|(number, sample)| {
            let trace = trace_sample(def, &sample.arguments, target).ok()?;
            Some((number, sample, trace))
        })
        .collect()
}

/// Whether `def` has samples in `dtype` and accepts them all. (Samples that no element type decides over, such as those
/// of an operator without tensors, count for every one.)
pub fn takes(def: &'static OperatorDef, dtype: DType) -> bool {
    let all = Samples::of_operator(def, dtype).len();
    all > 0 && accepted(def, dtype, &Target::cpu()).len() == all
}

/// The trace of a sample.
pub fn trace_sample(def: &'static OperatorDef, arguments: &[Arg<SampleTensor>], target: &Target) -> Result<Trace> {
    let device = target.device();
    let call = Call { operator: def, arguments: map_arguments(arguments, |tensor| tensor.meta(device)) };
    trace_call(&call, target.clone())
}

/// Whether some tensor of a call can be differentiated: the positions of these among all tensors.
pub fn differentiable(def: &OperatorDef, trace: &Trace) -> Vec<usize> {
    let block = &trace.block;
    let floating = |id: &_| block.meta(*id).dtype().is_differentiable();
    if GradientRules::of(def).no_grad.is_some() || !block.results.iter().any(floating) {
        return Vec::new();
    }
    (0..block.parameters.len()).filter(|i| floating(&block.parameters[*i])).collect()
}

/// Whether `executor` takes `def` with these arguments by itself (not by way of its decomposition).
pub fn claim(def: &'static OperatorDef, executor: &ExecutorDef, arguments: &[Arg<TensorMeta>]) -> Claim {
    if let OperatorKind::Symbol(owners) = def.kind {
        return match owners.contains(&executor.name) {
            true if KernelRules::of(def).cpu.is_some() || executor.device != Device::CPU.kind() => Ok(()),
            true => Err("has no kernel".into()),
            false => Err(format!("belongs to {}", owners.join(" and "))),
        };
    }
    if executor.name == VIEW {
        return match LayoutRules::of(def).view {
            Some(_) => Ok(()),
            None => Err("is no view".into()),
        };
    }
    if let Some(implementation) = find_implementation(def.name, executor.name) {
        let runs = implementation.kernel.runs_on(executor.device) || implementation.execution.is_some();
        return match (implementation.checker)(arguments) {
            Ok(()) if !runs => Err("its implementation has no kernel, only a gradient".into()),
            answer => answer,
        };
    }
    match executor.claims {
        Some(claims) => claims(def, arguments),
        None => Err("has no implementation of it".into()),
    }
}

/// The samples' arguments as metas on the device of `executor`.
pub fn metas_for(executor: &ExecutorDef, sample: &Sample) -> Vec<Arg<TensorMeta>> {
    let device = if executor.device == "any" { Device::CPU } else { Device::new(executor.device, 0) };
    map_arguments(&sample.arguments, |tensor| tensor.meta(device))
}
