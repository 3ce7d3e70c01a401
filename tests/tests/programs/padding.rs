//! Products of odd extents on CUDA: operands get larger, what leads from one product to the next is done on whole rows,
//! and results are the same.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{BoundSymbol, Trace, ValueId};
use fulgurite_runtime::{Array, DType, Device, Result, Target, Tensor, TensorMeta, jit};

use crate::device;

type Inputs<T> = (T, T, T);

/// The loss of a language model's last layer and its gradients: hidden states, weights of the classes, targets.
fn step((hidden, weight, target): Inputs<Tensor>) -> (Tensor, (Tensor, Tensor)) {
    value_and_grad((hidden, weight), |(hidden, weight)| {
        let logits = linear(*hidden, *weight);
        cross_entropy(reshape(logits, [target.size(0) as i64, weight.size(0) as i64]), target)
    })
}

fn metas(dtype: DType, device: Device) -> Inputs<TensorMeta> {
    (
        TensorMeta::new([4, 512, 768], dtype, device),
        TensorMeta::new([50_257, 768], dtype, device),
        TensorMeta::new([2048], DType::I64, device),
    )
}

/// The step for a device that need not be there.
fn traced(dtype: DType) -> Trace {
    let target: Target = "cuda:sm_90a".parse().unwrap();
    trace("step", target, &Names::default(), metas(dtype, Device::new("cuda", 0)), step).unwrap().0
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> Option<&'a Trace> {
    stages.iter().find(|stage| stage.name == name).map(|stage| &stage.trace)
}

fn products(trace: &Trace) -> Vec<&BoundSymbol> {
    trace.block.symbols.iter().filter(|symbol| matches!(symbol.executor, Some("cublaslt" | "tf32"))).collect()
}

#[test]
fn logits_of_odd_classes_are_whole_rows_from_product_to_product() {
    let stages = stages(traced(DType::BF16), &Options::default()).unwrap();
    let padded = stage(&stages, "pad").expect("the classes do not fit the hardware");
    for symbol in products(padded) {
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            let shape = padded.block.meta(id).shape();
            assert!(shape.iter().all(|extent| extent % 8 == 0 || *extent == 4), "{:?}: {shape:?}", symbol.operator());
        }
    }
    assert_eq!(products(padded).len(), 3);
    // The weights are copied into larger ones; no logits, and no gradient of them.
    let planned = &stages.last().unwrap().trace;
    let copies = planned.block.symbols.iter().filter(|symbol| matches!(symbol.name(), "prims::pad" | "prims::cat"));
    let copied: Vec<&[usize]> = copies.map(|symbol| planned.block.meta(symbol.results[0]).shape()).collect();
    assert!(!copied.is_empty() && copied.iter().all(|shape| **shape == [50_304, 768]), "{copied:?}");
    // Rows of all logits are gone through by one region, in whole vectors.
    let wide = |symbol: &&BoundSymbol| {
        symbol.results.iter().any(|id| planned.block.meta(*id).shape() == [2048, 50_304]) && symbol.body.is_some()
    };
    assert_eq!(planned.block.symbols.iter().filter(wide).count(), 1, "{planned}");
    let narrow = |id: &ValueId| planned.block.meta(*id).shape() == [2048, 50_257];
    let written = planned.block.symbols.iter().filter(|symbol| symbol.executor != Some("view"));
    assert!(!written.flat_map(|symbol| &symbol.results).any(narrow), "{planned}");
}

/// Weights that are computed, as by autocast, are written where the rows of zeros follow: nothing copies them, and the
/// backward pass reads the same.
#[test]
fn weights_that_are_converted_are_converted_into_the_larger_ones() {
    let options = Options { autocast: Some(DType::BF16), ..Options::default() };
    let stages = stages(traced(DType::F32), &options).unwrap();
    let planned = &stages.last().unwrap().trace;
    let larger: Vec<&BoundSymbol> = (planned.block.symbols.iter())
        .filter(|symbol| matches!(symbol.name(), "prims::pad" | "prims::cat"))
        .filter(|symbol| planned.block.meta(symbol.results[0]).shape() == [50_304, 768])
        .collect();
    assert_eq!(larger.iter().map(|symbol| symbol.executor).collect::<Vec<_>>(), [Some("join")], "{planned}");
    let converted = |symbol: &&BoundSymbol| {
        symbol.results.iter().any(|id| {
            let meta = planned.block.meta(*id);
            meta.shape() == [50_257, 768] && meta.dtype() == DType::BF16 && symbol.executor != Some("view")
        })
    };
    assert_eq!(planned.block.symbols.iter().filter(converted).count(), 1, "{planned}");
}

#[test]
fn what_fits_and_what_is_small_is_left_alone() {
    let no = Options { pad: false, ..Options::default() };
    assert!(stage(&stages(traced(DType::BF16), &no).unwrap(), "pad").is_none());
    // Products in IEEE arithmetic gain nothing.
    assert!(stage(&stages(traced(DType::F32), &Options::default()).unwrap(), "pad").is_none());
    let rounded = on_cuda(&["tf32", "default"]);
    assert!(stage(&stages(traced(DType::F32), &rounded).unwrap(), "pad").is_some());
}

fn on_cuda(executors: &[&str]) -> Options {
    Options { device: Some(Device::new("cuda", 0)), ..Options::default() }.with_executors(executors).unwrap()
}

/// Loss and gradients on the device.
fn results(dtype: DType, options: Options) -> Result<Vec<Vec<f64>>> {
    let number = |i: usize, seed: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 2003.0 - 0.5;
    let (hidden, weight, target) = metas(dtype, Device::CPU);
    let floats = |meta: &TensorMeta, seed, scale: f64| {
        let values: Vec<f64> = (0..meta.len()).map(|i| number(i, seed) * scale).collect();
        Array::from_f64(meta.shape(), dtype, &values)
    };
    // Some targets are ignored, and one is the last class.
    let class = |i: usize| if i.is_multiple_of(5) { -100 } else { (i * 977 % 50_256) as i64 };
    let mut targets: Vec<i64> = (0..target.len()).map(class).collect();
    targets[1] = 50_256;
    let inputs = (floats(&hidden, 1, 2.0)?, floats(&weight, 2, 0.5)?, Array::new([2048], &targets)?);
    let (loss, (d_hidden, d_weight)) = jit(step).options(options).call(inputs)?;
    [loss, d_hidden, d_weight].iter().map(|array| array.to_host()?.to_f64()).collect()
}

#[test]
fn results_on_a_device_are_those_without_padding() {
    if device::cuda().is_none() {
        return;
    }
    for (dtype, names, tolerance) in [
        (DType::BF16, &["default"][..], 0.02),
        (DType::F16, &["default"], 0.004),
        (DType::F32, &["tf32", "default"], 0.002),
    ] {
        let [padded, plain] = [true, false].map(|pad| results(dtype, Options { pad, ..on_cuda(names) }).unwrap());
        for (n, (padded, plain)) in padded.iter().zip(&plain).enumerate() {
            let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
            let apart = norm(&mut padded.iter().zip(plain).map(|(a, b)| a - b));
            let all = norm(&mut plain.iter().copied());
            assert!(apart <= tolerance * all, "{dtype}, result {n}: {apart} of {all}");
        }
    }
}
