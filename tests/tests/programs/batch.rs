//! Batches: small products and sums that are alike become one, without a copy and without other values.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, Stage, compile, stages};
use fulgurite_runtime::executor::JOIN;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{Pass, Trace, parse};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, tracer};

/// Rows of the batch, and the width of every layer.
const ROWS: usize = 32;
const WIDTH: usize = 16;

type Function = fn(Tensor, &[Tensor]) -> Tensor;

/// Input of the network and its parameters: of each layer a weight [WIDTH, WIDTH], a bias [WIDTH], and the weight and
/// bias of a normalization.
fn shapes(layers: usize) -> Vec<Vec<usize>> {
    let layer = [vec![WIDTH, WIDTH], vec![WIDTH], vec![WIDTH], vec![WIDTH]];
    std::iter::once(vec![2, ROWS / 2, WIDTH]).chain((0..layers).flat_map(|_| layer.clone())).collect()
}

/// Layers behind one another.
const DEEP: Function = |x, parameters| {
    let layer = |x: Tensor, own: &[Tensor]| {
        let normal = layer_norm::with(x, vec![WIDTH]).weight(own[2]).bias(own[3]).call();
        x + linear::with(normal, own[0]).bias(own[1]).call().tanh()
    };
    parameters.chunks(4).fold(x, layer).sum()
};

/// The gradients of a network's parameters, for a device of which kernels take a while.
fn acquired(layers: usize, f: Function) -> Trace {
    let metas: Vec<TensorMeta> =
        shapes(layers).into_iter().map(|shape| TensorMeta::new(shape, DType::F32, Device::CPU)).collect();
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    // What is returned has memory of its own, and is not batched.
    let step = |inputs: Vec<Tensor>| {
        let (x, parameters) = (inputs[0], inputs[1..].to_vec());
        let (loss, gradients) = tracer::value_and_grad(parameters.clone(), |parameters| f(x, parameters));
        let updated: Vec<Tensor> = parameters.into_iter().zip(gradients).map(|(old, step)| old - step * 0.1).collect();
        (loss, updated)
    };
    retarget(&trace("step", Target::cpu(), &names, metas, step).unwrap().0, &"cuda:sm_90a".parse().unwrap())
}

fn options() -> Options {
    Options { verify: true, ..Options::default() }
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> Option<&'a Trace> {
    stages.iter().find(|stage| stage.name == name).map(|stage| &stage.trace)
}

fn count(trace: &Trace, name: &str) -> usize {
    trace.block.symbols.iter().filter(|symbol| symbol.name() == name).count()
}

/// What a trace for another target computes on the host, of equal inputs.
fn values(trace: &Trace, layers: usize) -> Vec<Vec<f64>> {
    let inputs = shapes(layers).into_iter().enumerate().map(|(seed, shape)| {
        let wave = |i: usize| ((i * 13 + seed * 7) as f64 * 0.37).sin();
        let values: Vec<f64> = (0..shape.iter().product()).map(wave).collect();
        Array::from_f64(&shape, DType::F32, &values).unwrap()
    });
    let (program, _) = compile(retarget(trace, &Target::cpu()), &options()).unwrap();
    program.run(inputs.collect::<Vec<_>>()).unwrap().iter().map(|array| array.to_f64().unwrap()).collect()
}

fn assert_close(one: &[Vec<f64>], other: &[Vec<f64>]) {
    assert_eq!(one.len(), other.len());
    for (result, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one.len(), other.len());
        let largest = one.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        for (a, b) in one.iter().zip(other) {
            assert!((a - b).abs() <= 1e-5 * largest, "result {result}: {a} and {b}, the largest is {largest}");
        }
    }
}

/// Of a network's layers each product that gives a weight's gradient becomes one of all layers, and so do the sums; the
/// values are those of the program without batches, and nothing is copied for it.
#[test]
fn gradients_of_layers_are_one_product_and_one_sum() {
    let layers = 5;
    let trace = acquired(layers, DEEP);
    let alone = stages(trace.clone(), &Options { batch: false, ..options() }).unwrap();
    let all = stages(trace, &options()).unwrap();
    assert!(stage(&alone, "batch").is_none());
    let (before, batched) = (stage(&all, "cse").unwrap(), stage(&all, "batch").unwrap());
    assert_eq!(count(before, "prims::matmul") - count(batched, "prims::matmul"), layers - 1, "{batched}");
    // Biases, and weights and biases of normalizations.
    assert_eq!(count(before, "prims::sum") - count(batched, "prims::sum"), layers - 1 + 2 * layers - 1, "{batched}");
    assert_close(&values(before, layers), &values(batched, layers));
    let planned = stage(&all, "plan_memory").unwrap();
    assert_eq!(count(planned, "prims::cat"), 3, "{planned}");
    let copied = planned.block.symbols.iter().filter(|line| line.name() == "prims::cat" && line.executor != Some(JOIN));
    assert_eq!(copied.count(), 0, "{planned}");
    assert_eq!(count(planned, "prims::contiguous"), 0, "{planned}");
    for stage in &all {
        let parsed = parse(&stage.trace.to_string()).unwrap();
        assert_eq!(parsed, stage.trace, "{}", stage.name);
        parsed.verify().unwrap();
    }
    insta::assert_snapshot!(acquired_text(4));
}

