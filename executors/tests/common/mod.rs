//! What the tests of prims and of composites share: samples as arrays, runs of one call, gradients against differences.
#![allow(dead_code, reason = "each test target uses a part")]

use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::tracer::rules::TracingRules;
use std::panic::{AssertUnwindSafe, catch_unwind};

// Naming the crate links the executors.
use fulgurite_executors as _;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::meta::Target;
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::testing::samples::{ErrorSamples, Random, Sample, SampleTensor, Samples};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::tracer::{call, value_and_grad};
use fulgurite_runtime::transforms::decompose::decompose;
use fulgurite_runtime::{Array, DType, Device, Result, Tensor, TensorMeta};

/// The tensors among the arguments.
pub fn tensors(arguments: &[Arg<SampleTensor>]) -> Vec<SampleTensor> {
    arguments.iter().flat_map(Arg::tensors).cloned().collect()
}

/// The data of a sample.
pub fn array(tensor: &SampleTensor) -> Array {
    Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values()).expect("a small array")
}

/// The arguments with traced tensors.
pub fn with_handles(arguments: &[Arg<SampleTensor>], handles: &[Tensor]) -> Vec<Arg<Tensor>> {
    let mut handles = handles.iter();
    map_arguments(arguments, |_| *handles.next().expect("one for each tensor"))
}

/// The samples whose arguments are of the classes that the signature names.
pub fn accepted(def: &'static OperatorDef, dtype: DType) -> Vec<Sample> {
    let fits = |sample: &Sample| {
        let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
        def.check_arguments(&metas).is_ok()
    };
    Samples::of_operator(def, dtype).into_iter().filter(fits).collect()
}

/// What `f` gives when `executors` run it, and the trace that ran. Buffers are fenced.
pub fn run(
    executors: &[&str],
    inputs: &[Array],
    f: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>,
) -> Result<(Vec<Array>, String)> {
    run_traced(executors, inputs, f, |trace| trace)
}

/// As [`run`], with every composite opened before executors are asked.
pub fn run_opened(
    executors: &[&str],
    inputs: &[Array],
    f: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>,
) -> Result<(Vec<Array>, String)> {
    run_traced(executors, inputs, f, |trace| decompose(&trace, |_| true))
}

fn run_traced(
    executors: &[&str],
    inputs: &[Array],
    f: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>,
    change: impl FnOnce(Trace) -> Trace,
) -> Result<(Vec<Array>, String)> {
    let metas: Vec<TensorMeta> = inputs.iter().map(|input| input.meta().clone()).collect();
    let (mut traced, _) = trace("sample", Target::cpu(), &Names::default(), metas, f)?;
    for (input, array) in traced.inputs.iter_mut().zip(inputs).filter(|(_, array)| !array.is_contiguous()) {
        input.strides = Some(array.strides().to_vec());
    }
    let (program, _) = compile(change(traced), &Options::default().with_executors(executors)?)?;
    Ok((program.run_checked(inputs.to_vec())?, program.trace().to_string()))
}

/// A panic is a failure like any other.
pub fn silently<R>(f: impl FnOnce() -> std::result::Result<R, String>) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("panicked".into()))
}

/// Fails with all `failures` of `count` at once.
pub fn report(failures: Vec<String>, count: usize) {
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

/// Runs `check` on every sample of these operators in these types, and reports all failures together. Gives their
/// number.
pub fn check_samples(
    operators: &[&'static OperatorDef],
    dtypes: &[DType],
    check: impl Fn(&'static OperatorDef, DType, &Sample) -> Result<(), String>,
) -> usize {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in operators {
        for dtype in dtypes {
            for (i, sample) in accepted(def, *dtype).iter().enumerate() {
                count += 1;
                if let Err(message) = silently(|| check(def, *dtype, sample)) {
                    failures.push(format!("{} {dtype} {i} {:?}: {message}", def.name, sample.arguments));
                }
            }
        }
    }
    report(failures, count);
    count
}

/// Whether gradients of a sample are compared with differences: it is smooth there, and not too large for that.
pub fn has_differences(sample: &Sample, most: usize) -> bool {
    let elements: usize = tensors(&sample.arguments).iter().map(|t| t.shape().iter().product::<usize>()).sum();
    sample.forward_only.is_none() && elements <= most
}

/// That each error sample in `dtype` fails with its code and message.
pub fn check_error_samples(def: &'static OperatorDef, dtype: DType) {
    for sample in ErrorSamples::of_operator(def, dtype) {
        let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
        if def.check_arguments(&metas).is_err() {
            continue;
        }
        let failure = TracingRules::of(def).declared_meta(&metas).expect_err(def.name);
        assert_eq!(failure.code, sample.code, "{}: {}", def.name, failure.message);
        assert!(failure.message.contains(sample.message), "{}: {}", def.name, failure.message);
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

/// The gradient along a random direction, by each list of executors, against central differences. `derived` asks for
/// the gradient of the decomposition as well.
pub fn check_gradient(def: &'static OperatorDef, sample: &Sample, derived: bool, tolerance: f64) -> Result<(), String> {
    let words = |error: fulgurite_runtime::Error| error.to_string();
    let all: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
    let plain = |handles: Vec<Tensor>| call(def, with_handles(&sample.arguments, &handles));
    let (outputs, _) = run(&["reference"], &all, plain).map_err(words)?;
    let mut random = Random::new(7);
    let mut noise = |like: &Array| {
        let values: Vec<f64> = (0..like.meta().len()).map(|_| random.normal()).collect();
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
            let (at, along) = (all[*i].to_f64().map_err(words)?, direction.to_f64().map_err(words)?);
            let values: Vec<f64> = at.iter().zip(along).map(|(x, v)| x + step * v).collect();
            moved[*i] = Array::from_f64(all[*i].shape(), DType::F64, &values).map_err(words)?;
        }
        let f = |handles: Vec<Tensor>| vec![loss(def, sample, &handles[..count], &handles[count..])];
        run(&["reference"], &moved, f).map_err(words)?.0[0].item().map_err(words)
    };
    let step = 1e-6;
    let expected = (value(step)? - value(-step)?) / (2.0 * step);
    let lists = [(&["reference"][..], false), (&["reference"], true), (&["cpu", "reference"], false)];
    for (executors, expanded) in lists.into_iter().filter(|(_, expanded)| derived || !expanded) {
        let (gradients, text) = run(executors, &inputs, |handles| {
            let parameters: Vec<Tensor> = varied.iter().map(|i| handles[*i]).collect();
            let (_, gradients) = value_and_grad(parameters, |parameters| {
                let mut replaced = handles[..count].to_vec();
                varied.iter().zip(parameters).for_each(|(i, parameter)| replaced[*i] = *parameter);
                if expanded {
                    // The derived gradient: the decomposition in place of the operator.
                    let rule = TracingRules::of(def).decomposition.expect("a composite decomposes");
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
            gradient.to_f64().unwrap().into_iter().zip(direction.to_f64().unwrap()).map(|(g, v)| g * v)
        });
        let got: f64 = products.sum();
        if !got.is_finite() || (got - expected).abs() > tolerance * (1.0 + expected.abs().max(got.abs())) {
            return Err(format!(
                "the derivative is {got}, differences say {expected} ({executors:?}, derived: {expanded})\n{text}"
            ));
        }
    }
    Ok(())
}
