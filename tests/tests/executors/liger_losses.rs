//! What the executor `liger` makes of a Llama's loss and of its gated linear units, without the model naming it. No
//! device is needed.

use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{Block, BoundSymbol, Storage, Trace, ValueId};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{DType, Device, Result, Target, Tensor, TensorMeta, tracer};

const EXECUTORS: [&str; 6] = ["liger", "flash", "optim", "cublaslt", "fusion", "cuda"];

fn options(executors: &[&str]) -> Options {
    Options { verify: true, ..Options::default() }.with_executors(executors).unwrap()
}

fn hopper() -> Target {
    "cuda:sm_90a".parse().unwrap()
}

/// The symbols that `liger` runs and whose names begin so.
fn by_liger<'a>(block: &'a Block, name: &str) -> Vec<&'a BoundSymbol> {
    let own = |symbol: &&BoundSymbol| symbol.executor == Some("liger") && symbol.name().starts_with(name);
    block.symbols.iter().filter(own).collect()
}

/// The memory of a value, whatever value it shares it with.
fn memory(block: &Block, id: ValueId) -> Option<Storage> {
    match &block.value(id).storage {
        Some(Storage::Shared(of)) => memory(block, *of),
        other => *other,
    }
}

#[test]
fn a_step_of_llama_reads_its_logits_once_and_writes_the_gradient_over_them() {
    let config = DecoderConfig::named("nano", 61).unwrap();
    let step = train_step_trace(&config, &OptimizerSettings::default(), 2, 8).unwrap();
    let stages = stages(retarget(&step, &hopper()), &options(&EXECUTORS)).unwrap();
    let planned = &stages.last().unwrap().trace;
    let block = &planned.block;
    let [loss] = by_liger(block, "class_losses")[..] else { panic!("{planned}") };
    assert_eq!(loss.name(), "class_losses_with_gradient", "{planned}");
    let logits = loss.operands().next().unwrap();
    assert_eq!(memory(block, logits), memory(block, loss.results[1]), "in place: {planned}");
    // The loss has a cotangent of one, which the gradient is multiplied by where it is.
    let [scaled] = by_liger(block, "liger::scaled")[..] else { panic!("{planned}") };
    assert_eq!(memory(block, logits), memory(block, scaled.results[0]), "in place: {planned}");
    for name in ["liger::swiglu", "liger::swiglu_backward"] {
        let found = by_liger(block, name).into_iter().filter(|symbol| symbol.name() == name).count();
        assert_eq!(found, config.n_layer, "{name}: {planned}");
    }
}

/// A linear layer, a loss, and the gradients, in bf16 for CUDA.
fn step(rows: usize, loss: impl Fn(Tensor, Tensor, Tensor) -> Tensor) -> Result<Trace> {
    traced(rows, loss, |_, gradient| gradient)
}

/// The same with an update of the weight in the place of its gradient.
fn update(rows: usize, loss: impl Fn(Tensor, Tensor, Tensor) -> Tensor) -> Result<Trace> {
    traced(rows, loss, |weight, gradient| weight - gradient * 0.01)
}

fn traced(
    rows: usize,
    loss: impl Fn(Tensor, Tensor, Tensor) -> Tensor,
    result: impl Fn(Tensor, Tensor) -> Tensor,
) -> Result<Trace> {
    let (width, classes) = (4096, 128_256);
    let meta = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::new("cuda", 0));
    let metas =
        vec![meta(&[rows, width], DType::BF16), meta(&[classes, width], DType::BF16), meta(&[rows], DType::I64)];
    let (trace, _) = trace("step", hopper(), &Names::default(), metas, |x: Vec<Tensor>| {
        let (loss, (input, weight)) =
            tracer::value_and_grad((x[0], x[1]), |(input, weight)| loss(*input, *weight, x[2]));
        vec![loss, result(x[1], weight), input]
    })?;
    Ok(trace)
}

#[test]
fn a_fused_linear_cross_entropy_adds_to_one_gradient_of_the_weight() {
    const GIB: f64 = (1 << 30) as f64;
    let peak = |trace: Trace| {
        let (program, _) = compile(trace, &Options { verify: false, ..options(&EXECUTORS) }).unwrap();
        program.memory().peak() as f64 / GIB
    };
    let fused = step(32_768, |input, weight, target| fused_linear_cross_entropy(input, weight, target)).unwrap();
    let stages = stages(fused.clone(), &options(&EXECUTORS)).unwrap();
    let block = &stages.last().unwrap().trace.block;
    let added: Vec<_> = block.symbols.iter().filter(|symbol| symbol.name() == "accumulate_weight_gradient").collect();
    assert_eq!(added.len(), 15, "{}", stages.last().unwrap().trace);
    for symbol in added {
        let total = symbol.operands().next().unwrap();
        assert_eq!(symbol.executor, Some("cublaslt"));
        assert_eq!(memory(block, total), memory(block, symbol.results[0]), "in place");
    }
    let apart = step(32_768, |input, weight, target| cross_entropy(linear(input, weight), target)).unwrap();
    let (fused, apart) = (peak(fused), peak(apart));
    println!("{fused:.2} GiB, {apart:.2} GiB in two operators");
    // The logits of all rows have 7.83 GiB, the sum of the weight's gradients 0.98.
    assert!(fused < 0.5 * apart && apart > 7.83, "{fused} GiB, {apart} GiB in two operators");
    // Of few rows the operands and the gradients are most of it: 0.98 GiB each for the weight. In a step the gradient
    // is read by the weight's update, which is made in place of the weight, the result beside it.
    let few = |sums: Option<DType>| {
        let loss =
            |input, weight, target| fused_linear_cross_entropy::with(input, weight, target).accum_dtype(sums).call();
        let mut trace = update(8192, loss).unwrap();
        trace.inputs[1].donated = true;
        peak(trace)
    };
    let (narrow, wide) = (few(None), few(Some(DType::F32)));
    println!("8192 rows: {narrow:.2} GiB with sums in bf16, {wide:.2} GiB in f32");
    assert!(narrow < 3.0 && wide > narrow + 0.9, "{narrow} GiB, {wide} GiB with sums in f32");
}
