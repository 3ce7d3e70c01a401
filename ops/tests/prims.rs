//! Every prim on its samples: the host's kernels against the references, gradients against differences, refusals.
#![allow(missing_docs)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::compile::{Options, compile};
use fulgurite::jit::{Names, trace};
use fulgurite::meta::Target;
use fulgurite::operator::{OperatorDef, OperatorKind, operators};
use fulgurite::testing::samples::{ErrorSamples, Random, Sample, SampleTensor, Samples};
use fulgurite::tracer::{call, value_and_grad};
use fulgurite::{Array, DType, Device, Result, Tensor, TensorMeta};
use fulgurite_ops::prims;

fn prims_list() -> Vec<&'static OperatorDef> {
    operators().iter().copied().filter(|def| def.kind == OperatorKind::Prim).collect()
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
    inputs: &[Array],
    f: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>,
) -> Result<(Vec<Array>, String)> {
    let metas: Vec<TensorMeta> = inputs.iter().map(|input| input.meta().clone()).collect();
    let (mut trace, _) = trace("sample", Target::cpu(), &Names::default(), metas, f)?;
    for (input, array) in trace.inputs.iter_mut().zip(inputs).filter(|(_, array)| !array.is_contiguous()) {
        input.strides = Some(array.strides().to_vec());
    }
    let (program, _) = compile(trace, &Options::default().with_executors(executors)?)?;
    let outputs = program.run_checked(inputs.to_vec())?;
    Ok((outputs, program.trace().to_string()))
}

fn close(dtype: DType, a: f64, b: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let tolerance = match dtype {
        DType::F16 | DType::BF16 => 2.0 * dtype.epsilon(),
        DType::F32 => 1e-5,
        DType::F64 => 1e-11,
        _ => 0.0,
    };
    (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

fn compare(def: &'static OperatorDef, dtype: DType, sample: &Sample) -> Result<(), String> {
    let inputs: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
    let both: Vec<_> = [&["reference"][..], &["cpu", "reference"]]
        .iter()
        .map(|executors| run(executors, &inputs, |handles| call(def, with_handles(&sample.arguments, &handles))))
        .collect::<Result<_>>()
        .map_err(|error| error.to_string())?;
    for (i, (expected, got)) in both[0].0.iter().zip(&both[1].0).enumerate() {
        if expected.meta() != got.meta() {
            return Err(format!("result {i} is {}, expected {}", got.meta(), expected.meta()));
        }
        for (position, (a, b)) in expected.to_f64().iter().zip(got.to_f64()).enumerate() {
            if !close(got.dtype(), *a, b) {
                return Err(format!("result {i} at {position} is {b}, expected {a} ({dtype})\n{}", both[1].1));
            }
        }
    }
    Ok(())
}

fn silently<R>(f: impl FnOnce() -> std::result::Result<R, String>) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("panicked".into()))
}

fn report(failures: Vec<String>, count: usize) {
    assert!(count > 100, "only {count} samples");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn kernels_agree_with_references() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in prims_list() {
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

/// The same tensor with its dimensions in reverse order in memory, or with a gap after each element.
fn laid_out(tensor: &SampleTensor, gaps: bool) -> Array {
    let plain = array(tensor);
    let rank = tensor.shape().len();
    if rank == 0 {
        return plain;
    }
    if gaps {
        let mut shape = tensor.shape().to_vec();
        shape[rank - 1] *= 2;
        let values: Vec<f64> = tensor.values().into_iter().flat_map(|value| [value, 99.0]).collect();
        let wide = Array::from_f64(&shape, tensor.dtype(), &values).expect("a small array");
        return wide.slice(rank - 1, 0, shape[rank - 1], 2).expect("every second element");
    }
    let reversed: Vec<usize> = (0..rank).rev().collect();
    plain
        .permute(&reversed)
        .and_then(|array| array.to_contiguous())
        .and_then(|array| array.permute(&reversed))
        .expect("a permutation")
}

#[test]
fn layouts_make_no_difference() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in prims_list() {
        for dtype in [DType::F32, DType::BF16, DType::I64, DType::Bool] {
            for (i, sample) in accepted(def, dtype).iter().enumerate() {
                let all = tensors(&sample.arguments);
                let f = |handles: Vec<Tensor>| call(def, with_handles(&sample.arguments, &handles));
                let plain: Vec<Array> = all.iter().map(array).collect();
                let expected = run(&["reference"], &plain, f).expect("the reference runs").0;
                for gaps in [false, true] {
                    count += 1;
                    let inputs: Vec<Array> = all.iter().map(|tensor| laid_out(tensor, gaps)).collect();
                    let outcome = silently(|| run(&["cpu"], &inputs, f).map_err(|error| error.to_string()));
                    let same = outcome.as_ref().map(|(got, _)| {
                        expected.iter().zip(got).all(|(a, b)| {
                            a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| close(expected[0].dtype(), *a, b))
                        })
                    });
                    if same != Ok(true) {
                        failures.push(format!("{} {dtype} {i} gaps {gaps} {:?}: {same:?}", def.name, sample.arguments));
                    }
                }
            }
        }
    }
    report(failures, count);
}

#[test]
fn every_prim_is_run_by_the_host() {
    let refused: Vec<&str> = prims_list()
        .into_iter()
        .filter(|def| {
            DType::ALL.into_iter().any(|dtype| {
                accepted(def, dtype).iter().any(|sample| {
                    let inputs: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
                    run(&["cpu"], &inputs, |handles| call(def, with_handles(&sample.arguments, &handles))).is_err()
                })
            })
        })
        .map(|def| def.name)
        .collect();
    assert!(refused.is_empty(), "not run by cpu: {refused:?}");
}

