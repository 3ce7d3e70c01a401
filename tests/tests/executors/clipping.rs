//! Gradients that are clipped and used by an update of all parameters: norm and update read gradients of 16 bits as
//! they are, and the update scales them. Fused or not, the bits are the same.

use fulgurite_executors as _;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, nvrtc};
use fulgurite_runtime::trace::{Callee, Trace};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, jit};

use crate::device;

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

/// Shapes of parameters: several chunks of a launch, odd, empty, and 0-d ones.
const SHAPES: [&[usize]; 6] = [&[3, 8193], &[128], &[7], &[0, 3], &[], &[65, 129]];

/// The type of the copy of each parameter, if it has one.
const COPIES: [Option<DType>; 6] =
    [Some(DType::BF16), Some(DType::F16), None, Some(DType::BF16), Some(DType::BF16), Some(DType::BF16)];

fn arrays(shift: f64, scale: f64, dtype: impl Fn(usize) -> DType) -> Vec<Array> {
    let array = |(i, shape): (usize, &&[usize])| {
        let values: Vec<f64> =
            (0..shape.iter().product()).map(|at: usize| scale * (at as f64 * 0.37 + shift + i as f64).sin()).collect();
        Array::from_f64(shape, dtype(i), &values).unwrap()
    };
    SHAPES.iter().enumerate().map(array).collect()
}

/// Parameters, their gradients, moments, learning rate and step, and whether to update. Gradients are of type `narrow`
/// but for every third, which is f32.
fn inputs(narrow: DType, scale: f64, apply: bool) -> Vec<Array> {
    let scalar = |value: f64| Array::from_f64([], DType::F32, &[value]).unwrap();
    let apply = Array::from_f64([], DType::Bool, &[f64::from(u8::from(apply))]).unwrap();
    let lists = [
        arrays(0.1, 1.0, |_| DType::F32),
        arrays(0.2, scale, |i| if i % 3 == 2 { DType::F32 } else { narrow }),
        arrays(0.3, 1e-2, |_| DType::F32),
        arrays(0.4, 1e-2, |_| DType::F32).into_iter().map(squared).collect(),
        vec![scalar(1e-2), scalar(3.0), apply],
    ];
    lists.concat()
}

fn squared(array: Array) -> Array {
    let values: Vec<f64> = array.to_f64().unwrap().into_iter().map(|value| value * value).collect();
    Array::from_f64(array.shape(), DType::F32, &values).unwrap()
}

/// The norm, and all parameters and moments after an update by clipped gradients; then copies of parameters in 16 bits.
fn step(inputs: Vec<Tensor>) -> Vec<Tensor> {
    let ([params, means, squares], wide, [lr, step, apply]) = taken_apart(&inputs);
    let mut clipped = clip_grad_norm(&wide, 1.0);
    let norm = clipped.pop();
    let mut copies = Vec::new();
    let mut results: Vec<Tensor> = norm.into_iter().collect();
    for i in 0..params.len() {
        let update = adamw::with(params[i], clipped[i], means[i], squares[i], lr, step).apply(apply).weight_decay(0.1);
        let (param, mean, square) = update.call();
        results.extend([param, mean, square]);
        copies.extend(COPIES[i].map(|dtype| cast(param, dtype)));
    }
    results.extend(copies);
    results
}

/// Parameters and moments, the gradients widened, and the three numbers.
fn taken_apart(inputs: &[Tensor]) -> ([&[Tensor]; 3], Vec<Tensor>, [Tensor; 3]) {
    let list = |i: usize| &inputs[i * SHAPES.len()..(i + 1) * SHAPES.len()];
    let wide = list(1).iter().map(|grad| cast(*grad, DType::F32)).collect();
    let numbers = [0, 1, 2].map(|i| inputs[4 * SHAPES.len() + i]);
    ([list(0), list(2), list(3)], wide, numbers)
}

fn results(inputs: Vec<Array>, options: Options) -> Vec<Array> {
    jit(step).options(options).call(inputs).unwrap()
}

fn bits(arrays: &[Array]) -> Vec<Vec<u64>> {
    let of = |array: &Array| array.to_f64().unwrap().iter().map(|value| value.to_bits()).collect();
    arrays.iter().map(of).collect()
}

