//! Every composite on its samples: its reference against its decomposition, run by the references of prims and by the host's
//! kernels; gradients against differences; refusals.
#![allow(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::compile::{Options, compile};
use fulgurite::jit::{Names, trace};
use fulgurite::meta::Target;
use fulgurite::operator::{OperatorDef, OperatorKind, operators};
use fulgurite::rules::{ArrayD, IxDyn, ReferenceTensor};
use fulgurite::testing::samples::{ErrorSamples, Random, Sample, SampleTensor, Samples, round_to};
use fulgurite::tracer::{call, trace_block, value_and_grad};
use fulgurite::transforms::decompose::decompose;
use fulgurite::{Array, DType, Device, Result, Tensor, TensorMeta};
use fulgurite_ops::prims;

fn composites() -> impl Iterator<Item = &'static OperatorDef> {
    let chosen = std::env::var("FULGURITE_OPERATOR").ok();
    let wanted = move |def: &OperatorDef| chosen.as_deref().is_none_or(|name| name == def.name);
    operators().iter().copied().filter(move |def| def.kind == OperatorKind::Composite && wanted(def))
}

fn tensors(arguments: &[Arg<SampleTensor>]) -> Vec<SampleTensor> {
    arguments.iter().flat_map(Arg::tensors).cloned().collect()
}

fn array(tensor: &SampleTensor) -> Array {
    Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values()).expect("a small array")
}

fn with_handles(arguments: &[Arg<SampleTensor>], handles: &[Tensor]) -> Vec<Arg<Tensor>> {
    let mut handles = handles.iter();
    map_arguments(arguments, |_| *handles.next().expect("one for each tensor"))
}

fn accepted(def: &'static OperatorDef, dtype: DType) -> Vec<Sample> {
    let fits = |sample: &Sample| {
        let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
        def.check_arguments(&metas).is_ok()
    };
    Samples::of_operator(def, dtype).into_iter().filter(fits).collect()
}

fn run(
    executors: &[&str],
    expanded: bool,
    inputs: &[Array],
    f: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>,
) -> Result<(Vec<Array>, String)> {
    let metas: Vec<TensorMeta> = inputs.iter().map(|input| input.meta().clone()).collect();
    let (mut traced, _) = trace("sample", Target::cpu(), &Names::default(), metas, f)?;
    if expanded {
        traced = decompose(&traced, |_| true);
    }
    let (program, _) = compile(traced, &Options::default().with_executors(executors)?)?;
    Ok((program.run(inputs.to_vec())?, program.trace().to_string()))
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
    let rule = def.reference.ok_or("declares no reference")?;
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
    let words = |error: fulgurite::Error| error.to_string();
    let expected = referred(def, sample)?;
    for (executors, expanded) in [(&["reference"][..], true), (&["cpu", "reference"], false)] {
        let (got, text) = run(executors, expanded, &inputs, f).map_err(words)?;
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
            for (position, (a, b)) in expected.iter().zip(got.to_f64()).enumerate() {
                if !close(dtype, got.dtype(), *a, b) {
                    return Err(format!("result {i} at {position} is {b}, expected {a} ({executors:?})\n{text}"));
                }
            }
        }
    }
    Ok(())
}

fn silently<R>(f: impl FnOnce() -> std::result::Result<R, String>) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("panicked".into()))
}

fn report(failures: Vec<String>, count: usize) {
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn decompositions_agree_with_references() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in composites() {
        for dtype in DType::ALL {
            for (i, sample) in accepted(def, dtype).iter().enumerate() {
                count += 1;
                if let Err(message) = silently(|| compare(def, dtype, sample)) {
                    failures.push(format!("{} {dtype} {i} {:?}: {message}", def.name, sample.arguments));
                }
            }
        }
    }
    report(failures, count);
}

