//! What rewrites after autodiff make of a training step of GPT-2: products that do more as they are stored, an
//! embedding's gradient that is added where it belongs, fewer commands, less memory. No device is needed.

use std::collections::BTreeMap;

use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::{loss_trace, train_step_trace};
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, Stage, compile, stages};
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{Block, Trace};
use fulgurite_runtime::tracer::value_and_grad;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};

const LAYERS: usize = 2;
const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: LAYERS, heads: 2, channels: 16, ..GptConfig::GPT2 };
const DEFAULT: [&str; 4] = ["optim", "cublaslt", "fusion", "cuda"];
const LLMC: [&str; 5] = ["llmc", "optim", "cublaslt", "fusion", "cuda"];
const TF32: [&str; 5] = ["tf32", "optim", "cublaslt", "fusion", "cuda"];

fn on_cuda(trace: &Trace) -> Trace {
    retarget(trace, &"cuda:sm_90a".parse().unwrap())
}

fn step(config: &GptConfig, batch: usize, context: usize) -> Trace {
    let settings = OptimizerSettings { clip: Some(1.0), ..OptimizerSettings::default() };
    on_cuda(&train_step_trace(config, &settings, batch, context).unwrap())
}

fn options(executors: &[&str]) -> Options {
    Options { verify: true, ..Options::default() }.with_executors(executors).unwrap()
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> &'a Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap().trace
}

/// How often each operator of the namespace `cublaslt` is called, and by which executor it is run.
fn products(block: &Block) -> BTreeMap<(&str, Option<&str>), usize> {
    let mut called = BTreeMap::new();
    for symbol in block.symbols.iter().filter(|symbol| symbol.name().starts_with("cublaslt::")) {
        *called.entry((symbol.name(), symbol.executor)).or_default() += 1;
    }
    called
}

#[test]
fn a_step_consists_of_products_with_epilogues() {
    for (executors, owner) in [(DEFAULT.to_vec(), "cublaslt"), (TF32.to_vec(), "tf32")] {
        // Those of few rows would be batched.
        let options = Options { batch: false, ..options(&executors) };
        let stages = stages(step(&CONFIG, 2, 8), &options).unwrap();
        let mut expected = BTreeMap::from([
            (("cublaslt::linear_residual", Some(owner)), 2 * LAYERS),
            (("cublaslt::scaled_matmul", Some(owner)), LAYERS),
            (("cublaslt::weight_gradients", Some(owner)), 4 * LAYERS),
        ]);
        // The library's GELU is not IEEE f32.
        if owner == "tf32" {
            expected.insert(("cublaslt::linear_gelu_aux", Some(owner)), LAYERS);
            expected.insert(("cublaslt::matmul_gelu_backward", Some(owner)), LAYERS);
        }
        let claimed = stage(&stages, "claim");
        assert_eq!(products(&claimed.block), expected, "{claimed}");
    }
}

#[test]
fn what_an_earlier_executor_takes_stays_its_own() {
    let stages = stages(on_cuda(&loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap()), &options(&LLMC)).unwrap();
    let late = stage(&stages, "late_rewrite");
    let gelu = late.block.symbols.iter().find(|symbol| symbol.name() == "gelu").unwrap();
    let reason = "linear_then_gelu: gelu is taken by llmc";
    assert!(gelu.refusals.iter().any(|refusal| refusal.executor == "cublaslt" && refusal.reason == reason), "{late}");
    let claimed = stage(&stages, "claim");
    assert!(claimed.block.symbols.iter().any(|symbol| symbol.name() == "llmc::gelu"), "{claimed}");
    // Without llmc nobody reads what GELU is applied to, since nothing is differentiated.
    let stages = self::stages(on_cuda(&loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap()), &options(&TF32)).unwrap();
    let claimed = products(&stage(&stages, "claim").block).into_iter().map(|((name, _), n)| (name, n));
    let expected = [("cublaslt::linear_gelu", LAYERS), ("cublaslt::linear_residual", 2 * LAYERS)];
    assert_eq!(claimed.collect::<Vec<_>>(), expected);
}

#[test]
fn shapes_that_the_library_does_not_take_stay_as_they_are() {
    // GELU is applied to 4 * 9 columns, which is no multiple of 8.
    let config = GptConfig { channels: 9, heads: 3, ..CONFIG };
    let stages = stages(step(&config, 2, 8), &options(&TF32)).unwrap();
    let late = stage(&stages, "late_rewrite");
    let gelu = late.block.symbols.iter().find(|symbol| symbol.name() == "gelu").unwrap();
    assert!(gelu.refusals.iter().any(|refusal| refusal.reason.contains("rows of a multiple of 8")), "{late}");
    assert!(!products(&late.block).keys().any(|(name, _)| name.contains("gelu")), "{late}");
}

