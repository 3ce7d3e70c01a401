//! Complex numbers in whole programs: what the stage `complex_to_real` leaves, gradients, the types that meet, and
//! refusals by name.

use fulgurite_executors as _;
use fulgurite_ops::core::promotion::promote_types;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::executor::{JOIN, VIEW};
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::{Tensor, checkpoint, value_and_grad};
use fulgurite_runtime::{Array, DType};

const NUMBERS: [f64; 6] = [1.0, 2.0, -3.0, 0.5, 0.0, -1.0];

fn three(dtype: DType) -> Array {
    Array::from_f64([3], dtype, &NUMBERS).unwrap()
}

#[test]
fn a_program_has_complex_numbers_at_its_ends_alone_and_copies_none() {
    let f = jit(|x: Tensor| mul(x, conj(x)));
    let x = three(DType::C64);
    let y = f.call(x.clone()).unwrap();
    assert_eq!((y.dtype(), y.to_f64().unwrap()), (DType::C64, vec![5.0, 0.0, 9.25, 0.0, 1.0, 0.0]));
    let compiled = f.compile(&x).unwrap();
    let first = compiled.stages().iter().position(|stage| stage.name == "complex_to_real").unwrap();
    assert_eq!(first, 1);
    for stage in &compiled.stages()[first..] {
        let block = &stage.trace.block;
        let complex = block.values.iter().enumerate().filter(|(_, value)| value.meta.dtype().is_complex());
        for (i, value) in complex {
            let is = |id: &fulgurite_runtime::trace::ValueId| id.index() == i;
            assert!(block.parameters.iter().chain(&block.results).any(is), "{} in\n{}", value.name, stage.trace);
        }
    }
    let last = &compiled.stages().last().unwrap().trace;
    let runs = last.block.symbols.iter().filter(|line| !matches!(line.executor, Some(VIEW | JOIN)));
    let runs = runs.filter(|line| !matches!(line.callee, fulgurite_runtime::trace::Callee::Delete));
    assert_eq!(runs.count(), 1, "{last}");
}

#[test]
fn a_program_without_complex_numbers_has_no_such_stage() {
    let compiled = jit(|x: Tensor| add(x, x)).compile(&Array::scalar(1.0)).unwrap();
    assert!(compiled.stage("complex_to_real").is_none());
}

/// A pullback copies a cotangent that is not in row-major order: of complex numbers both parts.
#[test]
fn cotangents_may_have_gaps() {
    let f = jit(|x: Tensor| mul(x, x)).arguments(["x"]).results(["y"]).vjp();
    for dtype in [DType::C64, DType::C128] {
        let whole = Array::from_f64([4], dtype, &[1.0, 2.0, 8.0, 8.0, 3.0, -4.0, 8.0, 8.0]).unwrap();
        let cotangent = whole.slice(0, 0, 4, 2).unwrap();
        assert!(!cotangent.is_contiguous());
        let x = Array::from_f64([2], dtype, &[1.0, 1.0, -2.0, 0.5]).unwrap();
        let (_, pullback) = f.call(x).unwrap();
        let gradient = pullback.call([("y", cotangent)]).unwrap().of("x").unwrap().clone();
        // The cotangent times the conjugate of 2x.
        assert_eq!((gradient.dtype(), gradient.to_f64().unwrap()), (dtype, vec![6.0, 2.0, -16.0, 13.0]));
    }
}

#[test]
fn arguments_that_come_back_and_results_that_are_one() {
    let f = jit(|x: Tensor| (x, neg(neg(x)), view_as_real(x), view_as_complex(view_as_real(x))));
    let (same, twice, parts, again) = f.call(three(DType::C128)).unwrap();
    for array in [&same, &twice, &parts, &again] {
        assert_eq!(array.to_f64().unwrap(), NUMBERS);
    }
    assert_eq!((same.dtype(), twice.dtype(), again.dtype()), (DType::C128, DType::C128, DType::C128));
    assert_eq!((parts.dtype(), parts.shape()), (DType::F64, &[3, 2][..]));
    // Of a part of a tensor, whose elements are apart.
    let whole = Array::from_f64([4], DType::C64, &[9.0, 9.0, 1.0, 2.0, 8.0, 8.0, 3.0, 4.0]).unwrap();
    let odd = whole.slice(0, 1, 4, 2).unwrap();
    assert_eq!(jit(conj).call(odd).unwrap().to_f64().unwrap(), [1.0, -2.0, 3.0, -4.0]);
}

