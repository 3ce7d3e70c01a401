//! Random numbers of whole tensors: their moments, that permutations are permutations, what a generator decides, parts
//! of larger tensors, and that devices draw the same bits.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};

use crate::device;

/// Numbers of a tensor: enough that the deviation of a mean is 0.002 of that of a number.
const COUNT: usize = 1 << 18;

fn drawn_on(device: Device, by: &[i64], draw: fn(Tensor) -> Tensor) -> Vec<f64> {
    let options = Options { device: Some(device).filter(|device| !device.is_cpu()), ..Options::default() };
    let draw = jit(move |generator: Tensor| draw(generator)).options(options);
    draw.call(Array::new([by.len()], by).unwrap()).unwrap().to_f64().unwrap()
}

fn drawn(seed: i64, draw: fn(Tensor) -> Tensor) -> Vec<f64> {
    drawn_on(Device::CPU, &[seed, 0], draw)
}

/// The mean of the powers 1 to 4 of what is drawn, minus `centre`, after the first.
fn moments(numbers: &[f64]) -> [f64; 4] {
    let mean =
        |power: i32, centre: f64| numbers.iter().map(|x| (x - centre).powi(power)).sum::<f64>() / numbers.len() as f64;
    let centre = mean(1, 0.0);
    [centre, mean(2, centre), mean(3, centre), mean(4, centre)]
}

fn like(generator: Tensor) -> Tensor {
    zeros::with([COUNT]).device(generator.device().to_string()).call()
}

