//! The f32 functions against f64, over all magnitudes and at the special values.

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
fn hyperbolic_tangent() {
    check("tanh", 2.0, super::tanh, f64::tanh);
}

#[test]
fn error_function() {
    check("erf", 1.5, super::erf, libm::erf);
}

#[test]
fn sine_and_cosine() {
    check("sin", 2.0, super::sin, f64::sin);
    check("cos", 2.0, super::cos, f64::cos);
}

#[test]
fn zero_keeps_its_sign() {
    for function in [super::tanh, super::erf, super::sin] {
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
    assert_eq!([(5, -3), (-5, 3), (5, 0), (i64::MIN, -1)].map(|(a, b)| integer_remainder(a, b)), [-1, 1, 0, 0]);
}
