//! Quotients rounded to integers, and negation, at infinities and zeros: what PyTorch 2.15 gave on the CPU in each of
//! these types, to the bit, but that all NaNs are one. Its `floor` is `(a - fmod(a, b)) / b`, less one where the
//! remainder has another sign than `b`, taken to the nearest integer, with a zero of the sign of `a / b`, and `a / b`
//! itself where `b` is zero; its `trunc` is that of `a / b`.

use fulgurite_executors as _;
use fulgurite_ops::core::RoundingMode;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::Tensor;
use fulgurite_runtime::{Array, DType};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// `a`, `b`, and `torch.div(a, b, rounding_mode=...)` by "floor" and by "trunc".
const QUOTIENTS: [[f64; 4]; 31] = [
    [INF, 2.0, NAN, INF],
    [INF, -2.0, NAN, -INF],
    [-INF, 2.0, NAN, -INF],
    [-INF, -2.0, NAN, INF],
    [INF, INF, NAN, NAN],
    [-INF, INF, NAN, NAN],
    [INF, 0.0, INF, INF],
    [INF, -0.0, -INF, -INF],
    [1.0, 0.0, INF, INF],
    [-1.0, 0.0, -INF, -INF],
    [1.0, -0.0, -INF, -INF],
    [0.0, 0.0, NAN, NAN],
    [NAN, 1.0, NAN, NAN],
    [1.0, NAN, NAN, NAN],
    [3.0, INF, 0.0, 0.0],
    [-3.0, INF, -1.0, -0.0],
    [3.0, -INF, -1.0, -0.0],
    [-3.0, -INF, 0.0, 0.0],
    [0.0, INF, 0.0, 0.0],
    [-0.0, INF, -0.0, -0.0],
    [0.0, -INF, -0.0, -0.0],
    [0.0, 3.0, 0.0, 0.0],
    [-0.0, 3.0, -0.0, -0.0],
    [0.0, -3.0, -0.0, -0.0],
    [-0.0, -3.0, 0.0, 0.0],
    [0.5, 2.0, 0.0, 0.0],
    [-0.5, 2.0, -1.0, -0.0],
    [0.5, -2.0, -1.0, -0.0],
    [-0.5, -2.0, 0.0, 0.0],
    [7.0, -2.0, -4.0, -3.0],
    [-7.0, -2.0, 3.0, 3.0],
];

/// Equal bits, or two NaNs.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn array(dtype: DType, values: &[f64]) -> Array {
    Array::from_f64([values.len()], dtype, values).unwrap()
}

#[test]
fn quotients_of_infinities_and_zeros_are_those_of_pytorch() {
    let [a, b] = [0, 1].map(|column| QUOTIENTS.map(|row| row[column]));
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for (mode, column) in [(RoundingMode::Floor, 2), (RoundingMode::Trunc, 3)] {
                for fuse in [true, false] {
                    let mut options = Options::default().with_executors(executors).unwrap();
                    options.fuse = fuse;
                    let f = jit(move |(a, b): (Tensor, Tensor)| div::with(a, b).rounding_mode(mode).call())
                        .options(options);
                    let got = f.call((array(dtype, &a), array(dtype, &b))).unwrap().to_f64().unwrap();
                    for (got, row) in got.iter().zip(QUOTIENTS) {
                        let [a, b, ..] = row;
                        assert!(same(*got, row[column]), "{a} by {b}, {mode:?}, {dtype}, {executors:?}: {got}");
                    }
                }
            }
        }
    }
}

/// PyTorch's gradients of both operands are zero everywhere, also where the quotient is infinite or no number.
#[test]
fn gradients_are_zero_where_the_divisor_is_zero_as_well() {
    let (a, b) = ([1.0, -1.0, 0.0, 7.0, INF], [0.0, -0.0, 0.0, 2.0, 3.0]);
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        for dtype in [DType::F16, DType::F32, DType::F64] {
            for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
                let options = Options::default().with_executors(executors).unwrap();
                let gradients = jit(move |operands: (Tensor, Tensor)| {
                    value_and_grad(operands, |(a, b)| div::with(*a, *b).rounding_mode(mode).call().sum()).1
                });
                let of = gradients.options(options).call((array(dtype, &a), array(dtype, &b))).unwrap();
                for gradient in [of.0, of.1] {
                    assert_eq!(gradient.to_f64().unwrap(), [0.0; 5], "{mode:?}, {dtype}, {executors:?}");
                }
            }
        }
    }
}

#[test]
fn a_divisor_that_is_a_number_of_zero_or_infinity() {
    for (b, expected) in [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -1.0)] {
        let f = jit(move |a: Tensor| div::with(a, Scalar::Float(b)).rounding_mode(RoundingMode::Floor).call());
        let got = f.call(array(DType::F32, &[2.0])).unwrap().to_f64().unwrap();
        assert!(same(got[0], expected), "2 by {b}: {}", got[0]);
    }
}

#[test]
fn negated_zeros_have_the_other_sign() {
    let values = [0.0, -0.0, INF, -INF, NAN, 1.5];
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let f = jit(|x: Tensor| neg(x)).options(Options::default().with_executors(executors).unwrap());
            let got = f.call(array(dtype, &values)).unwrap().to_f64().unwrap();
            for (got, value) in got.iter().zip(values) {
                assert!(same(*got, -value), "-({value}) as {dtype} by {executors:?}: {got}");
            }
        }
    }
}

/// Every pair of significands of bf16, and some of f16, with quotients up to where the type has no odd integers:
/// against exact arithmetic with integers.
#[test]
fn quotients_of_all_significands_are_exact() {
    for (dtype, digits, step) in [(DType::BF16, 8, 1), (DType::F16, 11, 17)] {
        let (low, high) = (1i64 << (digits - 1), 1i64 << digits);
        for shift in [0, 1, digits - 2, digits - 1, digits] {
            let pairs: Vec<(i64, i64)> = (low..high)
                .flat_map(|a| (low..high).step_by(step).map(move |b| (a << shift, b)))
                .flat_map(|(a, b)| [(a, b), (-a, b)])
                .filter(|(a, _)| dtype != DType::F16 || a.abs() < 1 << 16)
                .collect();
            let column =
                |of: fn(&(i64, i64)) -> i64| -> Vec<f64> { pairs.iter().map(|pair| of(pair) as f64).collect() };
            let (a, b) = (array(dtype, &column(|pair| pair.0)), array(dtype, &column(|pair| pair.1)));
            for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
                let f = jit(move |(a, b): (Tensor, Tensor)| div::with(a, b).rounding_mode(mode).call());
                let got = f.call((a.clone(), b.clone())).unwrap().to_f64().unwrap();
                let exact: Vec<f64> = (pairs.iter())
                    .map(|(a, b)| if mode == RoundingMode::Floor { a.div_euclid(*b) } else { a / b } as f64)
                    .collect();
                // Beyond the type's digits it is rounded.
                let exact = array(dtype, &exact).to_f64().unwrap();
                let wrong = (0..pairs.len()).filter(|i| got[*i] != exact[*i]);
                let (count, first) = (wrong.clone().count(), wrong.clone().next().unwrap_or(0));
                assert_eq!(count, 0, "{mode:?} {dtype}: {:?} gave {}", pairs[first], got[first]);
            }
        }
    }
}
