//! What `unsloth` makes of layers of a Llama: results over their operands in the memory plan, nothing for a frozen
//! weight, nothing kept of a gated linear unit. No device is needed.

use std::collections::BTreeSet;

use fulgurite_executors as _;
use fulgurite_ops::nn::Approximate;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{Block, BoundSymbol, Storage, Trace, ValueId};
use fulgurite_runtime::{DType, Device, Target, Tensor, TensorMeta, tracer};

const EXECUTORS: [&str; 6] = ["unsloth", "flash", "optim", "cublaslt", "fusion", "cuda"];

/// The last trace of a function of tensors of these shapes, in bf16 for a device; the first `donated` are donated.
fn planned(shapes: &[&[usize]], donated: usize, f: impl Fn(&[Tensor]) -> Vec<Tensor>) -> Trace {
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let metas: Vec<TensorMeta> =
        shapes.iter().map(|shape| TensorMeta::new(*shape, DType::BF16, Device::new("cuda", 0))).collect();
    let (mut trace, _) = trace("layers", target, &Names::default(), metas, |x: Vec<Tensor>| f(&x)).unwrap();
    trace.inputs[..donated].iter_mut().for_each(|input| input.donated = true);
    let options = Options { verify: true, ..Options::default() }.with_executors(&EXECUTORS).unwrap();
    stages(trace, &options).unwrap().pop().unwrap().trace
}

fn calls<'a>(block: &'a Block, name: &str) -> Vec<&'a BoundSymbol> {
    block.symbols.iter().filter(|symbol| symbol.name() == name).collect()
}

/// The value whose memory a value shares.
fn owner(block: &Block, id: ValueId) -> ValueId {
    match block.value(id).storage {
        Some(Storage::Shared(of)) => owner(block, of),
        _ => id,
    }
}

#[test]
fn donated_queries_and_keys_are_rotated_where_they_are() {
    let shapes: [&[usize]; 4] = [&[2, 4, 16, 64], &[2, 2, 16, 64], &[16, 64], &[16, 64]];
    let rotated = |x: &[Tensor]| {
        let (q, k) = rope(x[0], x[1], x[2], x[3]);
        vec![q, k]
    };
    for (donated, in_place) in [(2, true), (0, false)] {
        let trace = planned(&shapes, donated, rotated);
        let block = &trace.block;
        let [call] = calls(block, "liger::rope")[..] else { panic!("{trace}") };
        for (result, input) in call.results.iter().zip(&block.parameters) {
            assert_eq!(owner(block, *result) == *input, in_place, "{donated} donated: {trace}");
        }
    }
}

#[test]
fn a_frozen_weight_of_a_norm_has_no_gradient_in_the_trace() {
    let shapes: [&[usize]; 2] = [&[128, 256], &[256]];
    let loss = |x: Tensor, weight: Tensor| rms_norm::with(x, [256]).weight(weight).eps(1e-5).call().sum();
    let frozen = planned(&shapes, 0, |x| {
        let (loss, gradient) = tracer::value_and_grad(x[0], |input| loss(*input, x[1]));
        vec![loss, gradient]
    });
    let [call] = calls(&frozen.block, "liger::rms_norm_input_gradient")[..] else { panic!("{frozen}") };
    let row = |id: &ValueId| frozen.block.meta(*id).shape() == [256];
    assert!(call.results.len() == 1 && calls(&frozen.block, "liger::rms_norm_backward").is_empty(), "{frozen}");
    let made = frozen.block.symbols.iter().flat_map(|symbol| &symbol.results).filter(|id| row(id)).count();
    assert_eq!(made, 0, "a row of numbers is computed: {frozen}");

    let trained = planned(&shapes, 0, |x| {
        let (loss, (input, weight)) = tracer::value_and_grad((x[0], x[1]), |(input, weight)| loss(*input, *weight));
        vec![loss, input, weight]
    });
    assert_eq!(calls(&trained.block, "liger::rms_norm_backward").len(), 1, "{trained}");
    assert!(calls(&trained.block, "liger::rms_norm_input_gradient").is_empty(), "{trained}");
}

#[test]
fn a_gated_unit_is_computed_again_beside_its_gradients_over_their_operands() {
    // Gate and up are products, so that nothing else holds their memory.
    let shapes: [&[usize]; 4] = [&[128, 64], &[96, 64], &[96, 64], &[32, 96]];
    let tanh = |gate, up| geglu::with(gate, up).approximate(Approximate::Tanh).call();
    let units: [(&str, fn(Tensor, Tensor) -> Tensor); 3] =
        [("liger::swiglu", swiglu), ("liger::geglu", geglu), ("liger::geglu", tanh)];
    for (kernel, unit) in units {
        let trace = planned(&shapes, 0, |x| {
            let weights = (x[1], x[2], x[3]);
            let (loss, (gate, up, down)) = tracer::value_and_grad(weights, |(gate, up, down)| {
                let unit = unit(linear(x[0], *gate), linear(x[0], *up));
                let out = linear(unit, *down);
                (out * out).sum()
            });
            vec![loss, gate, up, down]
        });
        let block = &trace.block;
        let [call] = calls(block, "unsloth::gated_backward")[..] else { panic!("{trace}") };
        let places = |ids: &mut dyn Iterator<Item = ValueId>| -> BTreeSet<String> {
            ids.map(|id| format!("{:?}", block.value(owner(block, id)).storage)).collect()
        };
        let [operands, results] = [places(&mut call.operands()), places(&mut call.results.iter().copied())];
        assert_eq!((operands.len(), &operands), (3, &results), "in place: {trace}");
        // Forward has the unit by a kernel, whose result is not what the weight's gradient reads.
        let forward = calls(block, kernel);
        assert_eq!(forward.len(), 1, "{trace}");
        let unit = forward[0].results[0];
        let reads = |symbol: &&BoundSymbol| symbol.operator().is_some() && symbol.operands().any(|id| id == unit);
        assert_eq!(block.symbols.iter().filter(reads).count(), 1, "{trace}");
    }
}

#[test]
fn few_rows_are_left_to_the_kernels_for_few_rows() {
    let trace = planned(&[&[4, 96], &[4, 96], &[32, 96]], 0, |x| vec![linear(swiglu(x[0], x[1]), x[2])]);
    assert!(calls(&trace.block, "liger::swiglu").len() == 1, "{trace}");
    let [linear] = calls(&trace.block, "linear")[..] else { panic!("{trace}") };
    assert_eq!(linear.executor, Some("cublaslt"), "{trace}");
}
