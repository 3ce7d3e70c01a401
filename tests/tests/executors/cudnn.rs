//! What `cudnn` takes of attention where it is named, and what it leaves to the executors behind it. Neither a device
//! nor the library is needed: target and shapes decide.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::executor::{default_executors, find_executor};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{DType, Device, Target, Tensor, TensorMeta, tracer};

type Call = fn(Tensor, Tensor, Tensor, Tensor) -> Tensor;

/// The claimed program of attention of queries [2, 4, 128, width] to keys and values [2, 2, keys, width] with its
/// gradients, by `cudnn` before the default list.
fn claimed(dtype: DType, keys: usize, width: usize, call: Call) -> String {
    let meta = |shape: [usize; 4]| TensorMeta::new(shape, dtype, Device::new("cuda", 0));
    let shared = || meta([2, 2, keys, width]);
    let inputs = (meta([2, 4, 128, width]), shared(), shared(), meta([1, 1, 128, keys]));
    let step = |(q, k, v, mask): (Tensor, Tensor, Tensor, Tensor)| {
        tracer::value_and_grad((q, k, v), |(q, k, v)| call(*q, *k, *v, mask).sum())
    };
    claim(trace("attention", target(), &Names::default(), inputs, step).unwrap().0)
}

fn target() -> Target {
    "cuda:sm_90a".parse().unwrap()
}

/// The program as `cudnn` before the default list claims it.
fn claim(trace: Trace) -> String {
    let executors = [vec![find_executor("cudnn").unwrap()], default_executors("cuda")].concat();
    let device = Some(Device::new("cuda", 0));
    let options = Options { verify: true, executors: Some(executors), device, ..Options::default() };
    let stages = stages(trace, &options).unwrap();
    stages.iter().find(|stage| stage.name == "claim").unwrap().trace.to_string()
}

const PLAIN: Call = |q, k, v, _| scaled_dot_product_attention::with(q, k, v).enable_gqa(true).is_causal(true).call();

#[test]
fn attention_is_one_call_forward_and_one_backward() {
    for dtype in [DType::BF16, DType::F16] {
        let text = claimed(dtype, 256, 72, PLAIN);
        for symbol in ["cudnn::attention(", "cudnn::attention_backward("] {
            assert_eq!(text.matches(symbol).count(), 1, "{symbol} in\n{text}");
        }
        assert!(!text.contains("flash::"), "{text}");
    }
}

#[test]
fn what_the_library_does_not_do_is_left_to_the_next_executor_with_the_reason() {
    let masked: Call =
        |q, k, v, mask| scaled_dot_product_attention::with(q, k, v).enable_gqa(true).attn_mask(mask).call();
    let dropped: Call = |q, k, v, _| {
        let generator = fulgurite_ops::prims::full([2], 7_i64, DType::I64, "cuda:0");
        scaled_dot_product_attention::with(q, k, v).enable_gqa(true).dropout_p(0.5).generator(generator).call()
    };
    let cases: [(DType, usize, usize, Call, &str); 6] = [
        (DType::BF16, 128, 64, masked, "has no masks but the causal one"),
        (DType::BF16, 128, 64, dropped, "has no dropout, dropout_p is 0.5"),
        (DType::BF16, 128, 36, PLAIN, "heads are 36 wide, takes multiples of 8 up to 256"),
        (DType::F16, 128, 264, PLAIN, "heads are 264 wide, takes multiples of 8 up to 256"),
        (DType::F32, 128, 64, PLAIN, "takes bf16 and f16, query is f32"),
        (DType::BF16, 200, 64, PLAIN, "200, 64]@cuda:0: the gradients of versions"),
    ];
    for (dtype, keys, width, call, reason) in cases {
        let text = claimed(dtype, keys, width, call);
        assert!(!text.contains("cudnn::"), "{reason}");
        assert!(text.contains(reason), "{reason} is not said:\n{text}");
    }
}

/// Only a gradient needs the sums of rows.
#[test]
fn what_is_not_differentiated_has_no_sums_of_rows() {
    let meta = |heads| TensorMeta::new([2, heads, 128, 64], DType::BF16, Device::new("cuda", 0));
    let inputs = (meta(4), meta(2), meta(2));
    let attend = |(q, k, v): (Tensor, Tensor, Tensor)| PLAIN(q, k, v, q);
    let text = claim(trace("attention", target(), &Names::default(), inputs, attend).unwrap().0);
    assert!(text.contains("cudnn::attention_alone("), "{text}");
    assert!(!text.contains("log_sums"), "{text}");
}

/// It is no part of a program unless it is named or measured.
#[test]
fn the_default_list_is_without_it() {
    assert!(default_executors("cuda").iter().all(|executor| executor.name != "cudnn"));
}
