//! Products in TF32 whose operands are both laid out across what is summed: one of them is transposed first where that
//! saves time. Without a device: which programs do that, and that the kernel compiles.

use std::sync::Arc;

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::device::Source;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, KernelCache, nvrtc};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, jit};

use crate::device;

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

const LISTS: [&[&str]; 2] = [&["tf32", "cuda"], &["cublaslt", "cuda"]];

/// The gradient of a linear layer's weight: gradients of its results [rows, outputs], its inputs [rows, inputs].
fn weight_gradient((gradient, input): (Tensor, Tensor)) -> Tensor {
    matmul(permute(gradient, [1, 0]), input)
}

/// The same from columns of wider tensors, whose rows are further apart than they are long.
fn of_columns((gradient, input): (Tensor, Tensor)) -> Tensor {
    let first = |tensor: Tensor, least: usize| narrow(tensor, 1, 4, tensor.size(1) - least);
    weight_gradient((first(gradient, 8), first(input, 5)))
}

/// The gradient added to a total of earlier ones.
fn accumulated((total, (gradient, input)): (Tensor, (Tensor, Tensor))) -> Tensor {
    fulgurite_ops::nn::accumulate_weight_gradient(total, gradient, input)
}

fn operands(rows: usize, outputs: usize, inputs: usize) -> (TensorMeta, TensorMeta) {
    let of = |columns: usize| TensorMeta::new([rows, columns], DType::F32, Device::CPU);
    (of(outputs), of(inputs))
}

/// The sources of the kernel that transposes, of a program for an architecture by executors.
fn kernels(architecture: &str, executors: &[&str], metas: (TensorMeta, TensorMeta)) -> Vec<Arc<Source>> {
    let (traced, _) = trace("gradient", Target::cpu(), &Names::default(), metas, weight_gradient).unwrap();
    let options = Options::default().with_executors(executors).unwrap();
    let target = format!("cuda:{architecture}").parse().unwrap();
    let (program, _) = compile(retarget(&traced, &target), &options).unwrap();
    program.sources().into_iter().filter(|source| &*source.name == "turn.cu").collect()
}

#[test]
fn operands_of_large_products_in_tf32_are_transposed_and_the_kernel_compiles() {
    let large = || operands(4096, 3072, 768);
    let mut found = kernels("sm_90a", LISTS[0], large());
    assert_eq!(found.len(), 1);
    assert_eq!(kernels("sm_90a", LISTS[1], large()).len(), 0, "exact f32");
    assert_eq!(kernels("sm_80", LISTS[0], large()).len(), 0, "its tensor cores read both ways");
    assert_eq!(kernels("sm_90a", LISTS[0], operands(64, 3072, 768)).len(), 0, "few terms");
    // Rows that are no whole packs.
    found.extend(kernels("sm_90a", LISTS[0], operands(4096, 3072, 770)));
    assert_eq!(found.len(), 2);
    if let Err(error) = nvrtc::version() {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("skipped: {error}");
        return;
    }
    for source in found {
        let (name, source, options) = (&*source.name, &*source.text, &source.options[..]);
        let cubin = KernelCache::global().compile(&Compilation { name, source, architecture: "sm_90a", options });
        let cubin = cubin.unwrap_or_else(|error| panic!("{error}"));
        assert!(cubin.kernels().iter().all(|kernel| !kernel.uses_local_memory()), "{:?}", cubin.kernels());
    }
}

/// Numbers whose products cancel, so that an element in the wrong place shows.
fn values(rows: usize, columns: usize, seed: u64) -> Array {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    let all: Vec<f32> = (0..rows * columns).map(|_| next()).collect();
    Array::new([rows, columns], &all).unwrap()
}

/// The norm of the difference, of the norm of what is expected.
fn error(actual: &Array, expected: &Array) -> f64 {
    assert_eq!(actual.shape(), expected.shape());
    let (actual, expected) = (actual.to_f64().unwrap(), expected.to_f64().unwrap());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut actual.iter().zip(&expected).map(|(a, e)| a - e)) / norm(&mut expected.iter().copied())
}

/// On a device: the same products as in exact f32 there, but for the roundings of operands to 10 bits (2.9e-4 of the
/// norm, both together 4e-4; bf16 has 3e-3); and the same bits each time.
#[test]
fn products_of_transposed_operands_are_those_of_the_operands() {
    let Some(device) = device::cuda() else { return };
    for (rows, outputs, inputs) in [(4096, 768, 3072), (4096, 2304, 768), (1028, 2050, 1999), (2052, 1283, 1091)] {
        let gradient = values(rows, outputs, 1).to_device(device).unwrap();
        let input = values(rows, inputs, 2).to_device(device).unwrap();
        let total = values(outputs, inputs, 3).to_device(device).unwrap();
        let run = |executors: &[&str]| -> [Array; 3] {
            let options = Options::default().with_executors(executors).unwrap();
            let operands = (gradient.clone(), input.clone());
            [
                jit(weight_gradient).options(options.clone()).call(operands.clone()),
                jit(of_columns).options(options.clone()).call(operands.clone()),
                jit(accumulated).options(options).call((total.clone(), operands)),
            ]
            .map(|result| result.unwrap().to_host().unwrap())
        };
        let (rounded, again, exact) = (run(LISTS[0]), run(LISTS[0]), run(LISTS[1]));
        for (what, ((rounded, again), exact)) in
            ["plain", "columns", "added"].iter().zip(rounded.iter().zip(&again).zip(&exact))
        {
            let off = error(rounded, exact);
            assert!(off < 8e-4, "{what} of {rows} rows, {outputs} x {inputs}: off by {off:e}");
            // Operands that were not rounded are not what this is about.
            assert!(off > 1e-5, "{what}: off by {off:e}, as if it were exact");
            let same = rounded.to_f64().unwrap() == again.to_f64().unwrap();
            assert!(same, "{what} of {rows} rows, {outputs} x {inputs}: other bits the second time");
        }
    }
}
