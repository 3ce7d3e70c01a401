//! What is wrong with data is told when it is met, by the operator that the author called and by its line: integers
//! that are divided by zero, alone and in a region of several, indices out of range, and weights that nothing can be
//! drawn by.

use fulgurite_executors as _;
use fulgurite_ops::core::RoundingMode;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::Tensor;
use fulgurite_runtime::{Array, Error};

fn divided(
    f: impl Fn(Tensor, Tensor) -> Tensor + 'static,
    executors: &[&str],
    divisors: &[i64],
) -> Result<Vec<i64>, Error> {
    let options = Options::default().with_executors(executors).unwrap();
    let f = jit(move |(a, b): (Tensor, Tensor)| f(a, b)).options(options);
    let dividends = Array::new([divisors.len()], &vec![-7i64; divisors.len()]).unwrap();
    f.call((dividends, Array::new([divisors.len()], divisors).unwrap()))?.to_vec()
}

#[test]
fn a_zero_among_the_divisors_is_an_error() {
    let floor = |a, b| div::with(a, b).rounding_mode(RoundingMode::Floor).call();
    let trunc = |a, b| div::with(a, b).rounding_mode(RoundingMode::Trunc).call();
    let fused = |a: Tensor, b: Tensor| remainder(a * 2, b + 0) + 1;
    type Case = (&'static str, fn(Tensor, Tensor) -> Tensor, [i64; 3]);
    let cases: [Case; 4] = [
        ("remainder", |a, b| remainder(a, b), [1, -1, 0]),
        ("div", floor, [-4, 3, -7]),
        ("div", trunc, [-3, 3, -7]),
        ("remainder", fused, [1, 1, 1]),
    ];
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        for (name, f, expected) in cases {
            assert_eq!(divided(f, executors, &[2, -2, 1]).unwrap(), expected, "{name} by {executors:?}");
            let message = divided(f, executors, &[2, 0, 1]).unwrap_err().to_string();
            let said = message.contains("an integer is divided by zero") && message.contains(name);
            assert!(said && message.contains("run_time_errors.rs"), "{executors:?}: {message}");
            assert!(!message.starts_with("mul"), "{message}");
            assert_eq!(divided(f, executors, &[]).unwrap(), [0i64; 0]);
        }
    }
}

#[test]
fn a_number_of_zero_is_an_error_as_well() {
    let message = divided(|a, _| remainder(a, Scalar::Int(0)), &["cpu"], &[1]).unwrap_err().to_string();
    assert!(message.contains("an integer is divided by zero"), "{message}");
    let f = jit(|a: Tensor| remainder(a, 0.0));
    assert!(f.call(Array::new([1], &[1.0f32]).unwrap()).unwrap().to_vec::<f32>().unwrap()[0].is_nan());
}

#[test]
fn the_largest_integers_are_divided_exactly() {
    let f = jit(|(a, b): (Tensor, Tensor)| div::with(a, b).rounding_mode(RoundingMode::Floor).call());
    let (a, b) = ([i64::MAX, i64::MIN, i64::MIN + 1], [i64::MAX - 1, 3, -1]);
    let (a, b) = (Array::new([3], &a).unwrap(), Array::new([3], &b).unwrap());
    let expected = [1, i64::MIN.div_euclid(3), i64::MAX];
    assert_eq!(f.call((a, b)).unwrap().to_vec::<i64>().unwrap(), expected);
}

#[test]
fn an_index_out_of_range_is_told_by_the_operator_that_was_called() {
    let f = jit(|(ids, weight): (Tensor, Tensor)| embedding(ids, weight));
    let ids = Array::new([2], &[0i64, 9]).unwrap();
    let message = f.call((ids, Array::new([3, 2], &[0.0f32; 6]).unwrap())).unwrap_err().to_string();
    assert!(message.starts_with("embedding: prims::index_select: index holds 9, which is out of range"), "{message}");
    assert!(message.contains("run_time_errors.rs:"), "{message}");
}

#[test]
fn weights_that_nothing_can_be_drawn_by_are_told_with_their_row() {
    let (nan, inf, half) = (f32::NAN, f32::INFINITY, 2f32.powi(127));
    let rows: [([f32; 4], &str); 6] = [
        ([0.5, nan, 1.0, 0.0], "row 1 of the weights holds NaN, expected finite numbers"),
        ([0.0, inf, 1.0, 0.0], "row 1 of the weights holds inf, expected finite numbers"),
        ([-inf, 0.0, 1.0, 0.0], "row 1 of the weights holds -inf, expected finite numbers"),
        ([-1.0, 2.0, -3.0, 0.0], "row 1 of the weights holds -1, expected finite numbers that are not negative"),
        ([0.0, -0.0, 0.0, 0.0], "row 1 of the weights has the sum 0, expected a finite one above 0"),
        ([half, half, 0.0, 0.0], "row 1 of the weights has the sum 340282366920938"),
    ];
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        let options = Options::default().with_executors(executors).unwrap();
        let f = jit(|(weights, generator): (Tensor, Tensor)| {
            multinomial::with(weights, 3, generator).replacement(true).call()
        })
        .options(options);
        let draw = |row: [f32; 4]| {
            let weights = [[1.0, 0.0, 2.0, 1.0], row].concat();
            f.call((Array::new([2, 4], &weights).unwrap(), Array::new([2], &[7i64, 1]).unwrap()))
        };
        let drawn = draw([0.0, 0.0, 3e38, 0.0]).unwrap().to_vec::<i64>().unwrap();
        assert!(drawn[3..] == [2, 2, 2] && drawn[..3].iter().all(|class| *class != 1), "{drawn:?}");
        for (row, what) in rows {
            let message = draw(row).unwrap_err().to_string();
            let said = message.starts_with("multinomial: ") && message.contains(what);
            assert!(said && message.contains("run_time_errors.rs:"), "{executors:?}, {row:?}: {message}");
        }
    }
}