/// A product beside which the sums of a bias's gradient are computed, or not, where a region does that in less time.
#[test]
fn sums_of_biases_are_beside_the_product_where_no_region_takes_them() {
    let cuda = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::new("cuda", 0));
    for (dtype, shape, outputs, executor, beside) in [
        (DType::BF16, &[4, 8][..], 768, "cublaslt", true),
        (DType::BF16, &[16, 64, 8], 768, "cublaslt", false),
        // Narrower and wider than regions take them.
        (DType::BF16, &[16, 64, 8], 64, "cublaslt", true),
        (DType::BF16, &[16, 64, 8], 8200, "cublaslt", true),
        (DType::F32, &[4, 8], 768, "tf32", true),
        (DType::F32, &[16, 64, 8], 768, "tf32", false),
        // More dimensions than sequences have.
        (DType::F32, &[2, 3, 4, 8], 768, "tf32", true),
    ] {
        let inputs = (cuda(shape, dtype), cuda(&[outputs, 8], dtype), cuda(&[outputs], dtype));
        let gradients = |(x, w, b): (Tensor, Tensor, Tensor)| {
            value_and_grad((x, w, b), |(x, w, b)| {
                let out = linear::with(*x, *w).bias(*b).call();
                (out * out).sum()
            })
        };
        let target = "cuda:sm_90a".parse().unwrap();
        let trace = trace("linear", target, &Names::default(), inputs, gradients).unwrap().0;
        let list = if executor == "tf32" { &TF32[..] } else { &DEFAULT };
        let stages = stages(trace, &options(list)).unwrap();
        let late = stage(&stages, "late_rewrite");
        let found = products(&late.block).keys().any(|(name, _)| *name == "cublaslt::weight_gradients");
        assert_eq!(found, beside, "{dtype} {shape:?} {outputs}\n{late}");
    }
}

/// The slope of GELU is part of a product of few rows, and of a region where there are many.
#[test]
fn the_slope_of_gelu_is_apart_where_there_are_many_rows() {
    for (rows, beside) in [(4, true), (1024, false)] {
        let cuda = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::new("cuda", 0));
        let inputs = (cuda(&[rows, 8]), cuda(&[16, 8]), cuda(&[8, 16]));
        let gradients = |(x, first, second): (Tensor, Tensor, Tensor)| {
            value_and_grad((x, first, second), |(x, first, second)| {
                let inner = gelu::with(linear(*x, *first)).approximate(Approximate::Tanh).call();
                let out = linear(inner, *second);
                (out * out).sum()
            })
        };
        let target = "cuda:sm_90a".parse().unwrap();
        let trace = trace("mlp", target, &Names::default(), inputs, gradients).unwrap().0;
        let stages = stages(trace, &options(&TF32)).unwrap();
        let late = stage(&stages, "late_rewrite");
        let found = products(&late.block).keys().any(|(name, _)| *name == "cublaslt::matmul_gelu_backward");
        assert_eq!(found, beside, "{rows} rows\n{late}");
    }
}

#[test]
fn fuel_is_counted() {
    let without = Options { fuel: Fuel::limited(0), ..options(&DEFAULT) };
    let stages = stages(step(&CONFIG, 2, 8), &without).unwrap();
    assert_eq!(products(&stage(&stages, "late_rewrite").block), BTreeMap::new());
}

#[test]
fn the_gradient_of_an_embedding_is_added_where_it_belongs() {
    let stages = stages(step(&CONFIG, 2, 8), &options(&DEFAULT)).unwrap();
    let planned = &stages.last().unwrap().trace;
    let block = &planned.block;
    let table = |name: &str| {
        let of =
            |id: &fulgurite_runtime::trace::ValueId| block.meta(*id).shape() == [CONFIG.vocabulary, CONFIG.channels];
        block.symbols.iter().filter(|symbol| symbol.name() == name && symbol.results.iter().any(of)).collect::<Vec<_>>()
    };
    assert!(table("prims::full").is_empty() && table("prims::add").is_empty(), "{planned}");
    let [added] = &table("prims::index_add")[..] else { panic!("{planned}") };
    let total = added.operands().next().unwrap();
    assert_eq!(block.value(total).storage, block.value(added.results[0]).storage, "in place: {planned}");
}

/// The step that is measured on a device: 124M parameters, 4 sequences of 64 tokens.
#[test]
fn memory_and_commands_of_a_step_of_124m_parameters() {
    const MIB: f64 = (1 << 20) as f64;
    let config = GptConfig { context: 1024, ..GptConfig::named("124M", 50_304).unwrap() };
    let trace = step(&config, 4, 64);
    for (executors, most) in [(&DEFAULT[..], 660), (&LLMC, 590), (&TF32, 660)] {
        let of = |rewrites| {
            let options = Options { rewrites, verify: false, ..options(executors) };
            let (program, _) = compile(trace.clone(), &options).unwrap();
            (program.memory().peak() as f64 / MIB, program.counts().unwrap().commands)
        };
        let ((plain_peak, plain), (peak, commands)) = (of(Some(Vec::new())), of(None));
        println!(
            "{executors:?}: {peak:.0} MiB, {commands} commands; without rewrites {plain_peak:.0} MiB, {plain} commands"
        );
        // Batches keep the operands of gradients of weights until the last layer's are there: 42 MiB of f32.
        assert!(peak < 2190.0, "{executors:?}: {peak} MiB");
        assert!(commands < plain && commands <= most, "{executors:?}: {commands} commands, {plain} without rewrites");
    }
}
