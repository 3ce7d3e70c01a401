//! The allowed distance of a result from the expected one: the only place where tolerances are declared.
//!
//! Nothing here is a number found by trial. Every bound is a small multiple of
//! - one rounding of the expected value to its element type ([`ROUNDINGS`]);
//! - the *response*: how far the f64 reference itself moves when each input is moved by one rounding of the type in
//!   which arithmetic is done (f32 for f16 and bf16). It measures the conditioning of the very sample, so that a sum
//!   that cancels is allowed what its terms lose, and nothing else is ([`RESPONSES`]);
//! - where an operator has a decomposition and the element type is lower than f64: the error of the plain
//!   decomposition, one reference symbol after the other, each rounded to the element type ([`PLAIN`]).
//!
//! Integers and booleans are equal or wrong.

use fulgurite_kernels::DType;

use super::directives::Tolerance;
use super::problem::{Check, Problem, ensure};
use super::samples::round_to;
use crate::array::Array;

/// Roundings of a result that are free, in units of the last place: the kernels' own functions are within two units,
/// and f64 references are computed in f64 themselves.
pub(crate) const fn roundings(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => 1.5,
        DType::F32 | DType::C64 => 8.0,
        _ => 64.0,
    }
}

/// How many times the response of the reference to one rounding of the inputs is free. The error of a backward-stable
/// algorithm is a moderate multiple of it.
pub(crate) const RESPONSES: f64 = 32.0;

/// How many times the response to a random rounding of every value is free: the largest of a few is no bound for all.
pub(crate) const MOVES: f64 = 4.0;

/// How many times the error of the plain decomposition is free.
pub(crate) const PLAIN: f64 = 2.0;

/// Of how many symbols in a row the roundings are free. A decomposition that loses more than this computes a sum or a
/// statistic in low precision.
pub(crate) const CHAIN: usize = 4;

/// Relative error of a directional derivative by central differences, and of everything that is compared with it.
pub(crate) const DIFFERENCES: f64 = 1e-5;

/// Relative difference of two computations of one thing in f64 that go different ways.
pub(crate) const SAME_IN_F64: f64 = 1e-9;

/// Expected values, and how far each may be missed.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub values: Vec<f64>,
    pub allowed: Vec<f64>,
    /// How far each value moves when the inputs do.
    responses: Vec<f64>,
    /// Whether zeros must have the signs of the expected ones.
    signs: bool,
    /// The type that results are rounded to; `None` of what must be met exactly.
    dtype: Option<DType>,
}

/// Of the finite values.
pub(crate) fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.filter(|v| v.is_finite()).fold((0.0, 0usize), |(sum, n), v| (sum + v * v, n + 1));
    if n == 0 { 0.0 } else { (sum / n as f64).sqrt() }
}

/// Scale of each element: its own size, and what is usual in the tensor.
pub(crate) fn scales(values: &[f64]) -> Vec<f64> {
    let usual = root_mean_square(values.iter().copied());
    values.iter().map(|v| if v.is_finite() { v.abs() + usual } else { usual }).collect()
}

/// The largest error in units of [`scales`].
pub(crate) fn relative_error(values: &[f64], expected: &[f64]) -> f64 {
    let scales = scales(expected);
    values
        .iter()
        .zip(expected)
        .zip(scales)
        .map(|((v, e), scale)| if scale > 0.0 && v.is_finite() && e.is_finite() { (v - e).abs() / scale } else { 0.0 })
        .fold(0.0, f64::max)
}

impl Expected {
    /// Values that must be met exactly.
    pub fn exact(values: Vec<f64>) -> Expected {
        let allowed = vec![0.0; values.len()];
        Expected { values, allowed, responses: Vec::new(), signs: false, dtype: None }
    }

