//! A small GPT-2 follows PyTorch's losses for ten AdamW steps. The vectors are made by `tests/golden/gpt2_parity.py`.

use fulgurite_models::config::{GptConfig, Parameter};
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::sharded::{parts, sharding, wholes};
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::step_scalars;
use fulgurite_models::{Parameters, rounded_copies};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit, ranks};
use safetensors::SafeTensors;

use crate::device;

const CONFIG: GptConfig =
    GptConfig { vocabulary: 131, context: 16, layers: 2, heads: 2, channels: 32, ..GptConfig::GPT2 };
const ROWS: usize = 4;

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let view = file.tensor(name).unwrap_or_else(|_| panic!("{name} is in the file"));
    match view.dtype() {
        safetensors::Dtype::F32 => {
            view.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
        }
        safetensors::Dtype::F64 => {
            view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
        }
        other => panic!("{name} is {other:?}"),
    }
}

fn golden() -> Vec<u8> {
    std::fs::read(device::golden("gpt2_parity.safetensors")).unwrap()
}

fn options(executors: &[&str], device: Option<Device>, autocast: Option<DType>) -> Options {
    Options { device, autocast, ..Options::default() }.with_executors(executors).unwrap()
}

/// Losses and gradient norms of ten steps, and the weights after them. Each rank of the mesh that runs takes as many
/// rows of the batch.
fn ten_steps(file: &SafeTensors<'_>, options: Options) -> (Vec<[f64; 2]>, Parameters<Array>) {
    let params = Parameters::build(&CONFIG.parameters(), &mut |Parameter { name, shape, .. }| {
        Array::from_f64(&shape[..], DType::F32, &floats(file, &format!("initial/{name}")))
    })
    .unwrap();
    let zeros =
        || Parameters::build(&CONFIG.parameters(), &mut |own| Array::zeros(&own.shape[..], DType::F32)).unwrap();
    // As the command trains: in mixed precision the state has copies of weights.
    let copies = rounded_copies(&CONFIG, &params, options.autocast).unwrap();
    let mut state = TrainState { params, exp_avg: zeros(), exp_avg_sq: zeros(), copies, buffers: Parameters::none() };
    if let Some(sharding) = &options.sharding {
        let axis = sharding.axis_of(&options.mesh).unwrap();
        let part = |tree: Parameters<Array>| parts(tree, ranks::place(axis).unwrap(), axis).unwrap();
        let TrainState { params, exp_avg, exp_avg_sq, copies, buffers } = state;
        state = TrainState {
            params: part(params),
            exp_avg: part(exp_avg),
            exp_avg_sq: part(exp_avg_sq),
            copies: part(copies),
            buffers,
        };
    }
    let given = options.clone();
    let optimizer = OptimizerSettings::default();
    let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
        train_step(&CONFIG, &optimizer, state, batch, scalars)
    })
    .donate("arg0")
    .options(options);
    let integers = |name: &str| -> Vec<i64> {
        let data = file.tensor(name).unwrap();
        data.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let (inputs, targets) = (integers("inputs"), integers("targets"));
    let shape = [ROWS / ranks::mesh().ranks(), CONFIG.context];
    let tokens = shape[0] * shape[1];
    let mut reported = Vec::new();
    for i in 0..10 {
        let start = i * ROWS * CONFIG.context + ranks::rank() * tokens;
        let range = start..start + tokens;
        let array = |ids: &[i64]| Array::new(shape, ids).unwrap();
        let batch = BatchTensors::of_tokens(array(&inputs[range.clone()]), array(&targets[range]));
        let (next, loss, norm) = step.call((state, batch, step_scalars(1e-3, i as u64 + 1, 0).unwrap())).unwrap();
        state = next;
        reported.push([loss.item().unwrap(), norm.unwrap().item().unwrap()]);
    }
    assert_eq!(step.compiles(), 1, "ten steps compile once");
    for tree in [&state.params, &state.exp_avg, &state.exp_avg_sq] {
        let leaves = fulgurite_runtime::tree::Tree::leaves(tree);
        assert!(leaves.iter().all(|(_, array)| array.dtype() == DType::F32), "weights and moments stay f32");
    }
    let Some(sharding) = &given.sharding else { return (reported, state.params) };
    let axis = sharding.axis_of(&given.mesh).unwrap();
    let gathering = Options { sharding: None, transforms: Vec::new(), ..given.clone() };
    (reported, wholes(&state.params, &CONFIG, axis, &gathering).unwrap())
}

