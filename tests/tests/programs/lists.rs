//! Lists: the same elementwise line for many inputs, such as the conversions of weights to bf16, in one launch.

use fulgurite_executors as _;
use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, Stage, compile};
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, nvrtc};
use fulgurite_runtime::trace::{Block, BoundSymbol, Storage, Trace, parse};
use fulgurite_runtime::transforms::plan::memory_use;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

use crate::device;

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

fn meta(shape: &[usize], dtype: DType) -> TensorMeta {
    TensorMeta::new(shape, dtype, Device::CPU)
}

/// A program of a list of tensors, for an H100.
fn program(arguments: Vec<TensorMeta>, f: impl Fn(Vec<Tensor>) -> Vec<Tensor>) -> Trace {
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let traced = trace("f", Target::cpu(), &names, arguments, f).unwrap().0;
    retarget(&traced, &"cuda:sm_90a".parse().unwrap())
}

fn options(fuel: Fuel) -> Options {
    let options = Options { verify: true, fuel, ..Options::default() };
    options.with_executors(&["fusion", "cuda"]).unwrap()
}

fn stages(trace: &Trace, options: &Options) -> Vec<Stage> {
    compile(trace.clone(), options).unwrap().1
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> &'a Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap_or_else(|| panic!("there is no stage {name}")).trace
}

/// The regions, each with the names of its lines' results.
fn regions(block: &Block) -> Vec<Vec<String>> {
    let names = |body: &Block| {
        let results = body.symbols.iter().flat_map(|line| &line.results);
        results.map(|id| body.value(*id).name.to_string()).collect()
    };
    block.symbols.iter().filter_map(|line| line.body.as_deref()).map(names).collect()
}

fn lists(trace: &Trace) -> Vec<usize> {
    regions(&stage(&stages(trace, &options(Fuel::UNLIMITED)), "fuse").block).iter().map(Vec::len).collect()
}

fn to_bf16(x: Vec<Tensor>) -> Vec<Tensor> {
    x.into_iter().map(|x| cast(x, DType::BF16)).collect()
}

#[test]
fn conversions_of_all_shapes_become_one_line() {
    let shapes: [&[usize]; 5] = [&[768, 768], &[768], &[], &[3, 5, 7], &[1]];
    let trace = program(shapes.map(|shape| meta(shape, DType::F32)).to_vec(), to_bf16);
    let stages = stages(&trace, &options(Fuel::UNLIMITED));
    insta::assert_snapshot!(format!("{}\n{}", stage(&stages, "claim"), stages.last().unwrap().trace));
    for stage in &stages {
        assert_eq!(parse(&stage.trace.to_string()).unwrap(), stage.trace, "{}", stage.name);
    }
}

#[test]
fn what_is_alone_or_unlike_stays_as_it_is() {
    let f32s = |shapes: &[&[usize]]| shapes.iter().map(|shape| meta(shape, DType::F32)).collect::<Vec<_>>();
    // One weight.
    assert_eq!(lists(&program(f32s(&[&[8]]), to_bf16)), [0; 0]);
    // Of no elements there is nothing to do.
    assert_eq!(lists(&program(f32s(&[&[8], &[0, 3], &[4]]), to_bf16)), [2]);
    // Types that differ: a list for each.
    let mixed = [DType::F32, DType::F16, DType::F64, DType::F16, DType::F32].map(|dtype| meta(&[8], dtype)).to_vec();
    assert_eq!(lists(&program(mixed, to_bf16)), [2, 2]);
    // Other numbers.
    let scaled = |x: Vec<Tensor>| vec![x[0] * 2.0, x[1] * 3.0, x[2] * 2.0];
    assert_eq!(lists(&program(f32s(&[&[8], &[9], &[10]]), scaled)), [2]);
    // One operand for both: that is a region, or two lines.
    let twice = |x: Vec<Tensor>| vec![cast(x[0], DType::BF16), cast(x[0], DType::F16)];
    assert_eq!(lists(&program(f32s(&[&[8]]), twice)), [2]);
    // What the program computes is not ready beforehand.
    let computed = |x: Vec<Tensor>| {
        let y = [0, 1].map(|i| prims::flip(prims::cumsum(x[i], 0), vec![0]));
        y.map(|y| cast(y, DType::BF16)).to_vec()
    };
    assert_eq!(lists(&program(f32s(&[&[8], &[9]]), computed)), [0; 0]);
}