/// Each distribution: a draw, and its four moments.
type Case = (&'static str, fn(Tensor) -> Tensor, [f64; 4]);

const CASES: [Case; 8] = [
    ("rand", |g| rand(vec![COUNT], g), [0.5, 1.0 / 12.0, 0.0, 1.0 / 80.0]),
    ("randn", |g| randn(vec![COUNT], g), [0.0, 1.0, 0.0, 3.0]),
    ("randn in f64", |g| randn::with(vec![COUNT], g).dtype(DType::F64).call(), [0.0, 1.0, 0.0, 3.0]),
    ("randint", |g| randint::with(-3, 5, vec![COUNT], g).dtype(DType::F32).call(), [0.5, 5.25, 0.0, 48.5625]),
    ("normal", |g| normal::with(2.0, 0.5, g).size(vec![COUNT]).call(), [2.0, 0.25, 0.0, 0.1875]),
    ("exponential", |g| exponential(like(g), 2.0, g), [0.5, 0.25, 0.25, 0.5625]),
    ("bernoulli", |g| bernoulli::with(like(g), g).p(0.25).call(), [0.25, 0.1875, 0.09375, 0.082_031_25]),
    ("geometric", |g| geometric(like(g), 0.5, g), [2.0, 2.0, 6.0, 38.0]),
];

#[test]
fn moments_are_those_of_the_distributions() {
    for (name, draw, expected) in CASES {
        let found = moments(&drawn(5, draw));
        for (power, (found, expected)) in found.iter().zip(expected).enumerate() {
            // Of heavy tails the higher moments vary more.
            let most = [0.01, 0.02, 0.05, 0.08][power] * expected.abs().max(1.0);
            assert!((found - expected).abs() < most, "{name}, moment {}: {found}, expected {expected}", power + 1);
        }
    }
}

#[test]
fn normal_numbers_are_symmetric_and_have_the_tails_of_the_distribution() {
    let numbers = drawn(11, |g| randn(vec![COUNT], g));
    for (bound, part) in [(0.0, 0.5), (1.0, 0.158_655), (2.0, 0.022_750), (3.0, 0.001_350)] {
        for sign in [-1.0, 1.0] {
            let beyond = numbers.iter().filter(|x| sign * **x > bound).count() as f64 / COUNT as f64;
            let most = 5.0 * (part * (1.0 - part) / COUNT as f64).sqrt();
            assert!((beyond - part).abs() < most, "{beyond} beyond {bound}, expected {part}");
        }
    }
    assert!(numbers.iter().all(|x| x.abs() < 5.43) && numbers.iter().any(|x| x.abs() > 4.0));
    let neighbours = numbers.windows(2).map(|two| two[0] * two[1]).sum::<f64>() / COUNT as f64;
    assert!(neighbours.abs() < 0.01, "neighbours are correlated: {neighbours}");
}

#[test]
fn every_integer_is_drawn_as_often() {
    let numbers = drawn(3, |g| randint(-2, 5, vec![COUNT], g));
    for number in -2..5 {
        let share = numbers.iter().filter(|x| **x == f64::from(number)).count() as f64 / COUNT as f64;
        assert!((share - 1.0 / 7.0).abs() < 0.005, "{number} has the share {share}");
    }
    assert!(numbers.iter().all(|x| (-2.0..5.0).contains(x)));
}

#[test]
fn permutations_have_every_number_once_and_every_order() {
    let mut firsts = [0; 4];
    for seed in 0..400 {
        let order = drawn(seed, |g| randperm(4, g));
        firsts[order[0] as usize] += 1;
        let mut sorted = order.clone();
        sorted.sort_by(f64::total_cmp);
        assert_eq!(sorted, [0.0, 1.0, 2.0, 3.0], "{order:?}");
    }
    assert!(firsts.iter().all(|count| (65..135).contains(count)), "{firsts:?}");
    let mut long = drawn(1, |g| randperm(5000, g));
    assert!(long.windows(2).filter(|two| two[0] < two[1]).count().abs_diff(2500) < 200);
    long.sort_by(f64::total_cmp);
    assert!(long.iter().enumerate().all(|(i, x)| i as f64 == *x));
}

#[test]
fn a_generator_decides_and_draws_of_one_program_differ() {
    for (name, draw, _) in CASES {
        assert_eq!(drawn(7, draw), drawn(7, draw), "{name}");
        assert_ne!(drawn(7, draw), drawn(8, draw), "{name}");
        assert_ne!(drawn_on(Device::CPU, &[7, 0], draw), drawn_on(Device::CPU, &[7, 1], draw), "{name}");
    }
    let both = drawn(7, |g| stack(vec![randn(vec![64], g), randn(vec![64], g)]));
    assert_ne!(both[..64], both[64..]);
}

#[test]
fn parts_are_those_of_the_larger_tensor() {
    let whole = drawn(9, |g| randn(vec![36], g));
    for part in 0..4 {
        let own = drawn_on(Device::CPU, &[9, 0, part], |g| randn(vec![9], g));
        assert_eq!(own, whole[part as usize * 9..][..9], "part {part}");
    }
}

#[test]
fn probabilities_outside_of_their_range_are_an_error() {
    let draw = jit(|(p, g): (Tensor, Tensor)| bernoulli(p, g));
    let generator = || Array::new([2], &[1i64, 0]).unwrap();
    for wrong in [1.5f32, -0.25, f32::NAN] {
        let message = draw.call((Array::new([2], &[0.5, wrong]).unwrap(), generator())).unwrap_err().to_string();
        assert!(message.contains("bernoulli") && message.contains("random.rs"), "{message}");
    }
    let fine = draw.call((Array::new([3], &[0.0f32, 1.0, 0.0]).unwrap(), generator())).unwrap();
    assert_eq!(fine.to_vec::<f32>().unwrap(), [0.0, 1.0, 0.0]);
}

/// Numbers are made of counters by operations that every device rounds alike.
#[test]
fn devices_draw_the_same_bits() {
    let Some(cuda) = device::cuda() else { return };
    for (name, draw, _) in CASES {
        let [host, there] = [Device::CPU, cuda].map(|device| drawn_on(device, &[5, 2], draw));
        let differ = host.iter().zip(&there).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differ, 0, "{name}");
    }
    let draw = |g: Tensor| randperm(100_000, g);
    assert_eq!(drawn_on(Device::CPU, &[5, 2], draw), drawn_on(cuda, &[5, 2], draw));
}