/// Ten steps whose losses and gradient norms are PyTorch's to `tolerance` and what rounding costs the norm; the weights
/// after them.
fn follows(file: &SafeTensors<'_>, options: Options, tolerance: f64) -> Parameters<Array> {
    let (reported, params) = ten_steps(file, options);
    let (losses, norms) = (floats(file, "loss_f32"), floats(file, "norm_f64"));
    for (i, ([loss, norm], (expected, expected_norm))) in reported.iter().zip(losses.iter().zip(&norms)).enumerate() {
        assert!((loss / expected - 1.0).abs() <= tolerance, "step {i}: loss {loss}, PyTorch {expected}");
        let allowed = tolerance.max(1e-4);
        assert!(
            (norm / expected_norm - 1.0).abs() <= allowed,
            "step {i}: gradient norm {norm}, PyTorch {expected_norm}"
        );
    }
    params
}

/// Ten steps by these executors, whose losses are PyTorch's to `tolerance`, relatively, and whose weights are PyTorch's
/// after them.
fn run(executors: &[&str], device: Option<Device>, tolerance: f64) {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let params = follows(&file, options(executors, device, None), tolerance);
    for (name, array) in fulgurite_runtime::tree::Tree::leaves(&params) {
        let expected = floats(&file, &format!("final_f64/{name}"));
        let c = CONFIG.channels;
        for (element, (found, expected)) in array.to_f64().unwrap().iter().zip(&expected).enumerate() {
            // The gradient of the keys' bias is exactly zero; what Adam makes of its rounding noise means nothing.
            if name.ends_with("attn.c_attn.bias") && (c..2 * c).contains(&element) {
                continue;
            }
            assert!(
                (found - expected).abs() <= 2e-4,
                "{name}[{element}] is {found} after ten steps, PyTorch has {expected}"
            );
        }
    }
}

#[test]
fn ten_adamw_steps_follow_pytorch_on_the_cpu_executor() {
    run(&["cpu", "reference"], None, 1e-5);
}

#[test]
fn ten_adamw_steps_follow_pytorch_on_the_reference_executor() {
    run(&["reference"], None, 1e-5);
}

/// Products and sums on the device are added in another order than PyTorch's on the host.
const DEVICE_TOLERANCE: f64 = 1e-4;

#[test]
fn ten_adamw_steps_follow_pytorch_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    run(&["optim", "cublaslt", "fusion", "cuda"], Some(cuda), DEVICE_TOLERANCE);
}

#[test]
fn ten_adamw_steps_follow_pytorch_on_the_kernels_of_llmc() {
    let Some(cuda) = device::cuda() else { return };
    run(&["llmc", "optim", "cublaslt", "fusion", "cuda"], Some(cuda), DEVICE_TOLERANCE);
}

#[test]
fn ten_adamw_steps_follow_pytorch_on_one_kernel_a_prim() {
    let Some(cuda) = device::cuda() else { return };
    run(&["cuda"], Some(cuda), DEVICE_TOLERANCE);
}

/// Under bf16 autocast two programs round at different places, so their losses differ about as much as either differs
/// from the run in f64: by at most the sum of both distances, each taken as PyTorch's largest, with as much again to
/// spare.
fn run_in_bf16(executors: &[&str], device: Option<Device>) {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (reported, _) = ten_steps(&file, options(executors, device, Some(DType::BF16)));
    let of = |name: &str| [floats(&file, &format!("loss_{name}")), floats(&file, &format!("norm_{name}"))];
    let (rounded, exact, single) = (of("bf16"), of("f64"), of("f32"));
    for (quantity, what) in ["loss", "gradient norm"].into_iter().enumerate() {
        let ours = || reported.iter().map(|step| step[quantity]);
        let distance = |(a, b): (&f64, &f64)| (a / b - 1.0).abs();
        let usual = rounded[quantity].iter().zip(&exact[quantity]).map(distance).fold(0.0, f64::max);
        let bound = 4.0 * usual;
        assert!(bound <= 2e-2, "PyTorch's own {what} is off by {usual:.1e}: the vectors are not what they should be");
        for (i, (found, expected)) in ours().zip(&rounded[quantity]).enumerate() {
            let off = (found / expected - 1.0).abs();
            assert!(
                off <= bound,
                "step {i}: {what} {found}, PyTorch under autocast {expected}: off by {off:.1e} > {bound:.1e}"
            );
        }
        let same = ours().zip(&single[quantity]).all(|(found, expected)| (found / expected - 1.0).abs() <= 1e-6);
        assert!(!same, "the {what} is that of f32: nothing was computed in bf16");
    }
}