#[test]
fn metas_agree_with_decompositions() {
    for def in composites() {
        for dtype in DType::ALL {
            for sample in accepted(def, dtype) {
                let (Some(meta), Some(decomposition)) = (def.meta, def.decomposition) else { continue };
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

/// The weighted sum of all floating-point results, in f64.
fn loss(def: &'static OperatorDef, sample: &Sample, handles: &[Tensor], weights: &[Tensor]) -> Tensor {
    let results = call(def, with_handles(&sample.arguments, handles));
    let mut total = prims::full([], 0.0, DType::F64, "cpu");
    let floating = results.into_iter().filter(|result| result.dtype().is_floating());
    for (result, weight) in floating.zip(weights) {
        let dims: Vec<usize> = (0..result.rank()).collect();
        let weighted = prims::mul(prims::convert_element_type(result, DType::F64), *weight);
        total = prims::add(total, prims::sum(weighted, dims));
    }
    total
}

fn check_gradient(def: &'static OperatorDef, sample: &Sample) -> Result<(), String> {
    let words = |error: fulgurite::Error| error.to_string();
    let all: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
    let plain = |handles: Vec<Tensor>| call(def, with_handles(&sample.arguments, &handles));
    let (outputs, _) = run(&["reference"], false, &all, plain).map_err(words)?;
    let mut random = Random::new(7);
    let mut noise = |like: &Array| {
        let values: Vec<f64> = (0..like.to_f64().len()).map(|_| random.normal()).collect();
        Array::from_f64(like.shape(), DType::F64, &values).expect("a small array")
    };
    let weights: Vec<Array> = outputs.iter().filter(|out| out.dtype().is_floating()).map(&mut noise).collect();
    let varied: Vec<usize> = (0..all.len()).filter(|i| all[*i].dtype() == DType::F64).collect();
    let directions: Vec<Array> = varied.iter().map(|i| noise(&all[*i])).collect();
    let rough = outputs.iter().any(|out| out.dtype().is_floating() && out.dtype() != DType::F64);
    if varied.is_empty() || weights.is_empty() || rough {
        return Ok(());
    }
    let inputs: Vec<Array> = all.iter().chain(&weights).cloned().collect();
    let count = all.len();
    let value = |step: f64| -> Result<f64, String> {
        let mut moved = inputs.clone();
        for (i, direction) in varied.iter().zip(&directions) {
            let values: Vec<f64> = all[*i].to_f64().iter().zip(direction.to_f64()).map(|(x, v)| x + step * v).collect();
            moved[*i] = Array::from_f64(all[*i].shape(), DType::F64, &values).map_err(words)?;
        }
        let f = |handles: Vec<Tensor>| vec![loss(def, sample, &handles[..count], &handles[count..])];
        run(&["reference"], false, &moved, f).map_err(words)?.0[0].item().map_err(words)
    };
    let step = 1e-6;
    let expected = (value(step)? - value(-step)?) / (2.0 * step);
    for (executors, expanded) in [(&["reference"][..], false), (&["reference"], true), (&["cpu", "reference"], false)] {
        let (gradients, text) = run(executors, false, &inputs, |handles| {
            let parameters: Vec<Tensor> = varied.iter().map(|i| handles[*i]).collect();
            let (_, gradients) = value_and_grad(parameters, |parameters| {
                let mut replaced = handles[..count].to_vec();
                varied.iter().zip(parameters).for_each(|(i, parameter)| replaced[*i] = *parameter);
                if expanded {
                    // The derived gradient: the decomposition in place of the operator.
                    let rule = def.decomposition.expect("a composite decomposes");
                    let results = rule(&with_handles(&sample.arguments, &replaced));
                    let mut total = prims::full([], 0.0, DType::F64, "cpu");
                    let floating = results.into_iter().filter(|result| result.dtype().is_floating());
                    for (result, weight) in floating.zip(&handles[count..]) {
                        let dims: Vec<usize> = (0..result.rank()).collect();
                        total = prims::add(total, prims::sum(prims::mul(result, *weight), dims));
                    }
                    return total;
                }
                loss(def, sample, &replaced, &handles[count..])
            });
            gradients
        })
        .map_err(words)?;
        let products = gradients.iter().zip(&directions).flat_map(|(gradient, direction)| {
            gradient.to_f64().into_iter().zip(direction.to_f64()).map(|(g, v)| g * v)
        });
        let got: f64 = products.sum();
        if !got.is_finite() || (got - expected).abs() > 5e-5 * (1.0 + expected.abs().max(got.abs())) {
            return Err(format!(
                "the derivative is {got}, differences say {expected} ({executors:?}, derived: {expanded})\n{text}"
            ));
        }
    }
    Ok(())
}

#[test]
fn gradients_agree_with_differences() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in composites().filter(|def| def.no_grad.is_none()) {
        for (i, sample) in accepted(def, DType::F64).iter().enumerate() {
            let elements: usize = tensors(&sample.arguments).iter().map(|t| t.shape().iter().product::<usize>()).sum();
            if sample.forward_only.is_some() || elements > 4000 {
                continue;
            }
            count += 1;
            if let Err(message) = silently(|| check_gradient(def, sample)) {
                failures.push(format!("{} {i} {:?}: {message}", def.name, sample.arguments));
            }
        }
    }
    report(failures, count);
}

#[test]
fn error_samples_fail_as_they_say() {
    for def in composites() {
        // In f32: several samples ask for another type by name.
        for sample in ErrorSamples::of_operator(def, DType::F32) {
            let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
            if def.check_arguments(&metas).is_err() {
                continue;
            }
            let failure = def.meta.expect("it has preconditions")(&metas).expect_err(def.name);
            assert_eq!(failure.code, sample.code, "{}: {}", def.name, failure.message);
            assert!(failure.message.contains(sample.message), "{}: {}", def.name, failure.message);
        }
    }
}
