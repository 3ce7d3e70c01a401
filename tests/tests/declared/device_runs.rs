//! Programs on a device: how often they compile and record graphs, what they predict to need, and what a wrong index
//! becomes. Without a device each test says that it is skipped; `FULGURITE_REQUIRE_CUDA=1` makes that a failure.

mod contexts;
mod faults;
mod graphs;
mod several;

use fulgurite_models::Parameters;
use fulgurite_models::config::{GptConfig, Parameter};
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::step_scalars;
use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};

use crate::device;

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, dropout: 0.2, ..GptConfig::GPT2 };
const ROWS: usize = 2;

type Arguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>);

fn on(device: Device) -> Options {
    Options { device: Some(device), ..Options::default() }
}

fn batch(seed: usize) -> BatchTensors<Array> {
    let tokens = |shift: usize| -> Vec<i64> {
        (0..ROWS * CONFIG.context).map(|i| ((i * 7 + seed + shift) % CONFIG.vocabulary) as i64).collect()
    };
    let shape = [ROWS, CONFIG.context];
    BatchTensors::of_tokens(Array::new(shape, &tokens(0)).unwrap(), Array::new(shape, &tokens(1)).unwrap())
}

fn state() -> TrainState<Array> {
    let tree = |scale: f64| {
        Parameters::build(&CONFIG.parameters(), &mut |Parameter { shape, .. }| {
            let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| scale * (i as f64 * 0.7).sin()).collect();
            Array::from_f64(&shape[..], DType::F32, &values)
        })
        .unwrap()
    };
    let none = Parameters::none;
    TrainState { params: tree(0.1), exp_avg: tree(0.0), exp_avg_sq: tree(0.0), copies: none(), buffers: none() }
}

#[test]
fn a_hundred_steps_with_dropout_compile_once_and_record_one_graph() {
    let Some(cuda) = device::cuda() else { return };
    let optimizer = OptimizerSettings::default();
    let run = |options: Options| {
        let step =
            jit(|(state, batch, scalars): Arguments<Tensor>| train_step(&CONFIG, &optimizer, state, batch, scalars))
                .donate("arg0")
                .options(options);
        let mut training = state();
        let mut losses = Vec::new();
        for number in 1..=100 {
            let scalars = step_scalars(1e-3 / number as f64, number, 42).unwrap();
            let (next, loss, _) = step.call((training, batch(number as usize), scalars)).unwrap();
            training = next;
            losses.push(loss.item().unwrap());
        }
        let arguments = (training, batch(0), step_scalars(1e-3, 1, 42).unwrap());
        let compiled = step.compile(&arguments).unwrap();
        (losses, step.compiles(), compiled.program().counts())
    };
    let (losses, compiles, counts) = run(on(cuda));
    let counts = counts.unwrap();
    assert_eq!((compiles, counts.graphs, counts.runs), (1, 1, 100), "{counts:?}");
    assert!(counts.replays >= 98, "{counts:?}");
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[99] < losses[0], "{losses:?}");
    // Dropout draws the same numbers on the host: the same losses but for the order of sums.
    let (on_host, _, _) = run(Options::default());
    for (i, (found, expected)) in losses.iter().zip(&on_host).enumerate() {
        assert!((found / expected - 1.0).abs() <= 1e-3, "step {i}: {found} on the device, {expected} on the host");
    }
    // And the same bits the next time.
    assert_eq!(run(on(cuda)).0, losses);
}

#[test]
fn what_several_threads_run_is_right_while_programs_come_and_go() {
    let Some(cuda) = device::cuda() else { return };
    let weight = Array::new([3, 1], &[0.0_f32, 1.0, 2.0]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let weight = weight.clone();
            scope.spawn(move || {
                for round in 0..50_i64 {
                    // Programs come and go while other threads wait for the stream.
                    let look_up =
                        jit(|(indices, weight): (Tensor, Tensor)| embedding(indices, weight)).options(on(cuda));
                    let index = (thread + round) % 3;
                    let indices = Array::new([1], &[index]).unwrap();
                    let out = look_up.call((indices, weight.clone())).unwrap();
                    assert_eq!(out.to_vec::<f32>().unwrap(), [index as f32]);
                }
            });
        }
    });
}