/// The program for an H100.
fn program(narrow: DType) -> Trace {
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    let metas: Vec<TensorMeta> = inputs(narrow, 1.0, true).iter().map(|array| array.meta().clone()).collect();
    retarget(&trace("f", Target::cpu(), &names, metas, step).unwrap().0, &"cuda:sm_90a".parse().unwrap())
}

#[test]
fn the_kernels_compile_without_spills() {
    let has_nvrtc = nvrtc::version();
    if let Err(error) = &has_nvrtc {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("compiled by nobody: {error}");
    }
    for narrow in [DType::BF16, DType::F16, DType::F32] {
        let (compiled, _) = compile(program(narrow), &Options { verify: true, ..Options::default() }).unwrap();
        let sources = compiled.sources();
        assert!(sources.iter().any(|source| &*source.name == "adamw.cu"));
        for source in sources.iter().filter(|_| has_nvrtc.is_ok()) {
            for architecture in ["sm_80", "sm_90a"] {
                let options = &source.options;
                let compilation = Compilation { name: &source.name, source: &source.text, architecture, options };
                let cubin = nvrtc::compile(&compilation).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
                assert!(cubin.warnings(&compilation).is_empty(), "{:?}", cubin.warnings(&compilation));
                let spills = cubin.kernels().iter().any(|kernel| kernel.uses_local_memory());
                assert!(!spills, "{} for {narrow}", source.name);
            }
        }
    }
}

#[test]
fn norm_and_update_are_regions_that_read_narrow_gradients() {
    for narrow in [DType::BF16, DType::F16] {
        let options = Options { verify: true, ..Options::default() };
        let stages = stages(program(narrow), &options).unwrap();
        let fused = &stages.iter().find(|stage| stage.name == "fuse").unwrap().trace.block;
        let regions = fused.symbols.iter().filter(|symbol| symbol.callee == Callee::Region { executor: "optim" });
        let lines: Vec<usize> = regions.map(|region| region.body.as_ref().unwrap().symbols.len()).collect();
        let widened = SHAPES.len() - SHAPES.len() / 3;
        let copied = COPIES.iter().flatten().count();
        assert_eq!(lines, [widened + 1, widened + 1 + SHAPES.len() + copied]);
        assert!(!fused.symbols.iter().any(|symbol| symbol.name() == "optim::scale_all"));
    }
}

#[test]
fn fused_or_not_the_bits_are_the_same() {
    let Some(cuda) = device::cuda() else { return };
    let on = |fuse: bool| Options { device: Some(cuda), fuse, ..Options::default() };
    for narrow in [DType::BF16, DType::F16, DType::F32] {
        for (scale, apply) in [(1.0, true), (1e-4, true), (1.0, false)] {
            let fused = results(inputs(narrow, scale, apply), on(true));
            let apart = results(inputs(narrow, scale, apply), on(false));
            assert_eq!(bits(&fused), bits(&apart), "gradients of {narrow} times {scale}, apply {apply}");
            let host = results(inputs(narrow, scale, apply), Options::default());
            for (found, expected) in fused.iter().zip(&host) {
                let found_dtype = found.dtype();
                let (found, expected) = (found.to_f64().unwrap(), expected.to_f64().unwrap());
                let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f64::max);
                // A copy is rounded.
                let most = if found_dtype == DType::F32 { 1e-5 } else { 8e-3 };
                assert!(off <= most, "{off}: gradients of {narrow} times {scale}, apply {apply}");
            }
        }
    }
}

#[test]
fn gradients_that_others_read_are_scaled_and_widened_for_them() {
    let Some(cuda) = device::cuda() else { return };
    // The scaled gradient of the first parameter, and the widened one of the second, leave the program.
    let shown = |inputs: Vec<Tensor>| {
        let ([params, means, squares], wide, [lr, step, _]) = taken_apart(&inputs);
        let clipped = clip_grad_norm(&wide, 1.0);
        let updated = (0..params.len()).map(|i| adamw(params[i], clipped[i], means[i], squares[i], lr, step).0);
        updated.chain([clipped[0], wide[1]]).collect::<Vec<Tensor>>()
    };
    let run = |device: Device, fuse: bool| {
        let options = Options { device: Some(device), fuse, ..Options::default() };
        jit(shown).options(options).call(inputs(DType::BF16, 1.0, true)).unwrap()
    };
    assert_eq!(bits(&run(cuda, true)), bits(&run(cuda, false)));
}
