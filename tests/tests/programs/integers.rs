//! Integers of 8 to 64 bits: the type in which two of them meet, and chains of operators that leave their range.

use fulgurite_executors as _;
use fulgurite_ops::core::promotion::promote_types;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::Tensor;
use fulgurite_runtime::{Array, DType};

fn integers() -> Vec<DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_integer()).collect()
}

#[test]
fn two_types_meet_in_the_smallest_that_holds_both() {
    let holds = |wide: DType, narrow: DType| {
        wide.limits().zip(narrow.limits()).is_some_and(|(wide, narrow)| wide.0 <= narrow.0 && wide.1 >= narrow.1)
    };
    for a in integers() {
        for b in integers() {
            let met = promote_types(a, b);
            assert_eq!(met, promote_types(b, a));
            let both = integers().into_iter().filter(|wide| holds(*wide, a) && holds(*wide, b));
            assert_eq!(both.min_by_key(|wide| wide.size()), Some(met), "{a} and {b}");
        }
        assert_eq!(promote_types(DType::Bool, a), a);
        assert_eq!(promote_types(a, DType::F16), DType::F16);
    }
}

/// The parts of a chain are one kernel, in whose registers numbers are wider than their type; every result keeps the
/// low bits alone, and what is computed of it sees no others.
#[test]
fn a_chain_beyond_the_range_keeps_the_low_bits_at_every_step() {
    for dtype in integers() {
        let (least, largest) = dtype.limits().unwrap();
        // Beyond 2^53 an f64 is no integer of its own.
        let (least, largest) = (least.max(-(1 << 53)), largest.min(1 << 53));
        let values = [largest, largest - 1, least, least + 1, 1, 3, 7];
        let numbers: Vec<f64> = values.iter().map(|value| *value as f64).collect();
        let x = Array::from_f64([7], dtype, &numbers).unwrap();
        let function = |x: Tensor| {
            let sum = add(x, x);
            (sum, mul(sum, 3), sub(3, sum), lt(sum, x))
        };
        let (mut sums, mut products, mut differences, mut less) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for value in values {
            let sum = dtype.wrapped(value.wrapping_add(value));
            sums.push(sum as f64);
            products.push(dtype.wrapped(sum.wrapping_mul(3)) as f64);
            differences.push(dtype.wrapped(3i64.wrapping_sub(sum)) as f64);
            less.push(f64::from(u8::from(sum < value)));
        }
        for executors in [&["cpu", "reference"][..], &["reference"]] {
            let options = Options::default().with_executors(executors).unwrap();
            let (sum, product, difference, below) = jit(function).options(options).call(x.clone()).unwrap();
            for (name, found, expected) in [
                ("x + x", &sum, &sums),
                ("3 (x + x)", &product, &products),
                ("3 - (x + x)", &difference, &differences),
                ("x + x < x", &below, &less),
            ] {
                assert_eq!(found.dtype(), if name.contains('<') { DType::Bool } else { dtype });
                assert_eq!(found.to_f64().unwrap(), *expected, "{name} in {dtype} by {executors:?}");
            }
        }
    }
}

/// An f64 has no place for the number.
#[test]
fn one_step_of_a_range_is_its_start_to_the_last_bit() {
    for number in [(1i64 << 53) + 1, i64::MAX, i64::MIN + 1] {
        let [start, zero] = [number, 0].map(|number| Array::from_bytes([], DType::I64, &number.to_le_bytes()).unwrap());
        let of_tensor = |start: Tensor| linspace::with(start, 7i64, 1).dtype(DType::I64).call();
        let of_number = move |zero: Tensor| add(linspace::with(number, 7i64, 1).dtype(DType::I64).call(), zero);
        for found in [jit(of_tensor).call(start).unwrap(), jit(of_number).call(zero).unwrap()] {
            assert_eq!(found.to_bytes().unwrap(), number.to_le_bytes(), "{number}");
        }
    }
}