/// The smallest program that is batched.
fn acquired_text(layers: usize) -> String {
    let plain: Function = |x, parameters| {
        let layer = |x: Tensor, own: &[Tensor]| x + linear(x, own[0]).tanh();
        parameters.chunks(4).fold(x.tanh(), layer).sum()
    };
    let all = stages(acquired(layers, plain), &options()).unwrap();
    stage(&all, "batch").unwrap().to_string()
}

/// Three are left alone, as are the calls of a target whose kernels take no time to speak of.
#[test]
fn few_calls_are_left_as_they_are() {
    let three = stages(acquired(3, DEEP), &options()).unwrap();
    // Six sums of normalizations are enough.
    let batched = stage(&three, "batch").unwrap();
    assert_eq!(count(batched, "prims::matmul"), count(stage(&three, "cse").unwrap(), "prims::matmul"));
    let host = retarget(&acquired(5, DEEP), &Target::cpu());
    assert!(stage(&stages(host, &options()).unwrap(), "batch").is_none());
}

/// A call that depends on another one is in no batch with it; products of the forward pass follow one another.
#[test]
fn calls_that_depend_on_one_another_stay_apart() {
    let chained: Function = |x, parameters| {
        let start = prims::reshape(x.tanh(), vec![ROWS, WIDTH]);
        let gram = |x: Tensor| prims::matmul(prims::permute(x, vec![1, 0]), x.tanh());
        // Four of them side by side, whose results the next four read.
        let first: Vec<Tensor> = parameters.iter().take(4).map(|own| gram(start * own.sum())).collect();
        let next: Vec<Tensor> = first.iter().map(|own| gram(prims::matmul(start, own.tanh()))).collect();
        next.into_iter().reduce(|a, b| a + b).unwrap().sum() + first.into_iter().reduce(|a, b| a * b).unwrap().sum()
    };
    let layers = 1;
    let all = stages(acquired(layers, chained), &options()).unwrap();
    let (before, batched) = (stage(&all, "cse").unwrap(), stage(&all, "batch").unwrap());
    assert!(count(batched, "prims::matmul") < count(before, "prims::matmul"), "{batched}");
    assert_close(&values(before, layers), &values(batched, layers));
}

/// What reads a result before the last call of the batch is moved behind it.
#[test]
fn readers_of_results_follow_the_batch() {
    let read_early: Function = |x, parameters| {
        let x = prims::reshape(x.tanh(), vec![ROWS, WIDTH]);
        let mut sum = x.sum();
        for (number, own) in parameters.chunks(4).enumerate() {
            let scaled = prims::permute(x * (own[0].sum() + number as f64), vec![1, 0]);
            let product = prims::matmul(prims::permute(prims::contiguous(scaled), vec![1, 0]), own[0].tanh());
            sum = sum + product.tanh().sum() * number as f64;
        }
        sum
    };
    let layers = 6;
    let all = stages(acquired(layers, read_early), &options()).unwrap();
    let (before, batched) = (stage(&all, "cse").unwrap(), stage(&all, "batch").unwrap());
    let of_pass = |trace: &Trace| {
        let products = trace.block.symbols.iter().filter(|line| line.name() == "prims::matmul");
        products.filter(|line| line.pass == Pass::Forward).count()
    };
    assert_eq!((of_pass(before), of_pass(batched)), (layers, 1), "{batched}");
    assert_close(&values(before, layers), &values(batched, layers));
}

/// A part of a batch would be copied for the caller.
#[test]
fn gradients_that_are_returned_are_no_parts() {
    let metas: Vec<TensorMeta> =
        shapes(5).into_iter().map(|shape| TensorMeta::new(shape, DType::F32, Device::CPU)).collect();
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let step = |inputs: Vec<Tensor>| {
        let (x, parameters) = (inputs[0], inputs[1..].to_vec());
        tracer::value_and_grad(parameters, |parameters| DEEP(x, parameters))
    };
    let trace = trace("step", Target::cpu(), &names, metas, step).unwrap().0;
    let all = stages(retarget(&trace, &"cuda:sm_90a".parse().unwrap()), &options()).unwrap();
    assert!(stage(&all, "batch").is_none());
}