#[test]
fn the_predicted_peak_is_what_is_allocated() {
    let Some(cuda) = device::cuda() else { return };
    // A process of its own, since the counter is the device's: the test runs itself again.
    alone("device_runs::the_predicted_peak_is_what_is_allocated", || predicted_is_counted(cuda));
}

fn predicted_is_counted(cuda: Device) {
    let optimizer = OptimizerSettings::default();
    let step = jit(|(state, batch, scalars): Arguments<Tensor>| train_step(&CONFIG, &optimizer, state, batch, scalars))
        .donate("arg0")
        .options(on(cuda));
    let mut training = state();
    for number in 1..=3 {
        let scalars = step_scalars(1e-3, number, 42).unwrap();
        (training, _, _) = step.call((training, batch(0), scalars)).unwrap();
    }
    let arguments = (training, batch(0), step_scalars(1e-3, 1, 42).unwrap());
    let predicted = step.compile(&arguments).unwrap().program().memory().peak();
    let counted = fulgurite_runtime::device::DeviceState::of(cuda).unwrap().context().memory_held().peak as u64;
    assert_eq!(predicted, counted);
}

/// Has a kernel with a bug.
#[executor(device = "cuda")]
pub mod buggy {}

/// The input.
#[operator(name = "buggy::same", no_grad = "of no interest here")]
pub mod same {
    fn same(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * 1.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
    }
}

#[implementation(of = same, by = buggy)]
mod same_by_buggy {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(source_files!["device_runs/trap.cu"]);
        plan.launch("trap", LaunchShape::linear(1, 1), binds![input, out])
    }
}

/// Runs a test again in a process of its own, in which `f` is called: a fault takes the whole process' context with it.
fn alone(name: &str, f: impl FnOnce()) {
    alone_with(name, &[], f);
}

/// As [`alone`], with variables of the environment.
fn alone_with(name: &str, variables: &[(&str, &str)], f: impl FnOnce()) {
    const ALONE: &str = "FULGURITE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return f();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(ALONE, "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let [said, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let passed = output.status.success() && said.contains("1 passed");
    // Why it panicked is on standard error.
    assert!(passed, "{name}: {}\n{said}\n{errors}", output.status);
}

fn fault(graph: bool) -> String {
    let Some(cuda) = device::cuda() else { return String::new() };
    let options = Options { graph, ..on(cuda) }.with_executors(&["buggy", "fusion", "cuda"]).unwrap();
    let f = jit(|x: Tensor| same(exp(x))).named("with_a_bug").options(options);
    let x = || Array::new([3], &[0.0_f32, 1.0, 2.0]).unwrap();
    let first = f.call(x()).and_then(|out| out.to_vec::<f32>());
    first.unwrap_err().to_string()
}

#[test]
fn a_kernel_fault_names_its_symbol_and_line_where_symbols_are_waited_for() {
    if device::cuda().is_none() {
        return;
    }
    alone("device_runs::a_kernel_fault_names_its_symbol_and_line_where_symbols_are_waited_for", || {
        let text = fault(false);
        assert!(text.contains("buggy::same") && text.contains("by buggy"), "{text}");
        assert!(text.contains("ILLEGAL_ADDRESS"), "{text}");
    });
}

#[test]
fn a_kernel_fault_in_a_graph_names_the_function_and_says_how_to_find_the_symbol() {
    if device::cuda().is_none() {
        return;
    }
    alone("device_runs::a_kernel_fault_in_a_graph_names_the_function_and_says_how_to_find_the_symbol", || {
        let text = fault(true);
        assert!(text.contains("with_a_bug") && text.contains("FULGURITE_GRAPH=0"), "{text}");
    });
}
