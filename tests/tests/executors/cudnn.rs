//! What `cudnn` takes of attention and convolutions where it is named, and what it leaves to the executors behind it.
//! Neither a device nor the library is needed: target and shapes decide.

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
    claim_by(&["cudnn"], trace)
}

/// The program as these executors before the default list claim it.
fn claim_by(names: &[&str], trace: Trace) -> String {
    let named = names.iter().map(|name| find_executor(name).unwrap()).collect();
    let executors = [named, default_executors("cuda")].concat();
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

/// The claimed program of a function of images and weights of such shapes, with its gradients by both.
fn convolved(
    names: &[&str],
    dtype: DType,
    [image, weight]: [&[usize]; 2],
    call: impl Fn(Tensor, Tensor) -> Tensor + Copy + Send + Sync + 'static,
) -> String {
    let meta = |shape: &[usize]| TensorMeta::new(shape, dtype, Device::new("cuda", 0));
    let step = move |(x, w): (Tensor, Tensor)| tracer::value_and_grad((x, w), move |(x, w)| call(*x, *w).sum());
    claim_by(names, trace("convolved", target(), &Names::default(), (meta(image), meta(weight)), step).unwrap().0)
}

/// Lines of a program by the symbols of convolutions.
fn symbols(text: &str) -> [usize; 3] {
    ["convolution(", "convolution_input_gradient(", "convolution_weight_gradient("]
        .map(|symbol| text.matches(&format!("cudnn::{symbol}")).count())
}

#[test]
fn convolutions_and_transposes_are_one_call_forward_and_two_backward() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let text = convolved(&["cudnn"], dtype, [&[2, 4, 9, 9], &[6, 2, 3, 3]], |x, w| {
            conv2d::with(x, w).stride([2]).padding([1].into()).groups(2).call()
        });
        assert_eq!(symbols(&text), [1, 1, 1], "{text}");
        assert!(!text.contains("matmul") && !text.contains("windows"), "{text}");
        // A transpose's gradient by its input is a convolution.
        let text = convolved(&["cudnn"], dtype, [&[2, 4, 9], &[4, 3, 3]], |x, w| {
            conv_transpose1d::with(x, w).stride([2]).output_padding([1]).call()
        });
        assert_eq!(symbols(&text), [1, 1, 1], "{text}");
    }
    let text = convolved(&["cudnn"], DType::BF16, [&[4, 5, 6, 7], &[2, 4, 1, 2, 3]], |x, w| {
        conv3d::with(x, w).dilation([1, 2, 2]).call()
    });
    assert_eq!(symbols(&text), [1, 1, 1], "{text}");
}

/// The images are padded where zeros before them and behind are not equally many.
#[test]
fn unequal_paddings_are_made_before() {
    let same = |x: Tensor, w: Tensor| conv1d::with(x, w).padding(fulgurite_ops::nn::ConvPadding::Same).call();
    for (size, pads) in [(3, 0), (4, 1)] {
        let text = convolved(&["cudnn"], DType::F32, [&[2, 3, 8], &[4, 3, size]], same);
        assert_eq!(symbols(&text), [1, 1, 1], "{text}");
        assert_eq!(text.matches(" = pad(").count(), pads, "{text}");
    }
}

/// Images of few channels get channels of zeros, unless these make them larger than the result, or than the library
/// takes; gradients have the channels that there are.
#[test]
fn few_channels_are_padded_where_that_is_small() {
    let call = |x: Tensor, w: Tensor| conv2d::with(x, w).stride([2]).call();
    let large: [&[usize]; 2] = [&[16, 3, 4800, 4800], &[8, 3, 7, 7]];
    let cases: [(DType, [&[usize]; 2], usize); 5] = [
        (DType::BF16, [&[2, 3, 32, 32], &[64, 3, 7, 7]], 2),
        (DType::BF16, [&[2, 3, 32, 32], &[16, 3, 7, 7]], 0),
        (DType::F16, large, 0),
        (DType::F32, [&[2, 3, 32, 32], &[64, 3, 7, 7]], 0),
        (DType::BF16, [&[2, 3, 32, 32], &[64, 3, 1, 1]], 0),
    ];
    for (dtype, shapes, pads) in cases {
        let text = convolved(&["cudnn"], dtype, shapes, call);
        assert_eq!(symbols(&text), [1, 1, 1], "{text}");
        assert_eq!(text.matches(" = pad(").count(), pads, "{text}");
        assert_eq!(text.matches(" = slice(").count(), pads, "{text}");
    }
    let grouped = |x: Tensor, w: Tensor| conv2d::with(x, w).groups(2).call();
    let text = convolved(&["cudnn"], DType::BF16, [&[2, 4, 32, 32], &[64, 2, 3, 3]], grouped);
    assert_eq!((symbols(&text), text.matches(" = pad(").count()), ([1, 1, 1], 0), "{text}");
}

#[test]
fn convolutions_in_tf32_are_of_f32_and_asked_for() {
    let plain = |x: Tensor, w: Tensor| conv2d(x, w);
    let shapes: [&[usize]; 2] = [&[2, 4, 9, 9], &[6, 4, 3, 3]];
    let text = convolved(&["cudnn_tf32", "cudnn"], DType::F32, shapes, plain);
    assert_eq!(text.matches("tf32=true").count(), 3, "{text}");
    let text = convolved(&["cudnn_tf32", "cudnn"], DType::BF16, shapes, plain);
    assert_eq!(text.matches("tf32=true").count(), 0, "{text}");
    assert_eq!(symbols(&text), [1, 1, 1], "{text}");
    assert!(default_executors("cuda").iter().all(|executor| executor.name != "cudnn_tf32"));
}

#[test]
fn convolutions_that_the_library_does_not_take_are_products_of_windows() {
    let plain: fn(Tensor, Tensor) -> Tensor = |x, w| conv1d(x, w);
    let far: fn(Tensor, Tensor) -> Tensor =
        |x, w| conv_transpose1d::with(x, w).dilation([3]).output_padding([2]).call();
    let cases: [([&[usize]; 2], _, &str); 3] = [
        ([&[0, 3, 8], &[4, 3, 3]], plain, "the image is [0, 3, 8]: has nothing to multiply"),
        ([&[1 << 16, 1 << 7, 1 << 8], &[4, 1 << 7, 3]], plain, "takes at most 2147483647 elements"),
        ([&[2, 3, 8], &[3, 2, 3]], far, "output_padding makes the result as large as that of an input [2, 3, 10]"),
    ];
    for (shapes, call, reason) in cases {
        let text = convolved(&["cudnn"], DType::F32, shapes, call);
        assert_eq!(symbols(&text), [0; 3], "{text}");
        assert!(text.contains(reason), "{reason} is not said:\n{text}");
    }
}

/// A gradient that is differentiated again is that of the definition.
#[test]
fn convolutions_are_differentiated_twice() {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::new("cuda", 0));
    let step = |(x, w): (Tensor, Tensor)| {
        tracer::value_and_grad((x, w), |(x, w)| {
            let w = *w;
            let (_, slope) = tracer::value_and_grad(*x, move |x| conv2d(*x, w).square().sum());
            slope.square().sum()
        })
    };
    let inputs = (meta(&[2, 3, 6, 6]), meta(&[4, 3, 3, 3]));
    let text = claim(trace("twice", target(), &Names::default(), inputs, step).unwrap().0);
    assert_eq!(symbols(&text), [0; 3], "{text}");
    assert!(text.contains("sum_of_windows("), "{text}");
}