/// The weighted sum of all floating-point results: weights are drawn anew from `seed` for each.
fn loss(def: &'static OperatorDef, sample: &Sample, handles: &[Tensor], weights: &[Tensor]) -> Tensor {
    let results = call(def, with_handles(&sample.arguments, handles));
    let mut total = prims::full([], 0.0, DType::F64, "cpu");
    let mut weights = weights.iter();
    for result in results.into_iter().filter(|result| result.dtype().is_floating()) {
        let dims: Vec<usize> = (0..result.rank()).collect();
        let weighted = prims::mul(result, *weights.next().expect("one for each result"));
        let weighted = prims::convert_element_type(weighted, DType::F64);
        total = prims::add(total, prims::sum(weighted, dims));
    }
    total
}

fn check_gradient(def: &'static OperatorDef, sample: &Sample) -> Result<(), String> {
    let words = |error: fulgurite::Error| error.to_string();
    let all: Vec<Array> = tensors(&sample.arguments).iter().map(array).collect();
    let (outputs, _) =
        run(&["reference"], &all, |handles| call(def, with_handles(&sample.arguments, &handles))).map_err(words)?;
    let mut random = Random::new(7);
    let mut noise = |like: &Array| {
        let values: Vec<f64> = (0..like.to_f64().len()).map(|_| random.normal()).collect();
        Array::from_f64(like.shape(), like.dtype(), &values).expect("a small array")
    };
    let weights: Vec<Array> = outputs.iter().filter(|out| out.dtype().is_floating()).map(&mut noise).collect();
    let varied: Vec<usize> = (0..all.len()).filter(|i| all[*i].dtype().is_floating()).collect();
    let directions: Vec<Array> = varied.iter().map(|i| noise(&all[*i])).collect();
    if varied.is_empty() || weights.is_empty() || weights.iter().any(|weight| weight.dtype() != DType::F64) {
        return Ok(());
    }
    let inputs: Vec<Array> = all.iter().chain(&weights).cloned().collect();
    let value = |step: f64| -> Result<f64, String> {
        let mut moved = inputs.clone();
        for (i, direction) in varied.iter().zip(&directions) {
            let values: Vec<f64> = all[*i].to_f64().iter().zip(direction.to_f64()).map(|(x, v)| x + step * v).collect();
            moved[*i] = Array::from_f64(all[*i].shape(), DType::F64, &values).map_err(words)?;
        }
        let count = all.len();
        let f = |handles: Vec<Tensor>| vec![loss(def, sample, &handles[..count], &handles[count..])];
        run(&["reference"], &moved, f).map_err(words)?.0[0].item().map_err(words)
    };
    let step = 1e-6;
    let expected = (value(step)? - value(-step)?) / (2.0 * step);
    for executors in [&["reference"][..], &["cpu", "reference"]] {
        let (gradients, text) = run(executors, &inputs, |handles| {
            let parameters: Vec<Tensor> = varied.iter().map(|i| handles[*i]).collect();
            let (_, gradients) = value_and_grad(parameters, |parameters| {
                let mut replaced = handles[..all.len()].to_vec();
                varied.iter().zip(parameters).for_each(|(i, parameter)| replaced[*i] = *parameter);
                loss(def, sample, &replaced, &handles[all.len()..])
            });
            gradients
        })
        .map_err(words)?;
        let got: f64 = gradients
            .iter()
            .zip(&directions)
            .flat_map(|(gradient, direction)| gradient.to_f64().into_iter().zip(direction.to_f64()))
            .map(|(g, v)| g * v)
            .sum();
        if (got - expected).abs() > 2e-5 * (1.0 + expected.abs().max(got.abs())) {
            return Err(format!("the derivative is {got}, differences say {expected} ({executors:?})\n{text}"));
        }
    }
    Ok(())
}

#[test]
fn gradients_agree_with_differences() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for def in prims_list().into_iter().filter(|def| def.grad.is_some()) {
        for (i, sample) in accepted(def, DType::F64).iter().enumerate() {
            let elements: usize = tensors(&sample.arguments).iter().map(|t| t.shape().iter().product::<usize>()).sum();
            if sample.forward_only.is_some() || elements > 1500 {
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
    for def in prims_list() {
        for dtype in DType::ALL {
            for sample in ErrorSamples::of_operator(def, dtype) {
                let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
                if def.check_arguments(&metas).is_err() {
                    continue;
                }
                let failure = def.meta.expect("a prim has a meta")(&metas).expect_err(def.name);
                assert_eq!(failure.code, sample.code, "{}: {}", def.name, failure.message);
                assert!(failure.message.contains(sample.message), "{}: {}", def.name, failure.message);
            }
        }
    }
}

#[test]
fn an_index_out_of_range_fails_with_its_name() {
    let (x, index) = (array_of([3, 2], DType::F32), [0.0, 3.0]);
    let index = Array::from_f64([2], DType::I64, &index).unwrap();
    for executors in [&["reference"][..], &["cpu"]] {
        let error =
            run(executors, &[x.clone(), index.clone()], |t| vec![prims::index_select(t[0], 0, t[1])]).unwrap_err();
        assert!(error.to_string().contains("index holds 3"), "{error}");
        let error = run(executors, &[x.clone(), index.clone(), array_of([2, 2], DType::F32)], |t| {
            vec![prims::index_add(t[0], 0, t[1], t[2])]
        })
        .unwrap_err();
        assert!(error.to_string().contains("index holds 3"), "{error}");
    }
}

fn array_of(shape: [usize; 2], dtype: DType) -> Array {
    Array::from_f64(shape, dtype, &vec![1.0; shape[0] * shape[1]]).unwrap()
}
