//! Convolutions of 16 bits on CUDA, by cuDNN: channels are innermost from one to the next, forward and backward, and
//! the program computes what it computed before.

use fulgurite_executors as _;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::step_trace;
use fulgurite_models::vision::{ImageConfig, ResnetConfig};
use fulgurite_ops::nn::ConvPadding;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::compile::{Options, Stage, compile, stages};
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, nvrtc};
use fulgurite_runtime::operator::{Role, RuleSet};
use fulgurite_runtime::rules::ReferenceTensor;
use fulgurite_runtime::testing::rules::TestRules;
use fulgurite_runtime::trace::{BoundSymbol, Trace};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Result, Target, Tensor, TensorMeta, jit};

use crate::device;

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

/// The network whose blocks have two convolutions, for small images, or three, behind a pool.
fn network(bottleneck: bool) -> ResnetConfig {
    let blocks = if bottleneck { [1, 2, 1, 1] } else { [1; 4] };
    ResnetConfig {
        image: 16,
        channels: 3,
        classes: 10,
        small: !bottleneck,
        bottleneck,
        blocks,
        width: if bottleneck { 32 } else { 8 },
    }
}

/// Options for mixed precision by cuDNN.
fn mixed(options: Options) -> Options {
    let options = Options { autocast: Some(DType::BF16), device: Some(Device::new("cuda", 0)), ..options };
    options.with_executors(&["cudnn", "default"]).unwrap()
}

/// A trace's stages, for a GPU that need not be there.
fn stages_of(traced: &Trace, options: Options) -> Vec<Stage> {
    let target: Target = "cuda:sm_90a".parse().unwrap();
    stages(retarget(traced, &target), &mixed(options)).unwrap()
}

/// The stages of a training step.
fn step(network: ResnetConfig, rows: usize, options: Options) -> Vec<Stage> {
    let config = ImageConfig::Resnet(network);
    let traced = step_trace(&config, &OptimizerSettings::default(), (DType::F32, None), [rows, 1]).unwrap();
    stages_of(&traced, options)
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> Option<&'a Trace> {
    stages.iter().find(|stage| stage.name == name).map(|stage| &stage.trace)
}

fn convolutions(trace: &Trace) -> Vec<&BoundSymbol> {
    trace.block.symbols.iter().filter(|symbol| symbol.name().starts_with("cudnn::convolution")).collect()
}

/// Whether a line copies images.
fn copies_images(trace: &Trace, symbol: &BoundSymbol) -> bool {
    let copies = symbol.operator().is_some_and(|def| def.overload == Some(Role::Contiguous));
    copies && symbol.executor != Some("join") && trace.block.meta(symbol.results[0]).rank() == 4
}

/// The results of a program by the references of its operators.
fn computed(trace: &Trace) -> Vec<Vec<f64>> {
    let block = &trace.block;
    let mut values: Vec<Option<ReferenceTensor>> = vec![None; block.values.len()];
    for (seed, id) in block.parameters.iter().enumerate() {
        let meta = block.meta(*id);
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 2003.0;
        let numbers: Vec<f64> = (0..meta.len())
            .map(|i| if meta.dtype().is_floating() { number(i) * 0.5 + 0.01 } else { (number(i) * 10.0).floor() })
            .collect();
        values[id.index()] =
            Some(Array::from_f64(meta.shape(), meta.dtype(), &numbers).unwrap().to_reference().unwrap());
    }
    for symbol in &block.symbols {
        let def = symbol.operator().expect("no region is made before this stage");
        let rule = TestRules::of(def).reference.unwrap_or_else(|| panic!("{} has no reference", def.name));
        let arguments = map_arguments(&symbol.arguments, |id| values[id.index()].clone().unwrap());
        for (id, result) in symbol.results.iter().zip(rule(&arguments).unwrap()) {
            values[id.index()] = Some(result);
        }
    }
    block.results.iter().map(|id| values[id.index()].as_ref().unwrap().numbers()).collect()
}

/// Both programs compute the same, but for the order of sums.
fn compute_the_same(before: &Trace, after: &Trace) {
    let (all, others) = (computed(before), computed(after));
    assert_eq!([all.len(), others.len()], [before.outputs.len(); 2]);
    for (output, (one, other)) in before.outputs.iter().zip(all.into_iter().zip(others)) {
        let largest = one.iter().fold(0.0f64, |largest, number| largest.max(number.abs()));
        assert!(largest.is_finite() && one.len() == other.len(), "{}", output.path);
        for (a, b) in one.iter().zip(&other) {
            assert!((a - b).abs() <= 1e-9 * largest, "{}: {a} and {b}", output.path);
        }
    }
}

