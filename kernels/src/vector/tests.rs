//! The f32 functions against f64, over all magnitudes and at the special values.

use rayon::prelude::*;

use super::lanes::{Formula, Portable, slices};
#[cfg(target_arch = "x86_64")]
use super::level::{Level, level};
use super::pieces::{ErrorFunction, HyperbolicTangent};

/// Distance of `got` from `exact` in units in the last place of f32 at `exact`.
fn ulps(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got == rounded || (got.is_nan() && rounded.is_nan()) {
        return 0.0;
    }
    if !got.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    let exponent = ((rounded.abs().to_bits() >> 23) as i32).max(1) - 127 - 23;
    (f64::from(got) - exact).abs() / 2f64.powi(exponent)
}

fn every_magnitude() -> Vec<f32> {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::MIN];
    let mut values: Vec<f32> = (0..=u32::MAX).step_by(7919).map(f32::from_bits).collect();
    values.extend((-2_000_000..2_000_000).map(|i| i as f32 * 6e-5));
    values.extend(special);
    values
}

fn check(name: &str, limit: f64, function: fn(&[f32], &mut [f32]), exact: fn(f64) -> f64) {
    let input = every_magnitude();
    let mut out = vec![0.0; input.len()];
    function(&input, &mut out);
    let (worst, at) = input
        .iter()
        .zip(&out)
        .map(|(&x, &got)| (ulps(got, exact(f64::from(x))), x))
        .fold((0.0, 0.0), |worst, next| if next.0 > worst.0 { next } else { worst });
    println!("{name}: {worst:.3} units in the last place at {at:e}");
    assert!(worst <= limit, "{name}({at:e}) is {worst} units in the last place away");
    assert_eq!(out.len(), input.len());
}

#[test]
fn exponential() {
    check("exp", 1.5, super::exp, f64::exp);
}

#[test]
fn logarithm() {
    check("log", 1.5, super::log, f64::ln);
}

#[test]
fn near_zero() {
    check("expm1", 2.0, super::expm1, f64::exp_m1);
    check("log1p", 2.0, super::log1p, f64::ln_1p);
}

#[test]
fn hyperbolic_tangent() {
    check("tanh", 0.8, super::tanh, f64::tanh);
}

#[test]
fn error_function() {
    check("erf", 0.8, super::erf, libm::erf);
}

#[test]
fn bounded_functions_reach_one() {
    for (function, exact) in
        [(super::tanh as fn(&[f32], &mut [f32]), f64::tanh as fn(f64) -> f64), (super::erf, libm::erf)]
    {
        // The least number whose result is 1, by bisection of the bits.
        let (mut below, mut from) = (1.0f32.to_bits(), 20.0f32.to_bits());
        while below + 1 < from {
            let middle = u32::midpoint(below, from);
            *(if exact(f64::from(f32::from_bits(middle))) as f32 == 1.0 { &mut from } else { &mut below }) = middle;
        }
        // A few numbers more, whose exact result is nearly half way between 1 and the number below.
        let first = f32::from_bits(from) * 1.0005;
        let input: Vec<f32> = (0..40_000).map(|i| first + i as f32 * 5e-4).chain([f32::MAX, f32::INFINITY]).collect();
        let input: Vec<f32> = input.iter().flat_map(|x| [*x, -x]).collect();
        let mut out = vec![0.0; input.len()];
        function(&input, &mut out);
        for (x, got) in input.iter().zip(&out) {
            assert_eq!(*got, 1f32.copysign(*x), "at {x:e}");
        }
    }
}

/// All levels that the machine has, and that of one which does not have fused multiply-add.
fn at_every_level<F: Formula<1>>(formula: &F, input: &[f32]) -> Vec<Vec<f32>> {
    let mut results = vec![vec![0.0; input.len()]; 2];
    slices::<Portable<true>, F, 1>(formula, [input], &mut results[0]);
    slices::<Portable<false>, F, 1>(formula, [input], &mut results[1]);
    #[cfg(target_arch = "x86_64")]
    for (least, function) in [
        (Level::Avx2, super::x86::avx2::<F, 1> as unsafe fn(&F, [&[f32]; 1], &mut [f32])),
        (Level::Avx512, super::x86::avx512::<F, 1>),
    ] {
        if level() >= least {
            let mut out = vec![0.0; input.len()];
            // SAFETY: the machine has the instructions.
            unsafe { function(formula, [input], &mut out) };
            results.push(out);
        }
    }
    results
}

