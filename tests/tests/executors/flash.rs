//! What `flash` and `flash_tf32` take of attention, what they leave to the executors behind them, and what is kept. No
//! device is needed.

use std::collections::BTreeMap;

use fulgurite_models::precision::Precision;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::executor::{default_executors, find_executor};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::autodiff::{autodiff, vjp};
use fulgurite_runtime::{DType, Device, Target, Tensor, TensorMeta, tracer};

const LENGTH: usize = 40;
const OTHER: usize = 50;

/// Attention of queries [2, heads, LENGTH, width] to keys and values [2, shared, OTHER, width], and its gradients.
fn attention(
    dtype: DType,
    [heads, shared]: [usize; 2],
    width: usize,
    f: impl Fn(Tensor, Tensor, Tensor, Tensor) -> Tensor,
) -> Trace {
    let meta = |shape: [usize; 4]| TensorMeta::new(shape, dtype, Device::new("cuda", 0));
    let inputs = (
        meta([2, heads, LENGTH, width]),
        meta([2, shared, OTHER, width]),
        meta([2, shared, OTHER, width]),
        meta([1, 1, LENGTH, OTHER]),
    );
    let step = |(q, k, v, mask): (Tensor, Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((q, k, v), |(q, k, v)| f(*q, *k, *v, mask).sum())
    };
    let target: Target = "cuda:sm_90a".parse().unwrap();
    trace("attention", target, &Names::default(), inputs, step).unwrap().0
}

fn stages_of(trace: Trace, rounded: bool) -> Vec<Stage> {
    let precision = if rounded { Precision::Tf32 } else { Precision::F32True };
    let executors = Some(default_executors("cuda"));
    let options = Options { verify: true, executors, device: Some(Device::new("cuda", 0)), ..Options::default() };
    stages(trace, &precision.compile_options(&options).unwrap()).unwrap()
}

fn named<'a>(stages: &'a [Stage], name: &str) -> &'a Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap().trace
}

/// How often each symbol of `flash` is called.
fn called(stages: &[Stage]) -> BTreeMap<String, usize> {
    let mut called = BTreeMap::new();
    for symbol in named(stages, "claim").block.symbols.iter().filter(|symbol| symbol.executor == Some("flash")) {
        *called.entry(symbol.name().to_owned()).or_default() += 1;
    }
    called
}