/// Checks that all convolutions have channels innermost, the first one, of three channels, with five of zeros, and
/// gives the names of what copies as many images as the batch has in the planned program.
fn copies(stages: &[Stage], rows: usize) -> Vec<&str> {
    let turned = stage(stages, "channels").expect("convolutions gain by it");
    for symbol in convolutions(turned) {
        let name = &*turned.block.value(symbol.results[0]).name;
        let innermost = symbol.arguments.last() == Some(&Arg::value(true));
        assert!(innermost, "{name}");
    }
    let planned = &stages.last().unwrap().trace;
    let copies = planned.block.symbols.iter().filter(|symbol| copies_images(planned, symbol));
    let copies = copies.filter(|symbol| planned.block.meta(symbol.results[0]).shape()[0] == rows);
    copies.map(|symbol| &*planned.block.value(symbol.results[0]).name).collect()
}

#[test]
fn channels_are_innermost_from_one_convolution_to_the_next() {
    for bottleneck in [false, true] {
        let stages = step(network(bottleneck), 2, Options::default());
        assert_eq!(copies(&stages, 2), ["conv1.conv2d.pad.innermost"]);
        let at = stages.iter().position(|stage| stage.name == "channels").unwrap();
        compute_the_same(&stages[at - 1].trace, &stages[at].trace);
    }
}

#[test]
fn a_step_of_resnet_50_copies_images_once() {
    let [_, _, _, (name, fifty)] = ResnetConfig::SIZES;
    assert_eq!(name, "50");
    assert_eq!(copies(&step(fifty, 128, Options::default()), 128), ["conv1.conv2d.pad.innermost"]);
}

/// What comes back to arithmetic with channels before rows is turned where it is smallest, before it is widened.
#[test]
fn gradients_are_turned_before_they_are_widened() {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let names = Names { arguments: vec!["x".into(), "w".into()], results: Vec::new() };
    let (traced, _) = trace("step", Target::cpu(), &names, (meta(&[2, 8, 16, 16]), meta(&[8, 8, 3, 3])), |(x, w)| {
        value_and_grad((x, w), |(x, w): &(Tensor, Tensor)| {
            mean(conv2d::with(relu(*x), *w).padding(ConvPadding::Each(vec![1])).call())
        })
    })
    .unwrap();
    let stages = stages_of(&traced, Options::default());
    let turned = stage(&stages, "channels").unwrap();
    let back = turned.block.symbols.iter().filter(|symbol| {
        let permutes = symbol.operator().is_some_and(|def| def.overload == Some(Role::Permute));
        permutes && turned.block.meta(symbol.results[0]).shape() == [2, 8, 16, 16]
    });
    let back: Vec<String> = back
        .map(|symbol| {
            let value = turned.block.value(symbol.results[0]);
            format!("{} {}", value.name, value.meta.dtype())
        })
        .collect();
    assert_eq!(back, ["grad.conv2d.convolution_input_gradient bf16"], "{turned}");
}

#[test]
fn a_program_says_where_channels_are() {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let names = Names { arguments: ["x", "w", "v", "scale"].map(str::to_owned).to_vec(), results: Vec::new() };
    let given = (meta(&[2, 16, 8, 8]), meta(&[32, 16, 3, 3]), meta(&[8, 32, 1, 1]), meta(&[32, 1, 1]));
    type Tensors = (Tensor, Tensor, Tensor, Tensor);
    let (traced, _) = trace("step", Target::cpu(), &names, given, |(x, w, v, scale): Tensors| {
        value_and_grad((w, v, scale), |(w, v, scale)| {
            let inner = relu(conv2d::with(x, *w).padding(ConvPadding::Each(vec![1, 1])).call() * *scale);
            mean(conv2d(inner, *v))
        })
    })
    .unwrap();
    let stages = stages_of(&traced, Options::default());
    let at = stages.iter().position(|stage| stage.name == "channels").unwrap();
    compute_the_same(&stages[at - 1].trace, &stages[at].trace);
    insta::assert_snapshot!(stages[at].trace);
}