    /// Values in `dtype` that may be missed by its roundings alone.
    pub fn rounded(values: Vec<f64>, dtype: DType) -> Expected {
        let unit = dtype.epsilon() * roundings(dtype);
        let allowed =
            values.iter().map(|v| if v.is_finite() { unit * v.abs() + smallest(dtype) } else { 0.0 }).collect();
        Expected { values, allowed, responses: Vec::new(), signs: false, dtype: Some(dtype) }
    }

    /// Values of a program in which `count` symbols round to `dtype`, by half a unit in the last place each;
    /// `responses` is where the values go when the inputs are moved by a whole one. A rounding moves its own value, and
    /// what is computed from it as far as a rounding of the inputs does.
    pub fn of_roundings(values: &[f64], responses: &[&[f64]; 2], count: usize, dtype: DType) -> Expected {
        let mut expected = Expected::rounded(values.to_vec(), dtype);
        let step = |i: usize| {
            responses
                .iter()
                .map(|moved| (moved[i] - values[i]).abs())
                .filter(|step| step.is_finite())
                .fold(0.0, f64::max)
        };
        let usual = root_mean_square((0..values.len()).map(step));
        for (i, allowed) in expected.allowed.iter_mut().enumerate() {
            *allowed += 0.5 * count as f64 * (step(i) + usual);
        }
        expected.with_relative(0.5 * count as f64 * dtype.epsilon())
    }

    /// At least as much as the values move when each value on the way is moved by a rounding of its type, some times
    /// over: the inputs tell nothing of what cancels on the way.
    pub fn with_moves(self, moves: &[&[f64]]) -> Expected {
        let step = |i: usize| {
            let steps = moves.iter().map(|moved| (moved[i] - self.values[i]).abs()).filter(|step| step.is_finite());
            steps.fold(0.0, f64::max)
        };
        let steps: Vec<f64> = (0..self.values.len()).map(step).collect();
        self.with_steps(&steps)
    }

    /// As [`Expected::with_moves`], by how far each value moves.
    pub fn with_steps(mut self, steps: &[f64]) -> Expected {
        let usual = root_mean_square(steps.iter().copied());
        for (allowed, step) in self.allowed.iter_mut().zip(steps) {
            *allowed = allowed.max(MOVES * (step + usual));
        }
        self
    }

    /// Zeros must have the signs of the expected ones as well. (The order of a sum may decide about its zero, and
    /// roundings about that of a number that underflows.)
    pub fn with_signs_of_zeros(self) -> Expected {
        Expected { signs: true, ..self }
    }

    /// As much again as the reference moves when its inputs move by one rounding. An element that jumps is at a
    /// discontinuity; it gets nothing.
    pub fn with_responses(mut self, responses: &[Vec<f64>]) -> Expected {
        self.responses = vec![0.0; self.values.len()];
        for moved in responses {
            let steps: Vec<f64> = moved
                .iter()
                .zip(&self.values)
                .map(|(m, v)| {
                    let step = (m - v).abs();
                    if step.is_finite() && step <= 1e-3 * (1.0 + v.abs()) { step } else { 0.0 }
                })
                .collect();
            let usual = root_mean_square(steps.iter().copied());
            for (response, step) in self.responses.iter_mut().zip(steps) {
                *response = response.max(step + usual);
            }
        }
        for (allowed, response) in self.allowed.iter_mut().zip(&self.responses) {
            *allowed = allowed.max(RESPONSES * response);
        }
        self
    }

    /// The bounds of a chain of `depth` symbols that each round to `dtype`: each adds a rounding of that type, which
    /// what follows amplifies as it amplifies roundings of the inputs. Only so many are free ([`CHAIN`]): longer sums
    /// and statistics are accumulated in f32.
    pub fn of_chain(mut self, depth: usize, dtype: DType) -> Expected {
        let depth = depth.min(CHAIN);
        let unit = dtype.epsilon() / dtype.accumulator().epsilon();
        for (i, allowed) in self.allowed.iter_mut().enumerate() {
            *allowed += depth as f64 * unit * self.responses.get(i).copied().unwrap_or(0.0);
        }
        let roundings = dtype.epsilon() * roundings(dtype) * depth as f64;
        self.with_relative(roundings)
    }