fn bits(values: &[f32]) -> Vec<u32> {
    // One NaN is as good as another.
    values.iter().map(|value| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }).collect()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let input: Vec<f32> = every_magnitude().into_iter().step_by(3).collect();
    for results in [at_every_level(&ErrorFunction, &input), at_every_level(&HyperbolicTangent, &input)] {
        for (level, other) in results.iter().enumerate().skip(1) {
            assert!(bits(&results[0]) == bits(other), "level {level}");
        }
    }
}

#[test]
fn an_element_has_the_same_bits_wherever_it_is() {
    let input: Vec<f32> = (0..57).map(|i| (i as f32 - 28.0) * 0.17).chain([f32::NAN, f32::INFINITY, -1e-40]).collect();
    for function in [super::erf, super::tanh] {
        let mut all = vec![0.0; input.len()];
        function(&input, &mut all);
        for from in 0..input.len() {
            let mut rest = vec![5.0; input.len() - from];
            function(&input[from..], &mut rest);
            assert_eq!(bits(&rest), bits(&all[from..]), "from {from} on");
            let mut one = [5.0, 6.0];
            function(&input[from..=from], &mut one[..1]);
            assert_eq!(bits(&one), bits(&[all[from], 6.0]), "{} alone", input[from]);
        }
    }
}

/// Every number that f32 has: `cargo test --release -p fulgurite-kernels --lib -- --ignored every_number`.
#[test]
#[ignore = "takes minutes"]
fn every_number_of_bounded_functions() {
    for (name, function, exact) in
        [("erf", super::erf as fn(&[f32], &mut [f32]), libm::erf as fn(f64) -> f64), ("tanh", super::tanh, f64::tanh)]
    {
        let worst = (0..1u32 << 12).into_par_iter().map(|block| {
            let input: Vec<f32> = (0..1u32 << 20).map(|i| f32::from_bits(block << 20 | i)).collect();
            let mut out = vec![0.0; input.len()];
            function(&input, &mut out);
            let of = |(x, got): (&f32, &f32)| (ulps(*got, exact(f64::from(*x))), *x);
            input.iter().zip(&out).map(of).fold((0.0, 0.0), |worst, next| if next.0 > worst.0 { next } else { worst })
        });
        let worst = worst.reduce(|| (0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        println!("{name}: {} units in the last place at {:e}", worst.0, worst.1);
        assert!(worst.0 <= 0.8);
    }
}

#[test]
fn sine_and_cosine() {
    check("sin", 2.0, super::sin, f64::sin);
    check("cos", 2.0, super::cos, f64::cos);
}

#[test]
fn zero_keeps_its_sign() {
    for function in [super::tanh, super::erf, super::sin, super::expm1, super::log1p] {
        let mut out = [1.0];
        function(&[-0.0], &mut out);
        assert_eq!(out[0].to_bits(), (-0.0f32).to_bits());
    }
}

#[test]
fn integer_powers_and_remainders() {
    use super::power::{integer_power, integer_remainder};
    assert_eq!(
        [(2, 10), (-1, -3), (1, -5), (0, -2), (2, -1), (2, 64)].map(|(a, b)| integer_power(a, b)),
        [1024, -1, 1, 0, 0, 0]
    );
    use super::power::of_integers;
    use crate::scalar::ScalarOp::{BitXor, Gcd, ShiftLeft, ShiftRight};
    assert_eq!([(1, 3), (1, 64), (1, -1), (-1, 63)].map(|(a, b)| of_integers(ShiftLeft, a, b)), [8, 0, 0, i64::MIN]);
    assert_eq!([(-5, 1), (-5, 64), (5, -1), (9, 3)].map(|(a, b)| of_integers(ShiftRight, a, b)), [-3, -1, 0, 1]);
    assert_eq!(of_integers(BitXor, 6, 3), 5);
    assert_eq!([(12, -18), (0, -7), (0, 0), (i64::MIN, 0)].map(|(a, b)| of_integers(Gcd, a, b)), [6, 7, 0, i64::MIN]);
    assert_eq!([(5, -3), (-5, 3), (5, 0), (i64::MIN, -1)].map(|(a, b)| integer_remainder(a, b)), [-1, 1, 0, 0]);
}