#[test]
fn ten_adamw_steps_in_bf16_follow_pytorchs_autocast_on_the_cpu_executor() {
    run_in_bf16(&["cpu", "reference"], None);
}

#[test]
fn ten_adamw_steps_in_bf16_follow_pytorchs_autocast_on_the_reference_executor() {
    run_in_bf16(&["reference"], None);
}

#[test]
fn ten_adamw_steps_in_bf16_follow_pytorchs_autocast_on_the_executors_of_cuda() {
    let Some(cuda) = device::cuda() else { return };
    run_in_bf16(&["optim", "cublaslt", "fusion", "cuda"], Some(cuda));
}

#[test]
fn ten_adamw_steps_in_bf16_follow_pytorchs_autocast_on_the_kernels_of_llmc() {
    let Some(cuda) = device::cuda() else { return };
    run_in_bf16(&["llmc", "optim", "cublaslt", "fusion", "cuda"], Some(cuda));
}

#[test]
fn ten_adamw_steps_in_bf16_follow_pytorchs_autocast_with_attention_as_one_kernel() {
    let Some(cuda) = device::cuda() else { return };
    run_in_bf16(&["flash", "optim", "cublaslt", "fusion", "cuda"], Some(cuda));
    run_in_bf16(&["flash", "llmc", "optim", "cublaslt", "fusion", "cuda"], Some(cuda));
}

#[test]
fn ten_adamw_steps_follow_pytorch_with_attention_rounded_to_tf32() {
    let Some(cuda) = device::cuda() else { return };
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    // Operands have 10 bits of fraction, and the losses agree to about as many. Weights are not compared: where a
    // gradient is next to nothing, Adam makes a whole step of its noise.
    follows(&file, options(&["flash_tf32", "optim", "cublaslt", "fusion", "cuda"], Some(cuda), None), 5e-4);
}

/// How a program is made one of several ranks.
type Strategy = fn(Options) -> Options;

fn ddp(options: Options) -> Options {
    options.with_ddp("data")
}

/// Parameters and moments in parts, gathered once a step.
fn zero2(options: Options) -> Options {
    options.with_fsdp(sharding("arg0", "data", &CONFIG, false))
}

/// As [`zero2`], gathered again for the backward pass.
fn zero3(options: Options) -> Options {
    let mut sharding = sharding("arg0", "data", &CONFIG, false);
    sharding.gather_again = Some(1);
    options.with_fsdp(sharding)
}

/// The same global batch on so many ranks, each with its rows, by each strategy: PyTorch's losses and norms, the same
/// weights on all ranks, and the same bits from run to run.
fn ranks_follow(counts: &[usize], strategies: &[Strategy], device: fn(usize) -> Option<Device>, tolerance: f64) {
    let bytes = golden();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for count in counts {
        let mesh: Mesh = format!("data={count}").parse().unwrap();
        for strategy in strategies {
            let train = || {
                ranks::simulate(&mesh, |rank| {
                    let options = Options { mesh: mesh.clone(), ..options(&["default"], device(rank), None) };
                    let params = follows(&file, strategy(options), tolerance);
                    let leaves = fulgurite_runtime::tree::Tree::leaves(&params);
                    leaves.iter().map(|(_, array)| array.to_bytes().unwrap()).collect::<Vec<_>>()
                })
                .unwrap()
            };
            let (first, again) = (train(), train());
            assert!(first.iter().all(|weights| *weights == first[0]), "the ranks have the same weights");
            assert!(first == again, "two runs on {count} ranks give the same bits");
        }
    }
}

const STRATEGIES: [Strategy; 3] = [ddp, zero2, zero3];

#[test]
fn the_ranks_of_each_strategy_follow_pytorch() {
    ranks_follow(&[1, 2, 4], &STRATEGIES, |_| None, 1e-5);
}

#[test]
fn the_ranks_of_each_strategy_on_devices_follow_pytorch() {
    let Some(cuda) = device::cuda() else { return };
    let devices = fulgurite_runtime::device::find_kind(cuda.kind()).unwrap().count().unwrap() as usize;
    let counts: Vec<usize> = [1, 2, 4].into_iter().filter(|count| *count <= devices).collect();
    eprintln!("on {counts:?} devices");
    ranks_follow(&counts, &STRATEGIES, |rank| Some(Device::new("cuda", rank as u32)), DEVICE_TOLERANCE);
}