/// Checkpoints are there to save memory.
#[test]
fn programs_with_checkpoints_are_left_alone() {
    let checkpointed: Function = |x, parameters| {
        let layer = |x: Tensor, own: &[Tensor]| {
            let (weight, bias) = (own[0], own[1]);
            x + tracer::checkpoint("layer", move || linear::with(x.tanh(), weight).bias(bias).call().tanh())
        };
        parameters.chunks(4).fold(x, layer).sum()
    };
    let all = stages(acquired(5, checkpointed), &options()).unwrap();
    assert!(stage(&all, "batch").is_none());
}

/// A program of which the optimizer is given less fuel has fewer batches, each of them right.
#[test]
fn fuel_is_burned_for_each_batch() {
    let layers = 5;
    let trace = acquired(layers, DEEP);
    let expected = values(stage(&stages(trace.clone(), &options()).unwrap(), "cse").unwrap(), layers);
    let mut counts = Vec::new();
    for steps in 0..4 {
        let options = Options { fuel: Fuel::limited(steps), ..options() };
        let all = stages(trace.clone(), &options).unwrap();
        let made = stage(&all, "batch").or(stage(&all, "cse")).unwrap();
        assert_close(&expected, &values(made, layers));
        counts.push(count(made, "prims::matmul") + count(made, "prims::sum"));
    }
    // One of products and two of sums.
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
}

/// Operands that the caller brings would be copied to be adjacent, and large calls fill a device by themselves.
#[test]
fn what_would_be_copied_or_is_large_is_left_alone() {
    assert_eq!(with_operands([32, 16], 5), [false, true]);
    assert_eq!(with_operands([4096, 1024], 5), [false, false]);
}

/// Operands and result of a product are 6 MiB; all batches may keep 512.
#[test]
fn batches_keep_no_more_than_they_may() {
    assert_eq!(with_operands([256, 1024], 85), [false, true]);
    assert_eq!(with_operands([256, 1024], 86), [false, false]);
}

/// Whether so many products are batched whose first operands are inputs, and of which all operands are computed.
fn with_operands(shape: [usize; 2], products: usize) -> [bool; 2] {
    let metas = vec![TensorMeta::new(shape, DType::F32, Device::CPU); 2 * products];
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let product = |a: Tensor, b: Tensor| prims::matmul(prims::permute(a, vec![1, 0]), b).tanh();
    let given =
        |x: Vec<Tensor>| -> Vec<Tensor> { (0..products).map(|at| product(x[at], x[at + products].tanh())).collect() };
    let computed = |x: Vec<Tensor>| -> Vec<Tensor> {
        let x: Vec<Tensor> = x.into_iter().map(Tensor::tanh).collect();
        (0..products).map(|at| product(x[at], x[at + products])).collect()
    };
    let given = trace("f", Target::cpu(), &names, metas.clone(), given).unwrap().0;
    let computed = trace("f", Target::cpu(), &names, metas, computed).unwrap().0;
    [given, computed].map(|trace| {
        let all = stages(retarget(&trace, &"cuda:sm_90a".parse().unwrap()), &options()).unwrap();
        stage(&all, "batch").is_some()
    })
}

/// In mixed precision products of bf16 are batched, and sums of bf16 and of f32 apart.
#[test]
fn products_of_mixed_precision_are_batched() {
    let layers = 5;
    let all = stages(acquired(layers, DEEP), &Options { autocast: Some(DType::BF16), ..options() }).unwrap();
    let (before, batched) = (stage(&all, "cse").unwrap(), stage(&all, "batch").unwrap());
    let of = |trace: &Trace, name: &str, dtype: DType| {
        let lines = trace.block.symbols.iter().filter(|line| line.name() == name);
        lines.filter(|line| line.operands().next().is_some_and(|id| trace.block.meta(id).dtype() == dtype)).count()
    };
    for (name, dtype, fewer) in
        [("prims::matmul", DType::BF16, 4), ("prims::sum", DType::BF16, 4), ("prims::sum", DType::F32, 9)]
    {
        assert_eq!(of(before, name, dtype) - of(batched, name, dtype), fewer, "{name} of {dtype}\n{batched}");
    }
    // On the host both add the same numbers in f32, and round once.
    for (one, other) in values(before, layers).iter().zip(values(batched, layers)) {
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() <= 2f64.powi(-8) * a.abs().max(1e-3)));
    }
}