fn plain(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor {
    scaled_dot_product_attention::with(q, k, v).enable_gqa(true).is_causal(true).call()
}

#[test]
fn attention_is_one_kernel_forward_and_one_backward_and_scores_are_never_written() {
    for (dtype, rounded) in [(DType::BF16, false), (DType::F16, false), (DType::F32, true)] {
        for heads in [[3, 3], [4, 2], [4, 1]] {
            let stages = stages_of(attention(dtype, heads, 24, plain), rounded);
            let expected = [("flash::attention", 1), ("flash::attention_backward", 1)];
            assert_eq!(called(&stages), expected.map(|(name, count)| (name.to_owned(), count)).into(), "{dtype}");
            let last = &stages.last().unwrap().trace.block;
            for symbol in last.symbols.iter() {
                for id in &symbol.results {
                    let meta = last.meta(*id);
                    assert!(meta.len() < 2 * heads[0] * LENGTH * OTHER, "{} is {meta}", last.value(*id).name);
                }
            }
        }
    }
}

type Call = fn(Tensor, Tensor, Tensor, Tensor) -> Tensor;

fn dropped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor {
    let generator = fulgurite_ops::prims::full([2], 7_i64, DType::I64, "cuda:0");
    scaled_dot_product_attention::with(q, k, v).attn_mask(mask).dropout_p(0.5).generator(generator).call()
}

fn windowed(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor {
    let lengths = fulgurite_ops::prims::full([2], 7_i64, DType::I64, "cuda:0");
    windowed_attention::with(q, k, v).lengths(lengths).is_causal(true).window(16).cap(30.0).call()
}

#[test]
fn masks_dropout_windows_caps_and_lengths_are_of_the_same_kernels() {
    let seen: Call = |q, k, v, mask| scaled_dot_product_attention::with(q, k, v).attn_mask(gt(mask, 0.0)).call();
    let added: Call = |q, k, v, mask| scaled_dot_product_attention::with(q, k, v).attn_mask(mask).call();
    for call in [seen, added, dropped, windowed] {
        for (dtype, rounded) in [(DType::BF16, false), (DType::F16, false), (DType::F32, true)] {
            let stages = stages_of(attention(dtype, [3, 3], 24, call), rounded);
            let expected = [("flash::attention", 1), ("flash::attention_backward", 1)];
            assert_eq!(called(&stages), expected.map(|(name, count)| (name.to_owned(), count)).into(), "{dtype}");
            let last = &stages.last().unwrap().trace.block;
            for id in last.symbols.iter().flat_map(|symbol| &symbol.results) {
                let meta = last.meta(*id);
                assert!(meta.len() < 2 * 3 * LENGTH * OTHER, "{} is {meta}", last.value(*id).name);
            }
        }
    }
}

/// The gradients of scores are written only where the mask is differentiated.
#[test]
fn a_mask_of_numbers_has_a_gradient() {
    let meta = |shape: [usize; 4]| TensorMeta::new(shape, DType::BF16, Device::new("cuda", 0));
    let inputs = (meta([2, 3, LENGTH, 24]), meta([2, 3, OTHER, 24]), meta([1, 3, 1, OTHER]));
    let step = |(q, k, mask): (Tensor, Tensor, Tensor)| {
        tracer::value_and_grad(mask, |mask| scaled_dot_product_attention::with(q, k, k).attn_mask(*mask).call().sum())
    };
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let stages = stages_of(trace("mask", target, &Names::default(), inputs, step).unwrap().0, false);
    assert_eq!(called(&stages).get("flash::attention"), Some(&1));
    let last = &stages.last().unwrap().trace.block;
    let gradient = last.meta(*last.results.last().unwrap());
    assert_eq!(gradient.shape(), [1, 3, 1, OTHER]);
}

#[test]
fn what_the_kernels_do_not_do_is_left_to_the_next_executor_with_the_reason() {
    let narrower: Call = |q, k, v, _| scaled_dot_product_attention::with(q, k, narrow(v, -1, 0, 8)).call();
    // The kernels know one dimension of batches, which a mask of four dimensions would have to follow.
    let batches: Call = |q, k, v, mask| {
        let [q, k, v] = [q, k, v].map(|heads| unsqueeze(heads, 1));
        scaled_dot_product_attention::with(q, k, v).attn_mask(mask).call()
    };
    let cases: [(DType, bool, usize, Call, &str); 7] = [
        (DType::BF16, false, 24, batches, "takes one dimension of batches"),
        (DType::BF16, false, 24, narrower, "takes values as many and as wide as keys"),
        (DType::BF16, false, 260, plain, "heads are 260 wide, takes at most 256 in bf16"),
        (DType::BF16, false, 260, windowed, "heads are 260 wide, takes at most 256 in bf16"),
        (DType::BF16, false, 260, dropped, "heads are 260 wide, takes at most 256 in bf16"),
        (DType::F64, false, 24, plain, "not f64"),
        (DType::F64, true, 24, plain, "rounds operands of f32, not of f64"),
    ];
    for (dtype, rounded, width, call, reason) in cases {
        let stages = stages_of(attention(dtype, [3, 3], width, call), rounded);
        assert!(called(&stages).is_empty(), "{reason}");
        let text = named(&stages, "claim").to_string();
        assert!(text.contains(reason), "{reason} is not said:\n{text}");
    }
}

/// Two calls that share a line say both why they are not taken.
#[test]
fn reasons_survive_where_lines_are_merged() {
    let both: Call = |q, k, v, _| {
        let plain = scaled_dot_product_attention::with(q, k, v).call();
        narrow(plain, -1, 0, 8) + scaled_dot_product_attention::with(q, k, narrow(v, -1, 0, 8)).call()
    };
    let stages = stages_of(attention(DType::BF16, [3, 3], 260, both), false);
    let text = named(&stages, "claim").to_string();
    for reason in ["heads are 260 wide, takes at most 256 in bf16", "takes values as many and as wide as keys"] {
        assert!(text.contains(reason), "{reason} is not said:\n{text}");
    }
}

#[test]
fn an_executor_of_another_device_lends_no_gradient() {
    let meta = |length: usize| TensorMeta::new([2, 3, length, 24], DType::F16, Device::CPU);
    let list = ["flash", "cpu", "reference"].map(|name| find_executor(name).unwrap());
    let inputs = || (meta(LENGTH), meta(OTHER), meta(OTHER));
    let attend = |q, k, v| scaled_dot_product_attention::with(q, k, v).call();
    let forward =
        trace("forward", Target::cpu(), &Names::default(), inputs(), |(q, k, v): (Tensor, Tensor, Tensor)| {
            attend(q, k, v)
        });
    let step = trace("step", Target::cpu(), &Names::default(), inputs(), |(q, k, v): (Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((q, k, v), |(q, k, v)| attend(*q, *k, *v).sum())
    });
    let joint = [vjp(&forward.unwrap().0, &[0, 1, 2], &list), autodiff(&step.unwrap().0, &list)];
    for joint in joint.map(Result::unwrap) {
        let text = joint.to_string();
        assert!(!text.contains("flash"), "{text}");
        let options = Options { verify: true, executors: Some(list.to_vec()), ..Options::default() };
        stages(joint, &options).unwrap();
    }
}