#[test]
fn without_fuel_and_without_fusion_there_are_none() {
    let trace = program(vec![meta(&[8], DType::F32), meta(&[9], DType::F32)], to_bf16);
    let without = |options: Options| {
        let stages = stages(&trace, &options);
        regions(&stages.last().unwrap().trace.block).len()
    };
    assert_eq!(without(options(Fuel::UNLIMITED)), 1);
    assert_eq!(without(Options { fuse: false, ..options(Fuel::UNLIMITED) }), 0);
    assert_eq!(without(Options { verify: true, ..Options::default() }.with_executors(&["cuda"]).unwrap()), 0);
    let claims = trace.block.symbols.len() as u64;
    let made: Vec<usize> = (0..=claims + 1).map(|fuel| without(options(Fuel::limited(fuel)))).collect();
    assert_eq!((made[0], made.last()), (0, Some(&1)), "{made:?}");
}

/// Layers of a weight that is converted right before its product. All weights converted first are more than such a
/// program ever holds, unless it reads them all again later.
#[test]
fn a_list_takes_no_memory_that_the_program_does_not_need_anyway() {
    const LAYERS: usize = 12;
    let layers = |x: &[Tensor]| {
        let product = |y: Tensor, weight: &Tensor| tanh(matmul(y, cast(*weight, DType::BF16)));
        x[1..].iter().fold(x[0], product)
    };
    let arguments: Vec<TensorMeta> =
        [meta(&[4096, 256], DType::BF16)].into_iter().chain(vec![meta(&[256, 256], DType::F32); LAYERS]).collect();
    let narrow = program(arguments.clone(), |x| vec![layers(&x)]);
    // There and back again, as in training.
    let twice = program(arguments, |x| {
        let back = |y: Tensor, weight: &Tensor| matmul(y, prims::permute(cast(*weight, DType::BF16), vec![1, 0]));
        vec![x[1..].iter().rfold(layers(&x), back)]
    });
    for (trace, most) in [(narrow, 3), (twice, LAYERS)] {
        let [with, without] = [true, false].map(|fuse| {
            let options = Options { fuse, ..options(Fuel::UNLIMITED) };
            stages(&trace, &options).pop().unwrap().trace
        });
        // The plan may leave gaps between values that live for different times.
        let gaps = 2 * 256 * 256;
        assert!(memory_use(&with).peak() <= memory_use(&without).peak() + gaps, "{with}\n{without}");
        let lengths: Vec<usize> = regions(&with.block).iter().map(Vec::len).collect();
        assert!(lengths.iter().all(|length| *length <= most), "{lengths:?}");
        assert!(most < LAYERS || lengths == [LAYERS], "{lengths:?}\n{with}");
    }
}

/// Each result may overwrite its own operand, and no other: another block may still read that.
#[test]
fn results_lie_over_their_own_operands_alone() {
    let arguments = vec![meta(&[8], DType::F32); 3];
    let mut own = program(arguments.clone(), |x| x.into_iter().map(|x| x * 0.5).collect());
    own.inputs.iter_mut().for_each(|input| input.donated = true);
    let shared = |trace: &Trace| {
        let planned = stages(trace, &options(Fuel::UNLIMITED)).pop().unwrap().trace;
        assert_eq!(regions(&planned.block).iter().map(Vec::len).collect::<Vec<_>>(), [3], "{planned}");
        let over = |id: &fulgurite_runtime::trace::ValueId| match planned.block.value(*id).storage {
            Some(Storage::Shared(root)) => planned.block.parameters.iter().position(|own| *own == root),
            _ => None,
        };
        planned.block.results.iter().map(over).collect::<Vec<_>>()
    };
    // The other outputs have the places of the inputs.
    own.outputs[0].path = "x".into();
    assert_eq!(shared(&own), [Some(0), Some(1), Some(2)]);
    let mut turned = own.clone();
    turned.block.results.rotate_left(1);
    assert_eq!(shared(&turned), [None; 3]);
}

/// GPT-2 in mixed precision: its weights in one line, with no more memory than before.
#[test]
fn weights_of_a_mixed_step_are_converted_in_one_line() {
    let config = GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };
    let step = train_step_trace(&config, &OptimizerSettings::default(), 2, 8).unwrap();
    let step = retarget(&step, &"cuda:sm_90a".parse().unwrap());
    let options = Options { autocast: Some(DType::BF16), verify: true, ..Options::default() };
    let (_, stages) = compile(step, &options).unwrap();
    let converts = |line: &&BoundSymbol, block: &Block| {
        let of = |name: &str| name.starts_with("state.params");
        line.name() == "prims::convert_element_type" && line.operands().all(|id| of(&block.value(id).name))
    };
    let claimed = &stage(&stages, "claim").block;
    let before = claimed.symbols.iter().filter(|line| converts(line, claimed)).count();
    let fused = &stage(&stages, "fuse").block;
    assert_eq!(fused.symbols.iter().filter(|line| converts(line, fused)).count(), 0, "{}", stage(&stages, "fuse"));
    let list = |body: &Block| body.symbols.iter().all(|line| converts(&line, body));
    let lists: Vec<usize> = fused
        .symbols
        .iter()
        .filter_map(|line| line.body.as_deref())
        .filter(|body| list(body))
        .map(|body| body.symbols.len())
        .collect();
    assert_eq!(lists, [before], "{}", stage(&stages, "fuse"));
}

