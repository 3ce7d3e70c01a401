//! Every prim on its samples: the host's kernels against the references, gradients against differences, refusals.
#![allow(missing_docs)]

mod common;

use common::*;
use fulgurite_ops::prims;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::operator::{OperatorDef, OperatorKind};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::samples::{Sample, SampleTensor};
use fulgurite_runtime::tracer::call;
use fulgurite_runtime::transforms::autodiff::rules::GradientRules;
use fulgurite_runtime::{Array, DType, Result, Tensor};

fn prims_list() -> Vec<&'static OperatorDef> {
    operators().into_iter().filter(|def| def.kind == OperatorKind::Prim).collect()
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
    let words = |error: fulgurite_runtime::Error| error.to_string();
    let both: Vec<_> = [&["reference"][..], &["cpu", "reference"]]
        .iter()
        .map(|executors| run(executors, &inputs, |handles| call(def, with_handles(&sample.arguments, &handles))))
        .collect::<Result<_>>()
        .map_err(words)?;
    for (i, (expected, got)) in both[0].0.iter().zip(&both[1].0).enumerate() {
        if expected.meta() != got.meta() {
            return Err(format!("result {i} is {}, expected {}", got.meta(), expected.meta()));
        }
        let values = (expected.to_f64().map_err(words)?, got.to_f64().map_err(words)?);
        for (position, (a, b)) in values.0.iter().zip(values.1).enumerate() {
            if !close(got.dtype(), *a, b) {
                return Err(format!("result {i} at {position} is {b}, expected {a} ({dtype})\n{}", both[1].1));
            }
        }
    }
    Ok(())
}

#[test]
fn kernels_agree_with_references() {
    assert!(check_samples(&prims_list(), &DType::ALL, compare) > 100);
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
                            let (a, b) = (a.to_f64().unwrap(), b.to_f64().unwrap());
                            a.iter().zip(b).all(|(a, b)| close(expected[0].dtype(), *a, b))
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

#[test]
fn gradients_agree_with_differences() {
    let differentiable: Vec<_> = prims_list().into_iter().filter(|def| GradientRules::of(def).grad.is_some()).collect();
    let count = check_samples(&differentiable, &[DType::F64], |def, _, sample| {
        if has_differences(sample, 1500) { check_gradient(def, sample, false, 2e-5) } else { Ok(()) }
    });
    assert!(count > 100);
}

#[test]
fn error_samples_fail_as_they_say() {
    for def in prims_list() {
        DType::ALL.into_iter().for_each(|dtype| check_error_samples(def, dtype));
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
