//! Graphs of programs whose inputs and outputs change from run to run: in value, in place, or both. Results are those
//! of the host.

use fulgurite_ops::prelude::*;
use fulgurite_runtime::jit::Jit;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};

use super::on;
use crate::device;

/// Beyond 1 MiB an array is used where it is.
const LARGE: [usize; 2] = [1024, 512];

fn array(shape: &[usize], seed: usize) -> Array {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i: usize| ((i * 31 + seed * 17) % 113) as f64 / 64.0 - 0.75).collect();
    Array::from_f64(shape, DType::F32, &values).unwrap()
}

fn assert_near(found: &Array, expected: &Array, what: &str) {
    let (found, expected) = (found.to_f64().unwrap(), expected.to_f64().unwrap());
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let near = (found - expected).abs() <= 2e-4 * expected.abs().max(1.0);
        assert!(near, "{what}: element {i} is {found}, expected {expected}");
    }
}

/// Many steps on small values, two of which use what is large: a product and a region.
fn long(large: Tensor, small: Tensor, weight: Tensor) -> (Tensor, Tensor) {
    let mut h = small;
    for _ in 0..12 {
        h = matmul(tanh(h), weight) * 0.25;
    }
    let narrow = matmul(large, h);
    (large * sum(h) + 1.0, narrow)
}

/// Few steps, all of which use what is large.
fn short(large: Tensor, small: Tensor, weight: Tensor) -> (Tensor, Tensor) {
    (large * sum(small), matmul(large, weight))
}

type Function = fn(Tensor, Tensor, Tensor) -> (Tensor, Tensor);
type Arguments<T> = (T, T, T);

fn compiled(
    f: Function,
    device: Device,
) -> Jit<Arguments<Array>, (Tensor, Tensor), impl Fn(Arguments<Tensor>) -> (Tensor, Tensor)> {
    jit(move |(large, small, weight): Arguments<Tensor>| f(large, small, weight)).options(on(device))
}

#[test]
fn inputs_that_change_between_replays_are_seen() {
    let Some(cuda) = device::cuda() else { return };
    for (name, f) in [("long", long as Function), ("short", short)] {
        let (there, here) = (compiled(f, cuda), compiled(f, Device::CPU));
        // Kept alive, so that every run's arrays are elsewhere.
        let mut kept = Vec::new();
        let weight = array(&[512, 512], 3);
        let mut counted = None;
        for run in 0..10 {
            let (large, small) = (array(&LARGE, run), array(&[512, 512], 100 + run));
            let on_device = large.to_device(cuda).unwrap();
            // Small inputs come from the host, or from the device, in turn.
            let from = |array: &Array, turn: usize| match (run + turn) % 2 {
                0 => array.clone(),
                _ => array.to_device(cuda).unwrap(),
            };
            let arguments = (on_device, from(&small, 0), from(&weight, run / 2));
            let program = there.compile(&arguments).unwrap();
            let outputs = there.call(arguments.clone()).unwrap();
            let expected = here.call((large, small, weight.clone())).unwrap();
            assert_near(&outputs.0, &expected.0, &format!("{name}, run {run}, first"));
            assert_near(&outputs.1, &expected.1, &format!("{name}, run {run}, second"));
            kept.push((arguments, outputs));
            counted = program.program().counts().filter(|counts| counts.runs > 2).or(counted);
        }
        let counts = counted.unwrap();
        println!("{name}: {counts:?}");
        assert!(counts.graphs <= 1, "{name}: no graph is recorded for addresses that do not come again: {counts:?}");
        if name == "long" {
            assert!(counts.updates > 0 && counts.updates + 2 >= counts.replays, "{counts:?}");
        }
    }
}

#[test]
fn addresses_that_come_again_have_a_graph() {
    let Some(cuda) = device::cuda() else { return };
    let f = jit(|(large, small): (Tensor, Tensor)| sum(large * 2.0) + sum(small)).options(on(cuda));
    let larges = [1, 2].map(|seed| array(&LARGE, seed).to_device(cuda).unwrap());
    let sums = larges.each_ref().map(|large| large.to_f64().unwrap().iter().sum::<f64>());
    let mut program = None;
    for run in 0..12 {
        let small = array(&[7], run);
        let of_small: f64 = small.to_f64().unwrap().iter().sum();
        let arguments = (larges[run % 2].clone(), small);
        program = Some(f.compile(&arguments).unwrap());
        let found = f.call(arguments).unwrap().item().unwrap();
        let expected = 2.0 * sums[run % 2] + of_small;
        assert!((found - expected).abs() <= 1e-3 * expected.abs().max(1.0), "run {run}: {found} for {expected}");
    }
    let counts = program.unwrap().program().counts().unwrap();
    assert!(counts.graphs <= 2 && counts.replays >= 8, "{counts:?}");
}