    /// In addition `relative` of each element's scale.
    pub fn with_relative(mut self, relative: f64) -> Expected {
        for (allowed, scale) in self.allowed.iter_mut().zip(scales(&self.values)) {
            *allowed += relative * scale;
        }
        self
    }

    /// In addition `absolute`: what cancels leaves the roundings of what it was computed from.
    pub fn with_floor(mut self, absolute: f64) -> Expected {
        self.allowed.iter_mut().for_each(|allowed| *allowed += absolute);
        self
    }

    /// With what directives allow besides. What must be met exactly still must.
    pub fn loosened(mut self, tolerance: Tolerance) -> Expected {
        self.allowed.iter_mut().for_each(|allowed| *allowed *= tolerance.factor);
        match self.dtype.map_or(0.0, |dtype| tolerance.scaled_of(dtype)) {
            0.0 => self,
            scaled => self.with_relative(scaled),
        }
    }

    /// Compares a result, element by element.
    pub fn compare(&self, got: &Array) -> Check {
        self.compare_values(&got.to_f64()?, got.shape(), got.dtype())
    }

    /// As [`Expected::compare`] for values alone.
    pub fn compare_values(&self, got: &[f64], shape: &[usize], dtype: DType) -> Check {
        ensure!(got.len() == self.values.len(), "has {} elements, expected {}", got.len(), self.values.len());
        let mut wrong = 0;
        let mut first = None;
        for (i, ((got, value), allowed)) in got.iter().zip(&self.values).zip(&self.allowed).enumerate() {
            let rounded = round_to_result(*value, dtype);
            // The rounded value is always right: a bound below half a unit would ask for the impossible.
            let near = *got == rounded
                || (got.is_nan() && value.is_nan())
                || (got.is_finite() && value.is_finite() && (got - value).abs() <= *allowed)
                || overflows(*got, *value, *allowed, dtype);
            let zeros = self.signs && dtype.is_floating() && *got == 0.0 && *value == 0.0;
            let right = near && (!zeros || got.is_sign_negative() == value.is_sign_negative());
            if !right {
                wrong += 1;
                first.get_or_insert((i, *got, rounded, (got - value).abs(), *allowed));
            }
        }
        let Some((i, got, expected, off, allowed)) = first else { return Ok(()) };
        let others =
            if wrong > 1 { format!("; {wrong} of {} elements are wrong", self.values.len()) } else { String::new() };
        let bound = if allowed > 0.0 { format!(" (off by {off:.3e}, allowed {allowed:.3e})") } else { String::new() };
        let mut index = position(i / dtype.parts(), shape);
        index.extend(dtype.is_complex().then_some(i % 2));
        Err(Problem(format!("element {index:?}: expected {expected:?}, got {got:?}{bound}{others}")))
    }
}

/// Near the largest finite value a result may overflow, or not, by what is allowed.
fn overflows(got: f64, value: f64, allowed: f64, dtype: DType) -> bool {
    let infinite = |v: f64| round_to_result(v, dtype).is_infinite();
    got.is_infinite() && value.is_finite() && got.signum() == value.signum() && infinite(value + got.signum() * allowed)
        || got.is_finite() && infinite(value) && value.is_finite() && !infinite(value - value.signum() * allowed)
}

fn round_to_result(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::Bool => f64::from(u8::from(value != 0.0)),
        _ if dtype.is_differentiable() => round_to(value, dtype),
        _ => value,
    }
}

/// What flushing to zero and gradual underflow may cost.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 6.0e-8,
        DType::BF16 | DType::F32 | DType::C64 => 1.2e-38,
        DType::F64 | DType::C128 => 2.3e-308,
        _ => 0.0,
    }
}