/// PyTorch's convention: of `|z|²` it is `2 z`, of `Re z²` the conjugate of `2 z`.
#[test]
fn gradients_of_real_losses_by_complex_numbers() {
    let by = |loss: fn(Tensor) -> Tensor| {
        let f = jit(move |x: Tensor| value_and_grad(x, |x| loss(*x)));
        f.call(three(DType::C128)).unwrap().1
    };
    let squared = by(|x| sum(real(mul(x, conj(x)))));
    assert_eq!((squared.dtype(), squared.to_f64().unwrap()), (DType::C128, NUMBERS.map(|part| 2.0 * part).to_vec()));
    let of_square = by(|x| sum(real(mul(x, x))));
    assert_eq!(of_square.to_f64().unwrap(), [2.0, -4.0, -6.0, -1.0, 0.0, 2.0]);
    let kept = by(|x| checkpoint("part", || sum(real(mul(x, x)))));
    assert_eq!(kept.to_f64().unwrap(), of_square.to_f64().unwrap());
    let stopped = by(|x| sum(real(mul(x, detach(x)))));
    assert_eq!(stopped.to_f64().unwrap(), [1.0, -2.0, -3.0, -0.5, 0.0, 1.0]);
    let none = by(|_| real(ones([])));
    assert_eq!(none.to_f64().unwrap(), [0.0; 6]);
}

#[test]
fn types_meet_as_pytorchs_do() {
    for (a, b, met) in [
        (DType::F32, DType::C64, DType::C64),
        (DType::F64, DType::C64, DType::C128),
        (DType::F16, DType::C64, DType::C64),
        (DType::I64, DType::C64, DType::C64),
        (DType::Bool, DType::C128, DType::C128),
        (DType::C64, DType::C128, DType::C128),
        (DType::C64, DType::C64, DType::C64),
    ] {
        assert_eq!((promote_types(a, b), promote_types(b, a)), (met, met), "{a} and {b}");
    }
    // A number without dimensions does not decide about the parts.
    let one = Array::from_f64([], DType::C128, &[1.0, 1.0]).unwrap();
    let x = Array::from_f64([1], DType::F32, &[2.0]).unwrap();
    let product = jit(|(a, b): (Tensor, Tensor)| mul(a, b)).call((one, x)).unwrap();
    assert_eq!((product.dtype(), product.to_f64().unwrap()), (DType::C64, vec![2.0, 2.0]));
}

#[test]
fn who_takes_no_complex_numbers_refuses_them_by_name() {
    let refused = |f: fn(Tensor) -> Tensor| jit(f).call(three(DType::C64)).unwrap_err().to_string();
    for (error, parts) in [
        (refused(erf), ["erf", "input has dtype c64, expected any real dtype; it takes no complex numbers there"]),
        (refused(|x| lt(x, x)), ["lt", "input has dtype c64"]),
        (refused(|x| fulgurite_ops::prims::add(x, x)), ["prims::add", "input has dtype c64"]),
        (refused(|x| to(x, DType::F32)), ["to", "input is c64, which becomes no f32"]),
        (refused(|x| arange::with(0, 4).dtype(DType::C64).call() + real(x)), ["arange", "it makes no complex numbers"]),
        (refused(|x| sum::with(x).dtype(DType::F32).call()), ["sum", "a sum of c64 has no dtype f32"]),
    ] {
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let options = Options::default().with_executors(&["reference"]).unwrap();
    let halves = Array::from_f64([2, 2], DType::BF16, &[1.0; 4]).unwrap();
    let error = jit(view_as_complex).options(options).call(halves).unwrap_err().to_string();
    assert!(error.contains("input has dtype bf16, expected f32 or f64"), "{error}");
}