#[test]
fn threads_that_share_a_program_get_their_own_results() {
    let Some(cuda) = device::cuda() else { return };
    let there = compiled(long, cuda);
    let weight = array(&[512, 512], 3);
    let of = |seed: usize| (array(&LARGE, seed).to_device(cuda).unwrap(), array(&[512, 512], seed), weight.clone());
    let program = there.compile(&of(0)).unwrap();
    let here = compiled(long, Device::CPU);
    let expected: Vec<(Array, Array)> = (0..4)
        .map(|seed| here.call((array(&LARGE, seed), array(&[512, 512], seed), weight.clone())).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (thread, expected) in expected.iter().enumerate() {
            let (program, of) = (&program, &of);
            scope.spawn(move || {
                for round in 0..8 {
                    let (large, small, weight) = of(thread);
                    let outputs = program.program().run(vec![large, small, weight]).unwrap();
                    assert_near(&outputs[0], &expected.0, &format!("thread {thread}, round {round}, first"));
                    assert_near(&outputs[1], &expected.1, &format!("thread {thread}, round {round}, second"));
                }
            });
        }
    });
}

#[test]
fn hundreds_of_small_inputs_on_the_device_are_gathered() {
    let Some(cuda) = device::cuda() else { return };
    let total = jit(|all: Vec<Tensor>| all.iter().skip(1).fold(all[0], |sum, next| sum + *next)).options(on(cuda));
    for run in 0..4_i64 {
        let all: Vec<Array> = (0..200)
            .map(|i: i64| {
                let array = Array::new([3], &[i, i * run, 1]).unwrap();
                if i % 3 == 0 { array } else { array.to_device(cuda).unwrap() }
            })
            .collect();
        let found = total.call(all).unwrap().to_vec::<i64>().unwrap();
        assert_eq!(found, [199 * 100, 199 * 100 * run, 200], "run {run}");
    }
}

/// A value of the only row that is read by all of it and written over: seen by every element as it was before.
#[test]
fn a_number_that_is_updated_in_place_is_read_before() {
    let Some(cuda) = device::cuda() else { return };
    let f = jit(|(x, step): (Tensor, Tensor)| {
        let next = step + 1.0;
        ((x * 2.0) / expand(next, [1, 200_000]), next)
    })
    .donate("arg1")
    .results(["y", "arg1"])
    .options(on(cuda));
    let x = Array::new([1, 200_000], &vec![3.0_f32; 200_000]).unwrap().to_device(cuda).unwrap();
    let mut step = Array::new([1, 1], &[0.0_f32]).unwrap().to_device(cuda).unwrap();
    for run in 1..200 {
        let (y, next) = f.call((x.clone(), step)).unwrap();
        let expected = 6.0 / run as f32;
        let y = y.to_vec::<f32>().unwrap();
        assert!(y.iter().all(|found| *found == expected), "run {run}");
        assert_eq!(next.to_vec::<f32>().unwrap(), [run as f32]);
        step = next;
    }
}

/// For people: what operators over few long lines take, by symbol. Nothing but the results is asserted.
#[test]
fn few_long_lines_use_the_device() {
    let Some(cuda) = device::cuda() else { return };
    const ELEMENTS: usize = 100_000_000;
    let x = Array::zeros_on(cuda, [ELEMENTS], DType::F32).unwrap();
    let ones = jit(|x: Tensor| x + 1.0).options(on(cuda)).call(x).unwrap();
    let times = |name: &str, f: fn(Tensor) -> Tensor, expected: f64| {
        let f = jit(f).options(on(cuda));
        let mut microseconds = f64::INFINITY;
        for _ in 0..5 {
            let (result, profile) = f.profile(ones.clone()).unwrap();
            assert_eq!(result.to_f64().unwrap()[0], expected, "{name}");
            microseconds = microseconds.min(profile.total().as_secs_f64() * 1e6);
        }
        println!("{name:<24} {microseconds:>8.0} us, {:>6.0} GB/s read", 4.0 * ELEMENTS as f64 / microseconds / 1e3);
    };
    times("copy", |x| x * 1.0, 1.0);
    times("sum", |x| sum(x), ELEMENTS as f64);
    times("sum of squares", |x| sum(x * x), ELEMENTS as f64);
    times("amax", |x| amax(x), 1.0);
    times("topk of 10", |x| topk(x, 10).0, 1.0);
    times("topk of 100000", |x| topk(x, 100_000).0, 1.0);
}

/// Inputs that are used where they are, begin anywhere, and go backwards.
#[test]
fn misaligned_inputs_of_negative_strides_are_read_right() {
    let Some(cuda) = device::cuda() else { return };
    let f = jit(|x: Tensor| x * 2.0).options(on(cuda));
    for (rows, columns) in [(1001, 1003), (3, 5)] {
        let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        let (bytes, wide) =
            (values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(), columns as isize);
        for strides in [[-wide, 1], [wide, -1], [-wide, -1], [wide, 1]] {
            let array = Array::strided([rows, columns], DType::F32, &strides, &bytes).unwrap();
            for skipped in 0..3 {
                let part = array.slice(1, skipped, columns, 1).unwrap();
                let expected: Vec<f32> = part.to_vec::<f32>().unwrap().iter().map(|value| 2.0 * value).collect();
                let found = f.call(part.to_device(cuda).unwrap()).unwrap().to_vec::<f32>().unwrap();
                assert!(found == expected, "{rows}x{columns}, strides {strides:?}, from column {skipped}");
            }
        }
    }
}