/// The index of the i-th element in row-major order.
pub(crate) fn position(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (at, extent) in index.iter_mut().zip(shape).rev() {
        *at = i % (*extent).max(1);
        i /= (*extent).max(1);
    }
    index
}

/// Compares two arrays bit for bit, but for those of NaN: what a device makes of two NaN depends on the order in which
/// its compiler puts the operands of a sum or product, and no number says which.
pub(crate) fn same_numbers(got: &Array, expected: &Array) -> Check {
    if got.shape() == expected.shape() && got.dtype() == expected.dtype() && got.dtype().is_differentiable() {
        let (a, b) = (got.to_f64()?, expected.to_f64()?);
        if a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())) {
            return Ok(());
        }
    }
    same_bits(got, expected)
}

/// Compares two arrays bit for bit.
pub(crate) fn same_bits(got: &Array, expected: &Array) -> Check {
    // The devices may differ.
    let same = got.shape() == expected.shape() && got.dtype() == expected.dtype();
    ensure!(same, "is {}, expected {}", got.meta(), expected.meta());
    let (a, b) = (got.to_bytes()?, expected.to_bytes()?);
    if a == b {
        return Ok(());
    }
    let size = got.dtype().size();
    let i = a.chunks(size).zip(b.chunks(size)).position(|(a, b)| a != b).unwrap_or(0);
    let (a, b) = (got.to_f64()?[i], expected.to_f64()?[i]);
    Err(Problem(format!("element {:?}: expected the same bits as {b:?}, got {a:?}", position(i, got.shape()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_right_within_its_bound_and_wrong_beyond() {
        let expected = Expected::rounded(vec![1.0, f64::NAN, f64::INFINITY, 70000.0], DType::F16);
        assert!(expected.compare_values(&[1.001, f64::NAN, f64::INFINITY, f64::INFINITY], &[4], DType::F16).is_ok());
        let wrong = expected.compare_values(&[1.01, f64::NAN, f64::INFINITY, f64::INFINITY], &[2, 2], DType::F16);
        assert!(wrong.is_err_and(|problem| problem.0.starts_with("element [0, 0]: expected 1.0, got 1.01")));
    }

    #[test]
    fn a_part_of_the_scale_is_allowed_of_results_in_the_tests_own_type() {
        let tolerance = Tolerance { dtype: Some(DType::BF16), ..Tolerance::new(1.0, 0.25) };
        let off = |expected: Expected, dtype: DType| {
            expected.loosened(tolerance).compare_values(&[0.15, 1.0], &[2], dtype).is_err()
        };
        assert!(!off(Expected::rounded(vec![0.0, 1.0], DType::BF16), DType::BF16));
        assert!(off(Expected::rounded(vec![0.0, 1.0], DType::F32), DType::F32));
        assert!(off(Expected::exact(vec![0.0, 1.0]), DType::BF16));
        let both = tolerance.and(Tolerance::new(3.0, 0.5));
        assert_eq!((both.factor, both.scaled, both.dtype), (3.0, 0.75, Some(DType::BF16)));
    }

    #[test]
    fn zeros_have_signs_where_they_are_asked_for() {
        let expected = Expected::rounded(vec![0.0, -0.0, -1e-60], DType::F32);
        assert!(expected.compare_values(&[-0.0, 0.0, 0.0], &[3], DType::F32).is_ok());
        let signed = expected.with_signs_of_zeros();
        assert!(signed.compare_values(&[0.0, -0.0, 0.0], &[3], DType::F32).is_ok());
        let wrong = signed.compare_values(&[0.0, 0.0, -0.0], &[3], DType::F32);
        assert!(wrong.is_err_and(|problem| problem.0.starts_with("element [1]: expected -0.0, got 0.0")));
    }

    #[test]
    fn a_jump_of_the_reference_allows_nothing() {
        let expected = Expected::rounded(vec![1.0, 1.0], DType::F64).with_responses(&[vec![0.0, 1.0]]);
        assert!(expected.allowed[0] < 1e-10);
    }
}