/// A convolution, normalized by the batch, and another one: the sums over a batch are those of columns, which regions
/// that compute what is summed add up, and all kernels compile.
#[test]
fn statistics_of_a_batch_are_sums_of_columns() {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let weight = || meta(&[256, 256, 3, 3]);
    let given = (meta(&[16, 256, 10, 10]), weight(), weight(), (meta(&[256]), meta(&[256])));
    type Tensors = (Tensor, Tensor, Tensor, (Tensor, Tensor));
    let (traced, _) = trace("step", Target::cpu(), &Names::default(), given, |(x, w, v, affine): Tensors| {
        value_and_grad((w, v, affine), |(w, v, (weight, bias))| {
            let (normal, _, _) = batch_norm::with(conv2d(x, *w)).weight(*weight).bias(*bias).training(true).call();
            mean(conv2d(relu(normal), *v))
        })
    })
    .unwrap();
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let (program, stages) = compile(retarget(&traced, &target), &mixed(Options::default())).unwrap();
    let turned = stage(&stages, "channels").unwrap();
    let sums = |trace: &Trace| {
        let sums = trace.block.symbols.iter().filter(|symbol| symbol.name() == "prims::sum");
        sums.filter(|symbol| symbol.operands().all(|id| trace.block.meta(id).rank() == 4)).count()
    };
    let fused = stage(&stages, "fuse").unwrap();
    assert!(sums(fused) < sums(turned), "{fused}");
    if let Err(error) = nvrtc::version() {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        return println!("compiled by nobody: {error}");
    }
    for source in program.sources() {
        let architecture = "sm_90a";
        let compilation =
            Compilation { name: &source.name, source: &source.text, architecture, options: &source.options };
        let cubin = nvrtc::compile(&compilation).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
        assert!(cubin.warnings(&compilation).is_empty(), "{:?}", cubin.warnings(&compilation));
    }
}

type Block<T> = (T, T, T, (T, T));

/// A block that adds to what it reads, behind a pool, with its gradients.
fn block((x, w, v, affine): Block<Tensor>) -> (Tensor, (Tensor, Tensor, Tensor, (Tensor, Tensor))) {
    value_and_grad((x, w, v, affine), |(x, w, v, (weight, bias))| {
        let x = max_pool2d(*x, [2]);
        let same = || ConvPadding::Each(vec![1, 1]);
        let first = conv2d::with(x, *w).padding(same()).call();
        let (normal, _, _) = batch_norm::with(first).weight(*weight).bias(*bias).training(true).call();
        let out = relu(conv2d::with(relu(normal), *v).padding(same()).call() + x);
        mean(out * out)
    })
}

/// Loss and gradients of the block on a device.
fn on_the_device(channels: bool) -> Result<Vec<Vec<f64>>> {
    let drawn = |shape: &[usize], seed: usize, scale: f64| {
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 2003.0 - 0.5;
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|i| number(i) * scale).collect();
        Array::from_f64(shape, DType::F32, &numbers)
    };
    let weight = |seed| drawn(&[64, 64, 3, 3], seed, 0.2);
    let inputs =
        (drawn(&[8, 64, 28, 28], 1, 2.0)?, weight(2)?, weight(3)?, (drawn(&[64], 4, 1.0)?, drawn(&[64], 5, 1.0)?));
    let (loss, (x, w, v, (a, b))) =
        jit(block).options(mixed(Options { channels, verify: true, ..Options::default() })).call(inputs)?;
    [loss, x, w, v, a, b].iter().map(|array| array.to_host()?.to_f64()).collect()
}

#[test]
fn results_on_a_device_are_those_with_channels_before_rows() {
    if device::cuda().is_none() {
        return;
    }
    let [innermost, again, before] = [true, true, false].map(|channels| on_the_device(channels).unwrap());
    assert_eq!(innermost, again, "the same bits in each run");
    for (n, (innermost, before)) in innermost.iter().zip(&before).enumerate() {
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut innermost.iter().zip(before).map(|(a, b)| a - b));
        let all = norm(&mut before.iter().copied());
        assert!(apart <= 0.02 * all, "result {n}: {apart} of {all}");
    }
}

/// The block's lines on a machine without a device: what reads images around the convolutions sees the same numbers.
#[test]
fn pools_and_sums_around_convolutions_read_the_same_numbers() {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let weight = || meta(&[8, 8, 3, 3]);
    let given = (meta(&[2, 8, 6, 6]), weight(), weight(), (meta(&[8]), meta(&[8])));
    let (traced, _) = trace("block", Target::cpu(), &Names::default(), given, block).unwrap();
    let stages = stages_of(&traced, Options::default());
    let at = stages.iter().position(|stage| stage.name == "channels").unwrap();
    compute_the_same(&stages[at - 1].trace, &stages[at].trace);
}

