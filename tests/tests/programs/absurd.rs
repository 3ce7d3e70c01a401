//! Absurd numbers in attributes are errors, never panics: every integer of every sample is replaced, and the call is
//! traced and taken through all transforms (nothing runs).

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_executors as _;
use fulgurite_runtime::argument::{Arg, Attribute, Scalar, map_arguments};
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::samples::{SampleTensor, Samples};
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

const ABSURD: [i64; 6] = [i64::MAX, i64::MIN, 1 << 62, 1 << 40, -1, 0];

/// The attribute with each of its integers replaced in turn.
fn replaced(attribute: &Attribute, value: i64) -> Vec<Attribute> {
    match attribute {
        Attribute::Scalar(Scalar::Int(_)) => vec![Attribute::Scalar(Scalar::Int(value))],
        Attribute::List(items) => (0..items.len())
            .flat_map(|i| {
                replaced(&items[i], value).into_iter().map(move |item| {
                    let mut items = items.to_vec();
                    items[i] = item;
                    Attribute::List(items.into())
                })
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn attempt(def: &'static fulgurite_runtime::operator::OperatorDef, arguments: &[Arg<SampleTensor>]) {
    let metas: Vec<TensorMeta> =
        arguments.iter().flat_map(Arg::tensors).map(|tensor| tensor.meta(Device::CPU)).collect();
    let traced = trace("absurd", Target::cpu(), &Names::default(), metas, |handles: Vec<fulgurite_runtime::Tensor>| {
        let mut handles = handles.into_iter();
        let arguments = map_arguments(arguments, |_| handles.next().unwrap());
        fulgurite_runtime::tracer::call(def, arguments)
    });
    if let Ok((trace, _)) = traced {
        // An error is an answer; what is looked for is a panic.
        let _ = stages(trace, &Options::default());
    }
}

#[test]
fn absurd_integers_are_errors_and_never_panics() {
    let mut tried = 0;
    let mut panicked = Vec::new();
    // Panics are expected here alone: other tests of the process go on saying theirs.
    let (own, before) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != own {
            before(info);
        }
    }));
    for def in operators() {
        let samples = [DType::F32, DType::I64].into_iter().flat_map(|dtype| Samples::of_operator(def, dtype)).take(6);
        for sample in samples {
            for (i, argument) in sample.arguments.iter().enumerate() {
                let Arg::Attribute(attribute) = argument else { continue };
                for changed in ABSURD.into_iter().flat_map(|value| replaced(attribute, value)) {
                    let mut arguments = sample.arguments.clone();
                    arguments[i] = Arg::Attribute(changed.clone());
                    tried += 1;
                    if catch_unwind(AssertUnwindSafe(|| attempt(def, &arguments))).is_err() {
                        panicked.push(format!("{} with {} = {changed}", def.name, def.params[i].name));
                    }
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    panicked.dedup();
    assert!(tried > 1000, "only {tried} calls were tried");
    assert!(panicked.is_empty(), "{} of {tried} calls panicked:\n{}", panicked.len(), panicked.join("\n"));
}
