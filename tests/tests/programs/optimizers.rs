//! Five steps of each optimizer as PyTorch makes them: `tests/golden/optimizers.py` wrote the parameters after each, in
//! f64. The gradient depends on the parameter, so that a wrong state shows in later steps.

use std::collections::BTreeMap;

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::{Array, Tensor, jit};

use crate::device;

/// The parameter and the states after a step, from those before, the gradient, the learning rate and the step's number.
type Update = fn(Vec<Tensor>, Tensor, Tensor, Tensor) -> Vec<Tensor>;

fn three((a, b, c): (Tensor, Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b, c]
}

fn two((a, b): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b]
}

/// Each optimizer of the file, with the shapes of its parameter and its states.
fn cases() -> Vec<(&'static str, Vec<Vec<usize>>, Update)> {
    let flat = |count: usize| vec![vec![12]; count];
    vec![
        ("sgd", flat(1), |s, g, lr, t| sgd(s[0], g, None, lr, t)),
        ("sgd, momentum", flat(2), |s, g, lr, t| {
            sgd::with(s[0], g, Some(s[1]), lr, t).momentum(0.9).dampening(0.25).weight_decay(0.1).call()
        }),
        ("sgd, nesterov", flat(2), |s, g, lr, t| {
            sgd::with(s[0], g, Some(s[1]), lr, t).momentum(0.9).nesterov(true).maximize(true).call()
        }),
        ("adam", flat(3), |s, g, lr, t| {
            three(adam::with(s[0], g, s[1], s[2], lr, t).beta1(0.8).beta2(0.95).weight_decay(0.1).call())
        }),
        ("adamw", flat(3), |s, g, lr, t| {
            three(adamw::with(s[0], g, s[1], s[2], lr, t).beta1(0.8).beta2(0.95).weight_decay(0.1).call())
        }),
        ("adamax", flat(3), |s, g, lr, t| three(adamax::with(s[0], g, s[1], s[2], lr, t).weight_decay(0.1).call())),
        ("rmsprop", flat(2), |s, g, lr, _| rmsprop::with(s[0], g, s[1], None, None, lr).weight_decay(0.1).call()),
        ("rmsprop, centered", flat(4), |s, g, lr, _| {
            rmsprop::with(s[0], g, s[1], Some(s[2]), Some(s[3]), lr).alpha(0.9).momentum(0.5).call()
        }),
        ("adagrad", flat(2), |s, g, lr, t| {
            two(adagrad::with(s[0], g, s[1], lr, t).lr_decay(0.1).weight_decay(0.1).call())
        }),
        ("adadelta", flat(3), |s, g, lr, _| three(adadelta::with(s[0], g, s[1], s[2], lr).weight_decay(0.1).call())),
        ("adafactor", flat(2), |s, g, lr, t| {
            adafactor::with(s[0], g, None, None, Some(s[1]), lr, t).weight_decay(0.1).call()
        }),
        ("adafactor of a matrix", vec![vec![3, 4], vec![3, 1], vec![1, 4]], |s, g, lr, t| {
            adafactor::with(s[0], g, Some(s[1]), Some(s[2]), None, lr, t).weight_decay(0.1).call()
        }),
    ]
}

#[test]
fn five_steps_are_those_of_pytorch() {
    let text = std::fs::read_to_string(device::golden("optimizers.json")).unwrap();
    let mut stored: BTreeMap<String, Vec<Vec<f64>>> = serde_json::from_str(&text).unwrap();
    for (name, shapes, update) in cases() {
        let expected = stored.remove(name).unwrap_or_else(|| panic!("{name} is not in the file"));
        let step = jit(move |(state, grad, lr, t): (Vec<Tensor>, Tensor, Tensor, Tensor)| update(state, grad, lr, t));
        let param: Vec<f64> = (0..12).map(|i| f64::from(i).cos()).collect();
        let zeros = |shape: &Vec<usize>| Array::new(shape.clone(), &vec![0.0; shape.iter().product()]).unwrap();
        let mut state: Vec<Array> = shapes.iter().map(zeros).collect();
        state[0] = Array::new(shapes[0].clone(), &param).unwrap();
        for (t, expected) in expected.iter().enumerate() {
            let before: Vec<f64> = state[0].to_vec().unwrap();
            let gradient = |(i, p): (usize, &f64)| (3.0 * i as f64 + t as f64 + 1.0).sin() + p / 2.0;
            let gradient: Vec<f64> = before.iter().enumerate().map(gradient).collect();
            let gradient = Array::new(shapes[0].clone(), &gradient).unwrap();
            let number = |number: f32| Array::scalar(number);
            state = step.call((state, gradient, number(0.125), number(t as f32 + 1.0))).unwrap();
            let found: Vec<f64> = state[0].to_vec().unwrap();
            for (found, expected) in found.iter().zip(expected) {
                let off = (found - expected).abs();
                assert!(off <= 1e-12 * expected.abs().max(1.0), "{name}, step {}: {found}, not {expected}", t + 1);
            }
        }
    }
    assert!(stored.is_empty(), "not compared: {:?}", stored.keys());
}