#[test]
fn what_gains_nothing_is_left_alone() {
    let no = Options { channels: false, ..Options::default() };
    assert!(stage(&step(network(false), 2, no), "channels").is_none());
    // Windows of one element are plain products, which have channels in any place.
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let given = (meta(&[2, 16, 8, 8]), meta(&[32, 16, 1, 1]));
    let traced = trace("f", Target::cpu(), &Names::default(), given, |(x, w): (Tensor, Tensor)| conv2d(x, w)).unwrap();
    assert!(stage(&stages_of(&traced.0, Options::default()), "channels").is_none());
}

/// Two convolutions of images in bf16, of these sizes behind the channels and so many groups, with their results:
/// images leave the program between them and behind them.
fn two_convolutions(sizes: &[usize], groups: usize) -> Trace {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::BF16, Device::CPU);
    let shape = |head: [usize; 2]| head.into_iter().chain(sizes.iter().copied()).collect::<Vec<usize>>();
    let windows = |inputs: usize| [vec![16, inputs], vec![3; sizes.len()]].concat();
    let given = (meta(&shape([2, 16])), meta(&windows(16 / groups)), meta(&windows(16)));
    let rank = sizes.len();
    let convolution = move |x: Tensor, w: Tensor, groups: usize| match rank {
        1 => conv1d::with(x, w).padding(ConvPadding::Each(vec![1])).groups(groups).call(),
        2 => conv2d::with(x, w).padding(ConvPadding::Each(vec![1; 2])).groups(groups).call(),
        _ => conv3d::with(x, w).padding(ConvPadding::Each(vec![1; 3])).groups(groups).call(),
    };
    let (traced, _) = trace("f", Target::cpu(), &Names::default(), given, |(x, w, v): (Tensor, Tensor, Tensor)| {
        let between = relu(convolution(x, w, groups));
        (between, convolution(between, v, 1), x)
    })
    .unwrap();
    traced
}

/// The stage of a program that is compiled as it is, and the one before it, if kernels were asked.
fn around(traced: &Trace, fuel: Option<u64>) -> Option<[Trace; 2]> {
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let fuel = fuel.map_or(Fuel::UNLIMITED, Fuel::limited);
    let options = Options { device: Some(Device::new("cuda", 0)), fuel, ..Options::default() };
    let options = options.with_executors(&["cudnn", "default"]).unwrap();
    let stages = stages(retarget(traced, &target), &options).unwrap();
    let at = stages.iter().position(|stage| stage.name == "channels")?;
    Some([stages[at - 1].trace.clone(), stages[at].trace.clone()])
}

#[test]
fn images_that_leave_a_program_are_turned_back_whatever_their_rank_and_groups() {
    for (sizes, groups) in [(&[6][..], 1), (&[5, 6], 1), (&[5, 6], 2), (&[3, 4, 5], 1)] {
        let [before, after] = around(&two_convolutions(sizes, groups), None).expect("convolutions gain by it");
        assert_eq!(convolutions(&after).len(), 2, "{after}");
        compute_the_same(&before, &after);
    }
}

/// Each limit leaves a program that computes the same.
#[test]
fn fuel_ends_between_any_two_kernels() {
    let traced = two_convolutions(&[5, 6], 1);
    let turned = (0..40).filter_map(|fuel| around(&traced, Some(fuel)));
    let mut kernels = Vec::new();
    for [before, after] in turned {
        compute_the_same(&before, &after);
        let innermost = |symbol: &&&BoundSymbol| symbol.arguments.last() == Some(&Arg::value(true));
        kernels.push(convolutions(&after).iter().filter(innermost).count());
    }
    assert!(kernels.contains(&1) && kernels.last() == Some(&2), "{kernels:?}");
}

#[test]
fn an_input_with_channels_last_is_not_copied() {
    let copied = |strides: Option<Vec<isize>>| {
        let mut traced = two_convolutions(&[5, 6], 1);
        traced.inputs[0].strides = strides;
        let [_, after] = around(&traced, None).unwrap();
        after.block.symbols.iter().filter(|symbol| copies_images(&after, symbol)).count()
    };
    assert_eq!(copied(None), 1);
    assert_eq!(copied(Some(vec![480, 1, 96, 16])), 0);
}