fn numbers(metas: &[TensorMeta]) -> Vec<Array> {
    let array = |(seed, meta): (usize, &TensorMeta)| {
        let values: Vec<f64> = (0..meta.len()).map(|i| ((i * 7 + seed) as f64 * 0.37).sin()).collect();
        Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
    };
    metas.iter().enumerate().map(|(seed, meta)| array((seed, meta))).collect()
}

/// Programs whose lists have all forms: shapes, types, one and two operands, transposed inputs, more tensors than a
/// launch has, and enough elements for several vectors a thread.
fn programs() -> Vec<(&'static str, Vec<TensorMeta>, fn(Vec<Tensor>) -> Vec<Tensor>)> {
    let of = |shapes: &[&[usize]], dtype: DType| shapes.iter().map(|shape| meta(shape, dtype)).collect::<Vec<_>>();
    let shapes: [&[usize]; 6] = [&[768, 769], &[767], &[], &[3, 5, 7], &[1], &[0, 2]];
    let mut list: Vec<(&'static str, Vec<TensorMeta>, fn(Vec<Tensor>) -> Vec<Tensor>)> = vec![
        ("to_bf16", of(&shapes, DType::F32), to_bf16),
        ("halves", of(&shapes, DType::F16), to_bf16),
        ("long", of(&[&[1 << 20], &[1 << 21], &[(1 << 20) + 3]], DType::F32), to_bf16),
        ("transposed", of(&[&[64, 32], &[31, 33], &[5, 5]], DType::F32), |x| {
            x.into_iter().map(|x| cast(prims::permute(x, vec![1, 0]), DType::BF16)).collect()
        }),
        ("sums", of(&[&[64], &[64], &[33], &[33]], DType::BF16), |x| vec![x[0] + x[1], x[2] + x[3]]),
        ("sines", of(&[&[64], &[65]], DType::F32), |x| x.into_iter().map(sin).collect()),
    ];
    list.push(("many", vec![meta(&[17], DType::F32); 500], to_bf16));
    list
}

#[test]
fn kernels_of_lists_compile() {
    let has_nvrtc = nvrtc::version();
    if let Err(error) = &has_nvrtc {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("compiled by nobody: {error}");
    }
    for (name, metas, f) in programs() {
        let (compiled, stages) = compile(program(metas, f), &options(Fuel::UNLIMITED)).unwrap();
        assert!(!regions(&stage(&stages, "fuse").block).is_empty(), "{name}");
        let lists = compiled.sources().into_iter().filter(|source| &*source.name == "list.cu");
        for source in lists.filter(|_| has_nvrtc.is_ok()) {
            for architecture in ["sm_80", "sm_90a"] {
                let options = &source.options;
                let compilation = Compilation { name: "list", source: &source.text, architecture, options };
                let cubin = nvrtc::compile(&compilation).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
                assert!(cubin.warnings(&compilation).is_empty(), "{:?}", cubin.warnings(&compilation));
                let spills = cubin.kernels().iter().any(|kernel| kernel.uses_local_memory());
                assert!(!spills || name == "sines", "{name}\n{}", source.text);
            }
        }
    }
    let (compiled, _) = compile(program(programs()[0].1.clone(), to_bf16), &options(Fuel::UNLIMITED)).unwrap();
    insta::assert_snapshot!(compiled.sources().iter().map(|source| &*source.text).collect::<String>());
}

#[test]
fn lists_give_the_bits_of_their_lines() {
    let Some(device) = device::cuda() else { return };
    for (name, metas, f) in programs() {
        let run = |fuse: bool| {
            let options = Options { fuse, device: Some(device), ..options(Fuel::UNLIMITED) };
            let of = fulgurite_runtime::jit(f).options(options);
            let out = of.call(numbers(&metas)).unwrap();
            out.iter().map(|array| array.to_host().unwrap().to_bytes().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(true), run(false), "{name}");
    }
}
