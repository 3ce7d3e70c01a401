//! Every composite on its samples: its reference against its decomposition, run by the references of prims and by the
//! host's kernels; gradients against differences; refusals.
#![allow(missing_docs)]

mod common;

use common::*;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::operator::{OperatorDef, OperatorKind};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::rules::{ArrayD, IxDyn, ReferenceTensor};
use fulgurite_runtime::testing::rules::TestRules;
use fulgurite_runtime::testing::samples::{Sample, round_to};
use fulgurite_runtime::tracer::rules::TracingRules;
use fulgurite_runtime::tracer::{call, trace_block};
use fulgurite_runtime::transforms::autodiff::rules::GradientRules;
use fulgurite_runtime::{Array, DType, Device, Tensor};

fn composites() -> Vec<&'static OperatorDef> {
    let chosen = std::env::var("FULGURITE_OPERATOR").ok();
    let wanted = move |def: &OperatorDef| chosen.as_deref().is_none_or(|name| name == def.name);
    operators().into_iter().filter(move |def| def.kind == OperatorKind::Composite && wanted(def)).collect()
}

/// Whether two results agree. `loose` is for decompositions, which round between their steps.
fn close(inputs: DType, result: DType, a: f64, b: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let coarser = if inputs.is_floating() && inputs.epsilon() > result.epsilon() { inputs } else { result };
    let tolerance = match coarser {
        DType::F16 | DType::BF16 => 8.0 * coarser.epsilon(),
        DType::F32 => 2e-5,
        DType::F64 => 1e-9,
        _ => 0.0,
    };
    (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

/// What the operator's own reference gives: values and the shape of each result.
fn referred(def: &'static OperatorDef, sample: &Sample) -> Result<Vec<ReferenceTensor>, String> {
    let rule = TestRules::of(def).reference.ok_or("declares no reference")?;
    let arguments = map_arguments(&sample.arguments, |tensor| {
        let shape = IxDyn(tensor.shape());
        let floats = ArrayD::from_shape_vec(shape, tensor.values()).expect("a value for each element");
        ReferenceTensor::from_floats(tensor.dtype(), floats)
    });
    rule(&arguments).map_err(|failure| failure.to_string())
}

fn compare(def: &'static OperatorDef, dtype: DType, sample: &Sample) -> Result<(), String> {
    let inputs: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
    let f = |handles: Vec<Tensor>| call(def, with_handles(&sample.arguments, &handles));
    let words = |error: fulgurite_runtime::Error| error.to_string();
    let expected = referred(def, sample)?;
    for (executors, ran) in [
        (&["reference"][..], run_opened(&["reference"], &inputs, f)),
        (&["cpu", "reference"], run(&["cpu", "reference"], &inputs, f)),
    ] {
        let (got, text) = ran.map_err(words)?;
        for (i, (expected, got)) in expected.iter().zip(&got).enumerate() {
            if expected.shape() != got.shape() {
                return Err(format!("result {i} is {}, expected shape {:?}", got.meta(), expected.shape()));
            }
            let expected: Vec<f64> = match got.dtype() {
                DType::Bool => expected.booleans().iter().map(|value| f64::from(u8::from(*value))).collect(),
                DType::U8 => expected.integers().iter().map(|value| f64::from(*value as u8)).collect(),
                DType::I32 => expected.integers().iter().map(|value| f64::from(*value as i32)).collect(),
                DType::I64 => expected.integers().iter().map(|value| *value as f64).collect(),
                floating => expected.floats().iter().map(|value| round_to(*value, floating)).collect(),
            };
            for (position, (a, b)) in expected.iter().zip(got.to_f64().map_err(words)?).enumerate() {
                if !close(dtype, got.dtype(), *a, b) {
                    return Err(format!("result {i} at {position} is {b}, expected {a} ({executors:?})\n{text}"));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn decompositions_agree_with_references() {
    check_samples(&composites(), &DType::ALL, compare);
}

#[test]
fn metas_agree_with_decompositions() {
    for def in composites() {
        for dtype in DType::ALL {
            for sample in accepted(def, dtype) {
                let (Some(meta), Some(decomposition)) =
                    (TracingRules::of(def).meta, TracingRules::of(def).decomposition)
                else {
                    continue;
                };
                let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
                let declared = meta(&metas).unwrap_or_else(|failure| panic!("{} {metas:?}: {failure}", def.name));
                let parameters = metas.iter().flat_map(Arg::tensors).cloned().enumerate();
                let parameters: Vec<_> = parameters.map(|(i, meta)| (format!("p{i}").into(), meta)).collect();
                let block =
                    trace_block(&parameters, |handles| decomposition(&with_handles(&sample.arguments, handles)));
                let block = block.unwrap_or_else(|error| panic!("{} {metas:?}: {error}", def.name));
                let derived: Vec<_> = block.results.iter().map(|id| block.meta(*id).clone()).collect();
                assert_eq!(declared, derived, "{} {metas:?}", def.name);
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let differentiable: Vec<_> =
        composites().into_iter().filter(|def| GradientRules::of(def).no_grad.is_none()).collect();
    check_samples(&differentiable, &[DType::F64], |def, _, sample| {
        if has_differences(sample, 4000) { check_gradient(def, sample, true, 5e-5) } else { Ok(()) }
    });
}

#[test]
fn error_samples_fail_as_they_say() {
    // In f32: several samples ask for another type by name.
    composites().into_iter().for_each(|def| check_error_samples(def, DType::F32));
}
