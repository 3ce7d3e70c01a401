//! The kind of device that `ops new --device-kind npu` writes works as it is written.

use fulgurite::Device;
use fulgurite::compile::Options;
use fulgurite::ops::prelude::*;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite::{Array, Tensor, jit};

fn function(x: Tensor) -> Tensor {
    gelu(-softmax(x, -1))
}

#[test]
fn programs_run_on_it_and_fall_back_visibly() {
    let x = Array::new([3, 5], &(0..15).map(|i| i as f32 / 7.0 - 1.0).collect::<Vec<f32>>()).unwrap();
    let expected = jit(function).call(x.clone()).unwrap().to_f64().unwrap();
    let device = Device::named("npu").unwrap();
    let function = jit(function).options(Options { device: Some(device), ..Options::default() });
    let out = function.call(x.clone()).unwrap();
    assert_eq!(out.device(), device);
    for (found, expected) in out.to_f64().unwrap().iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
    }
    let claimed = function.compile(&x).unwrap().stage("claim").unwrap().to_string();
    assert!(claimed.contains(" = neg(softmax) by npu") && claimed.contains(" by host"), "{claimed}");
}

#[test]
fn its_suite_passes() {
    let operators = ["prims::neg", "prims::matmul", "softmax", "prims::slice"].map(str::to_owned).to_vec();
    let templates = vec![Template::Consistency, Template::Bounds, Template::Layout, Template::Determinism];
    let filter = Filter { operators: operators.clone(), templates, ..Filter::device("npu") };
    let tests = generated_tests(&filter, &Settings::default());
    assert!(operators.iter().all(|name| tests.iter().any(|test| test.name.contains(name.as_str()))));
    for test in tests {
        assert!((test.run)().is_ok(), "{}", test.name);
    }
}
